package machineconfigpool

import (
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

func TestWhichRolloutIsMadeAnew(t *testing.T) {
	// look is one hand-off: what the cache shows, and what the API answers.
	type look struct {
		hasRecord   bool
		shown, made types.UID
		isAnew      bool
	}
	for name, looks := range map[string][]look{
		"the first, which the cache shows late":   {{false, "", "a", false}, {true, "", "a", false}, {true, "a", "a", false}},
		"the first, tried twice":                  {{false, "", "", false}, {true, "", "a", false}},
		"deleted while somebody watched":          {{true, "a", "a", false}, {true, "", "b", true}, {true, "", "b", false}, {true, "b", "b", false}},
		"deleted twice":                           {{true, "a", "a", false}, {true, "", "b", true}, {true, "b", "b", false}, {true, "", "c", true}},
		"deleted while nobody did":                {{true, "", "b", true}, {true, "", "b", false}},
		"that of another MachineOSConfig is gone": {{true, "a", "a", false}, {false, "", "b", false}},
	} {
		t.Run(name, func(t *testing.T) {
			var book rolloutBook
			for i, look := range looks {
				w := withARecord(mcfgv1.MachineOSBuilding)
				if w.rollout = nil; look.shown != "" {
					w.rollout = &v1alpha1.ImageRollout{}
					w.rollout.UID = look.shown
				}
				if !look.hasRecord {
					w.pool.Annotations = nil
				}
				book.expect(w.scope())
				if look.made == "" {
					continue // the API refused
				}
				if got := book.isAnew("worker", look.made); got != look.isAnew {
					t.Errorf("hand-off %d: anew is %t", i+1, got)
				}
			}
		})
	}
}

func TestARolloutMadeAnewSaysWhichSettingsAreGone(t *testing.T) {
	said := events.NewFakeRecorder(1)
	(&poolReconciler{events: said}).announceAnew(withARecord(mcfgv1.MachineOSBuilding).scope())
	message := <-said.Events
	for _, part := range []string{
		"Warning RolloutMadeAnew", "ImageRollout worker was deleted", "(image, nodeSelector, paused, ", "soak", "windows", "gates", "canary", "is not known", "set again",
	} {
		if !strings.Contains(message, part) {
			t.Errorf("%q does not say %q", message, part)
		}
	}
}

// Every field is the pool's or the users', and those of the pool are the ones written.
func TestEveryFieldOfARolloutHasAnOwner(t *testing.T) {
	o := order{
		image: image1, nodeSelector: nodesOf("worker"), pullSecret: &v1alpha1.SecretReference{Name: "a", Namespace: "b"},
		live: &v1alpha1.LiveContent{TrustBundle: "PEM"},
	}
	applied, err := o.applyConfiguration("worker", nil)
	if err != nil {
		t.Fatal(err)
	}
	written, _, _ := unstructured.NestedMap(applied.Object, "spec")
	if diff := cmp.Diff(slices.Sorted(slices.Values(poolFields)), slices.Sorted(maps.Keys(written))); diff != "" {
		t.Error(diff)
	}
	var all []string
	for field := range reflect.TypeFor[v1alpha1.ImageRolloutSpec]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		all = append(all, name)
	}
	if diff := cmp.Diff(slices.Sorted(slices.Values(all)), slices.Sorted(slices.Values(slices.Concat(poolFields, userFields)))); diff != "" {
		t.Error(diff)
	}
}
