package machineconfigpool

import (
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/test/builders"
)

// ownedFields is an entry of managedFields.
func ownedFields(manager, fields string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{Manager: manager, FieldsV1: &metav1.FieldsV1{Raw: []byte(fields)}}
}

func TestWhichPoolsGetAMachineOSConfigByDefault(t *testing.T) {
	wanted := DefaultBuild{PushRepository: "registry.example.com/os/nodes", PushSecret: "push", BasePullSecret: "base"}
	const spec = `{"f:spec":{"f:renderedImagePushSpec":{}}}`
	existing := func(fields ...metav1.ManagedFieldsEntry) *mcfgv1.MachineOSConfig {
		config := builders.MachineOSConfig("worker", builders.PushTo("registry.example.com/os/nodes:latest", "push"), builders.BasePullSecret("base"))
		config.ManagedFields = fields
		return config
	}
	with := func(config *mcfgv1.MachineOSConfig, change func(*mcfgv1.MachineOSConfig)) *mcfgv1.MachineOSConfig {
		change(config)
		return config
	}
	old := func(config *mcfgv1.MachineOSConfig) {
		config.Spec.RenderedImagePushSpec = "registry.example.com/os/old:latest"
	}
	for name, test := range map[string]struct {
		existing *mcfgv1.MachineOSConfig
		wanted   DefaultBuild
		isGiven  bool
	}{
		"one without":                              {nil, wanted, true},
		"none, where it is not asked for":          {nil, DefaultBuild{}, false},
		"not one that has it":                      {existing(ownedFields(defaultManager, spec)), wanted, false},
		"one with an older default":                {with(existing(ownedFields(defaultManager, spec)), old), wanted, true},
		"not one that a user wrote":                {with(existing(ownedFields("kubectl", spec)), old), wanted, false},
		"not one that a user has changed":          {with(existing(ownedFields(defaultManager, spec), ownedFields("kubectl", `{"f:spec":{"f:containerFile":{}}}`)), old), wanted, false},
		"one that a user has only annotated":       {with(existing(ownedFields(defaultManager, spec), ownedFields("kubectl", `{"f:metadata":{"f:annotations":{}}}`)), old), wanted, true},
		"one whose status this program writes":     {with(existing(ownedFields(defaultManager, spec), ownedFields("imagemode", `{"f:status":{}}`)), old), wanted, true},
		"not while it is being deleted":            {with(with(existing(ownedFields(defaultManager, spec)), old), func(c *mcfgv1.MachineOSConfig) { c.DeletionTimestamp = &later }), wanted, false},
		"not where nobody is said to own anything": {with(existing(), old), wanted, false},
	} {
		t.Run(name, func(t *testing.T) {
			object := defaultFor(builders.MachineConfigPool("worker"), test.existing, test.wanted)
			if (object != nil) != test.isGiven {
				t.Fatalf("given: %t, want %t", object != nil, test.isGiven)
			}
			if object == nil {
				return
			}
			got, _ := object.Object["spec"].(map[string]any)
			if object.GetName() != "worker" || got["renderedImagePushSpec"] != "registry.example.com/os/nodes:latest" {
				t.Errorf("%+v", object.Object)
			}
		})
	}
}
