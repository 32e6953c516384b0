package local

import (
	"fmt"
	"os"
	"path/filepath"

	"sigs.k8s.io/yaml"
)

// Credentials are the registry's users, each with a docker config.json of its own.
var Credentials = []string{"base-pull", "push", "node-pull"}

// AuthFile is the config.json of one of the registry's users.
func AuthFile(user string) string { return filepath.Join(registryDir, user+".json") }

// DockerConfig returns the content of AuthFile.
func DockerConfig(user string) ([]byte, error) { return os.ReadFile(AuthFile(user)) }

// Streams returns the OS streams in the registry as data for the ConfigMap
// imagemode-streams: by stream name, YAML with osImage and osExtensionsImage.
func Streams() (map[string]string, error) {
	var streams map[string]any
	if err := readYAML(streamsFile, &streams); err != nil {
		return nil, err
	}
	data := make(map[string]string, len(streams))
	for name, stream := range streams {
		text, err := yaml.Marshal(stream)
		if err != nil {
			return nil, err
		}
		data[name] = string(text)
	}
	return data, nil
}

// Images returns imagemode's own images in the registry: controller, builder
// and agent, each as a reference by digest.
func Images() (map[string]string, error) {
	var images map[string]string
	if err := readYAML(imagesFile, &images); err != nil {
		return nil, err
	}
	for _, name := range []string{"controller", "builder", "agent"} {
		if images[name] == "" {
			return nil, fmt.Errorf("%s names no image for the %s", imagesFile, name)
		}
	}
	return images, nil
}

func readYAML(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("the local cluster is not complete (run \"make cluster-up\"): %w", err)
	}
	if err := yaml.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
