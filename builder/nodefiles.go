package builder

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"strings"

	ignitiontypes "github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/klauspost/compress/gzip"
	"go.podman.io/image/v5/types"

	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
)

// nodePaths are the files and directories of a node that say how registries are
// reached and which images may be taken, and where they belong in a directory
// that is laid out like /etc/containers.
var nodePaths = []struct{ from, to string }{
	{"/etc/containers/registries.conf", "registries.conf"},
	{"/etc/containers/registries.conf.d/", "registries.conf.d/"},
	{"/etc/containers/registries.d/", "registries.d/"},
	{"/etc/containers/policy.json", "policy.json"},
	{"/etc/containers/certs.d/", "certs.d/"},
	{"/etc/docker/certs.d/", "certs.d/"},
}

// writeNodeFiles writes into a directory what the Ignition config of a request
// says about registries, so that a pull here goes the way of a pull on the node.
// It gives the directory; empty: the config says nothing.
func writeNodeFiles(config ignitiontypes.Config, directory string) (string, error) {
	files, err := decodeFiles(selectNodeFiles(config))
	if err != nil || len(files) == 0 {
		return "", err
	}
	if err := takePolicyKeys(config, files, directory); err != nil {
		return "", err
	}
	if _, hasMirrors := files["registries.conf"]; !hasMirrors {
		// Without it the library does not look at the drop-ins either.
		files["registries.conf"] = nil
	}
	if err := os.RemoveAll(directory); err != nil {
		return "", err
	}
	for name, content := range files {
		file := filepath.Join(directory, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
			return "", fmt.Errorf("files of a node: %w", err)
		}
		if err := os.WriteFile(file, content, 0o600); err != nil {
			return "", fmt.Errorf("files of a node: %w", err)
		}
	}
	return directory, nil
}

// selectNodeFiles gives the files of nodePaths, by their place in the directory.
func selectNodeFiles(config ignitiontypes.Config) map[string]ignitiontypes.File {
	selected := map[string]ignitiontypes.File{}
	for _, file := range config.Storage.Files {
		clean := path.Clean(file.Path)
		for _, place := range nodePaths {
			if clean == place.from || strings.HasSuffix(place.from, "/") && strings.HasPrefix(clean, place.from) {
				selected[place.to+strings.TrimPrefix(clean, place.from)] = file
			}
		}
	}
	return selected
}

// decodeFiles gives the contents of files: whatever encoding, compression and
// verification Ignition knows, the layer's own code knows.
func decodeFiles(files map[string]ignitiontypes.File) (map[string][]byte, error) {
	if len(files) == 0 {
		return nil, nil
	}
	const below = "/usr/share/node/"
	config := ignitiontypes.Config{Ignition: ignitiontypes.Ignition{Version: ignitiontypes.MaxVersion.String()}}
	for name, file := range files {
		file.Path, file.User, file.Group = below+name, ignitiontypes.NodeUser{}, ignitiontypes.NodeGroup{}
		config.Storage.Files = append(config.Storage.Files, file)
	}
	layer, err := ignition.NewLayer(config, ignition.DefaultBase(), nil)
	if err != nil {
		return nil, err
	}
	unpacker, err := gzip.NewReader(bytes.NewReader(layer.Data))
	if err != nil {
		return nil, err
	}
	contents := map[string][]byte{}
	for archive := tar.NewReader(unpacker); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return contents, nil
		}
		if err != nil {
			return nil, err
		}
		if name, found := strings.CutPrefix(path.Clean("/"+header.Name), below); found && header.Typeflag == tar.TypeReg {
			if contents[name], err = io.ReadAll(archive); err != nil {
				return nil, err
			}
		}
	}
}

// takePolicyKeys adds the keys that the signature policy names to files, and
// changes their paths in the policy to where they will be.
func takePolicyKeys(config ignitiontypes.Config, files map[string][]byte, directory string) error {
	policy, found := files["policy.json"]
	if !found {
		return nil
	}
	var rules any
	if err := json.Unmarshal(policy, &rules); err != nil {
		return &ignition.RefusedError{Problems: []ignition.Problem{{
			Path: "/etc/containers/policy.json", Reason: "it is not JSON: " + err.Error()}}}
	}
	keys := map[string]ignitiontypes.File{}
	for _, file := range config.Storage.Files {
		keys[path.Clean(file.Path)] = file
	}
	named := map[string]ignitiontypes.File{}
	rules = replaceTexts(rules, func(text string) string {
		key, known := keys[path.Clean(text)]
		if !strings.HasPrefix(text, "/") || !known {
			return text
		}
		name := path.Join("keys", path.Clean(text))
		named[name] = key
		return filepath.Join(directory, name)
	})
	contents, err := decodeFiles(named)
	if err != nil {
		return err
	}
	for name, content := range contents {
		files[name] = content
	}
	files["policy.json"], err = json.Marshal(rules)
	return err
}

// workshopPolicy gives the path of the signature policy for the library. The
// policy of a node is for what comes from elsewhere: the results of earlier steps
// and the images of the local store are taken by their digest in any case.
func workshopPolicy(job *job, sys *types.SystemContext) (string, error) {
	path := filepath.Join(job.storage, "policy.json")
	if sys.SignaturePolicyPath == "" {
		return registry.PolicyFile(sys, path)
	}
	raw, err := os.ReadFile(sys.SignaturePolicyPath)
	if err != nil {
		return "", fmt.Errorf("signature policy: %w", err)
	}
	var policy struct {
		Default    json.RawMessage                       `json:"default"`
		Transports map[string]map[string]json.RawMessage `json:"transports,omitempty"`
	}
	if err := json.Unmarshal(raw, &policy); err != nil {
		return "", fmt.Errorf("signature policy: %w", err)
	}
	if policy.Transports == nil {
		policy.Transports = map[string]map[string]json.RawMessage{}
	}
	for _, own := range []struct{ transport, scope string }{
		{"docker", job.repository}, {"containers-storage", ""}, {"oci", ""},
	} {
		if registry.IsLayout(own.scope) {
			continue
		}
		if policy.Transports[own.transport] == nil {
			policy.Transports[own.transport] = map[string]json.RawMessage{}
		}
		policy.Transports[own.transport][own.scope] = json.RawMessage(`[{"type":"insecureAcceptAnything"}]`)
	}
	if raw, err = json.Marshal(policy); err != nil {
		return "", err
	}
	return path, os.WriteFile(path, raw, 0o600)
}

// replaceTexts replaces the strings in a value that came from JSON; the names of
// fields stay.
func replaceTexts(value any, replace func(string) string) any {
	switch value := value.(type) {
	case string:
		return replace(value)
	case []any:
		for i := range value {
			value[i] = replaceTexts(value[i], replace)
		}
	case map[string]any:
		for name := range value {
			value[name] = replaceTexts(value[name], replace)
		}
	}
	return value
}
