package osimagestream

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// mirrorSet is one rule of an ImageDigestMirrorSet, ImageTagMirrorSet or
// ImageContentSourcePolicy.
type mirrorSet struct {
	// Source is a registry, host[:port][/path], or *.domain.
	Source string `json:"source"`
	// Mirrors to try before the source, in order.
	Mirrors []string `json:"mirrors"`
	// Policy NeverContactSource leaves the source itself out.
	Policy string `json:"mirrorSourcePolicy"`
	// pull says for which references: by digest or by tag.
	pull string
}

// Values of pull, as containers-registries.conf(5) has them.
const (
	byDigestOnly = "digest-only"
	byTagOnly    = "tag-only"
)

const neverContactSource = "NeverContactSource"

// registriesConf is the part of containers-registries.conf(5) that mirrors need.
type registriesConf struct {
	Registries []registryConf `toml:"registry"`
}

type registryConf struct {
	Prefix   string       `toml:"prefix,omitempty"`
	Location string       `toml:"location,omitempty"`
	Blocked  bool         `toml:"blocked,omitempty"`
	Mirrors  []mirrorConf `toml:"mirror,omitempty"`
}

type mirrorConf struct {
	Location string `toml:"location"`
	Pull     string `toml:"pull-from-mirror"`
}

// writeRegistriesConf writes mirror sets as the nodes get them. Rules for the same
// source are joined in the order given. No mirrors are the empty text. The
// error says which rule cannot be written.
func writeRegistriesConf(sets []mirrorSet) (string, error) {
	var config registriesConf
	for _, set := range sets {
		if err := set.check(); err != nil {
			return "", err
		}
		entry := config.of(set.Source)
		entry.Blocked = entry.Blocked || set.Policy == neverContactSource
		for _, mirror := range set.Mirrors {
			each := mirrorConf{Location: mirror, Pull: set.pull}
			if mirror != set.Source && !slices.Contains(entry.Mirrors, each) {
				entry.Mirrors = append(entry.Mirrors, each)
			}
		}
	}
	if len(config.Registries) == 0 {
		return "", nil
	}
	var text bytes.Buffer
	if err := toml.NewEncoder(&text).Encode(config); err != nil {
		return "", fmt.Errorf("mirrors cannot be written as registries.conf: %w", err)
	}
	return text.String(), nil
}

func (s mirrorSet) check() error {
	for _, location := range append([]string{s.Source}, s.Mirrors...) {
		if location == "" || strings.ContainsAny(location, " \t\n\"'\\@") || strings.Contains(location, "://") {
			return fmt.Errorf("mirrors of %q: %q is no registry; write host[:port][/path]", s.Source, location)
		}
	}
	return nil
}

// of returns the entry for a source, which it makes where there is none.
func (c *registriesConf) of(source string) *registryConf {
	for i := range c.Registries {
		if c.Registries[i].Location == source || c.Registries[i].Prefix == source {
			return &c.Registries[i]
		}
	}
	entry := registryConf{Location: source}
	if strings.HasPrefix(source, "*.") {
		entry = registryConf{Prefix: source}
	}
	c.Registries = append(c.Registries, entry)
	return &c.Registries[len(c.Registries)-1]
}
