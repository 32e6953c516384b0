package nodepool

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/ignition"
)

// keyConfig is the key of a ConfigMap of spec.config that holds manifests.
const keyConfig = "config"

// configText is the text of one ConfigMap of spec.config.
type configText struct {
	// Name of the ConfigMap.
	Name string
	// Text of its key config: one or more manifests, YAML or JSON.
	Text string
}

// runtimeOf returns the default container runtime that the configuration of a
// node pool sets: by drop-ins in MachineConfigs, which are merged by name, and
// by a ContainerRuntimeConfig. The error names the ConfigMap.
func runtimeOf(texts []configText) (streams.RuntimeChoice, error) {
	var configs []mcfgv1.MachineConfig
	var generated streams.RuntimeChoice
	for _, text := range texts {
		err := eachDocument(text.Text, func(document []byte) error {
			var object metav1.TypeMeta
			if err := yaml.Unmarshal(document, &object); err != nil {
				return errors.New("it is no YAML: " + strings.Join(strings.Fields(err.Error()), " "))
			}
			switch object.Kind {
			case "MachineConfig":
				var config mcfgv1.MachineConfig
				err := yaml.Unmarshal(document, &config)
				configs = append(configs, config)
				return err
			case "ContainerRuntimeConfig":
				choice, err := streams.FromContainerRuntimeConfig(document)
				// Which of two wins on a node is not told by their order here: one that
				// wants runc is enough to need it.
				if choice.Runtime != "" && generated.Runtime != streams.RuntimeRunc {
					generated = choice
				}
				return err
			}
			return nil
		})
		if err != nil {
			return streams.RuntimeChoice{}, fmt.Errorf("ConfigMap %s, key %s: %w", text.Name, keyConfig, err)
		}
	}
	merged, err := mergeByName(configs)
	if err != nil {
		return streams.RuntimeChoice{}, err
	}
	return streams.EffectiveRuntime(merged, generated)
}

func eachDocument(text string, visit func([]byte) error) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader([]byte(text))))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := visit(document); err != nil {
			return err
		}
	}
}

func mergeByName(configs []mcfgv1.MachineConfig) (types.Config, error) {
	slices.SortStableFunc(configs, func(a, b mcfgv1.MachineConfig) int { return strings.Compare(a.Name, b.Name) })
	merged, err := ignition.Parse(nil)
	if err != nil {
		return types.Config{}, err
	}
	for _, config := range configs {
		parsed, err := ignition.Parse(config.Spec.Config.Raw)
		if err != nil {
			return types.Config{}, fmt.Errorf("MachineConfig %s: spec.config: %w", config.Name, err)
		}
		merged = ignition.Merge(merged, parsed)
	}
	return merged, nil
}

// configHash identifies what a node pool asks for beside its release, 32 hex:
// its configuration, and its stream where that is not the one it would get
// anyway. It comes from the spec alone, so that a status that moves rolls
// nothing, and neither does naming the default.
func configHash(texts []configText, request streams.HostedRequest) string {
	var content []string
	for _, text := range texts {
		content = append(content, text.Text)
	}
	canonical, err := json.Marshal(map[string]any{"config": content, "stream": streams.HostedHashStream(request)})
	if err != nil {
		panic(err) // strings always marshal
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:16])
}
