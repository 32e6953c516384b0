//go:build envtest

package envtest

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// build runs "kubectl kustomize" on a folder of config/.
func build(t *testing.T, folder string) []unstructured.Unstructured {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	assets, err := assetsDirectory()
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(filepath.Join(assets, "kubectl"), "kustomize", filepath.Join(root, "config", folder))
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("kubectl kustomize config/%s: %v: %s", folder, err, stderr.String())
	}
	var objects []unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(output), 4096); ; {
		var object unstructured.Unstructured
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		objects = append(objects, object)
	}
}

// names are kind and name of objects.
func names(objects []unstructured.Unstructured) []string {
	var answer []string
	for _, object := range objects {
		answer = append(answer, object.GetKind()+" "+object.GetName())
	}
	return answer
}

// arguments are those of the controller.
func arguments(t *testing.T, objects []unstructured.Unstructured) []string {
	t.Helper()
	for _, object := range objects {
		if object.GetKind() != "Deployment" || object.GetName() != "imagemode-controller" {
			continue
		}
		containers, _, err := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
		if err != nil || len(containers) != 1 {
			t.Fatalf("containers of the controller: %v, %v", containers, err)
		}
		args, _, err := unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		if err != nil {
			t.Fatal(err)
		}
		return args
	}
	t.Fatal("there is no Deployment imagemode-controller")
	return nil
}

func TestTheOverlayForOpenShiftLeavesOutWhatThePlatformOwns(t *testing.T) {
	objects := build(t, "openshift")
	found := names(objects)
	for _, want := range []string{
		"CustomResourceDefinition imagerollouts.imagemode.dev", "CustomResourceDefinition nodeimages.imagemode.dev",
		"ClusterRole imagemode-controller", "Deployment imagemode-controller", "ValidatingAdmissionPolicy imagemode-machineosconfig",
	} {
		if !slices.Contains(found, want) {
			t.Errorf("%s is missing", want)
		}
	}
	for _, object := range objects {
		name := object.GetKind() + " " + object.GetName()
		isPlatforms := object.GetKind() == "Namespace" || object.GroupVersionKind().Group == mcfgv1.GroupName ||
			object.GetKind() == "CustomResourceDefinition" && !strings.HasSuffix(object.GetName(), ".imagemode.dev") ||
			strings.HasPrefix(object.GetKind(), "ValidatingAdmissionPolicy") && !strings.HasPrefix(object.GetName(), "imagemode-")
		if isPlatforms {
			t.Errorf("%s is the platform's", name)
		}
	}
	if args := arguments(t, objects); !slices.Contains(args, "--controllers=machineosbuild") {
		t.Errorf("the controller has the arguments %v", args)
	}
}

func TestEveryKustomizationCanBeBuilt(t *testing.T) {
	for folder, wanted := range map[string][]string{
		"crd":           {"CustomResourceDefinition imagerollouts.imagemode.dev", "CustomResourceDefinition machineconfigpools.machineconfiguration.openshift.io"},
		"default":       {"Namespace openshift-machine-config-operator", "MachineConfigPool master", "MachineConfigPool worker", "ValidatingAdmissionPolicy osimagestream-prevent-deletion", "DaemonSet imagemode-agent"},
		"agent/service": {"Deployment imagemode-controller", "ClusterRoleBinding imagemode-agent-nodes", "ValidatingAdmissionPolicy imagemode-node-own-image"},
		"prometheus": {
			"Service imagemode-controller-metrics", "ServiceMonitor imagemode-controller", "ClusterRole imagemode-metrics-reader",
		},
	} {
		t.Run(folder, func(t *testing.T) {
			found := names(build(t, folder))
			for _, want := range wanted {
				if !slices.Contains(found, want) {
					t.Errorf("%s is missing in %v", want, found)
				}
			}
		})
	}
}

// TestWithTheAgentInTheImageThereIsNoDaemonSet: all else is as in config/default.
func TestWithTheAgentInTheImageThereIsNoDaemonSet(t *testing.T) {
	objects := build(t, "agent/service")
	found := names(objects)
	for _, name := range names(build(t, "default")) {
		if isThere := slices.Contains(found, name); isThere == (name == "DaemonSet imagemode-agent") {
			t.Errorf("%s: there %t", name, isThere)
		}
	}
	if args := arguments(t, objects); !slices.Contains(args, "--agent-image=$(AGENT_IMAGE)") {
		t.Errorf("the controller has the arguments %v", args)
	}
}
