package ignition

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	shared "github.com/coreos/ignition/v2/config/shared/errors"
	"github.com/coreos/ignition/v2/config/util"
	newest "github.com/coreos/ignition/v2/config/v3_6"
	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/coreos/vcontext/report"
)

// Parse reads an Ignition config of any stable spec from 3.0 to 3.6 and returns
// it translated up to 3.6, so that everything behind it knows one type only.
//
// No text at all, white space and the JSON null are an empty config: a
// MachineConfig may leave its config out. The error of a config that does not
// parse names each fatal finding with its path and its line and column in raw.
// Warnings are not errors. Parse keeps nothing of raw.
func Parse(raw []byte) (types.Config, error) {
	if isAbsent(raw) {
		return empty(), nil
	}
	config, findings, err := newest.ParseCompatibleVersion(raw)
	if err != nil {
		return types.Config{}, describe(raw, findings, err)
	}
	return config, nil
}

// UnknownKeys are the places, such as storage.files.0.contnts, of members that the
// spec of a config does not have, in the order of the config. They may be misspelt,
// or a later spec's: Parse passes them over, as Ignition does. A config that does
// not parse has none.
func UnknownKeys(raw []byte) []string {
	if isAbsent(raw) {
		return nil
	}
	_, findings, err := newest.ParseCompatibleVersion(raw)
	if err != nil {
		return nil
	}
	var places []string
	for _, entry := range findings.Entries {
		if strings.HasPrefix(entry.Message, "unused key ") {
			places = append(places, strings.TrimPrefix(entry.Context.String(), "$."))
		}
	}
	return places
}

// isAbsent reports whether raw says nothing.
func isAbsent(raw []byte) bool {
	trimmed := bytes.TrimSpace(raw)
	return len(trimmed) == 0 || bytes.Equal(trimmed, []byte("null"))
}

// empty is the neutral element of Merge. It carries a version: merging takes a
// child's plain strings as they are, so a config without one would blank its
// parent's.
func empty() types.Config {
	return types.Config{Ignition: types.Ignition{Version: types.MaxVersion.String()}}
}

// describe makes one error of a failed parse.
func describe(raw []byte, findings report.Report, err error) error {
	if errors.Is(err, shared.ErrUnknownVersion) || errors.Is(err, shared.ErrInvalidVersion) {
		return describeVersion(raw, err)
	}
	var fatal []error
	for _, entry := range findings.Entries {
		if entry.Kind.IsFatal() {
			fatal = append(fatal, errors.New(entry.String()))
		}
	}
	if len(fatal) == 0 {
		return fmt.Errorf("ignition config: %w", err)
	}
	return fmt.Errorf("ignition config: %w: %w", err, errors.Join(fatal...))
}

// describeVersion names the version that was found and those that are read.
// The parser reports versions without a place.
func describeVersion(raw []byte, err error) error {
	var stub struct {
		Ignition struct{ Version string }
	}
	if _, parseErr := util.HandleParseErrors(raw, &stub); parseErr != nil || stub.Ignition.Version == "" {
		return fmt.Errorf("ignition config: ignition.version is missing; set it to 3.0.0 … %s: %w", types.MaxVersion.String(), err)
	}
	return fmt.Errorf("ignition config: ignition.version is %q, and 3.0.0 … %s can be read: %w",
		stub.Ignition.Version, types.MaxVersion.String(), err)
}
