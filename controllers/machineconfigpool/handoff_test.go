package machineconfigpool

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/builders"
)

// handedOff is the rollout of pool worker with an image.
func handedOff(image string) *v1alpha1.ImageRollout {
	one := intstr.FromInt32(1)
	return &v1alpha1.ImageRollout{
		ObjectMeta: metav1.ObjectMeta{Name: "worker", ResourceVersion: "5", Annotations: map[string]string{
			machineconfiguration.AnnotationRolloutConfig: map[string]string{image1: config1, image2: config2}[image],
		}},
		Spec: v1alpha1.ImageRolloutSpec{
			Image: image, NodeSelector: nodesOf("worker"), MaxUnavailable: &one,
			PullSecretRef: &v1alpha1.SecretReference{Name: "node-pull", Namespace: "ns"},
		},
	}
}

func TestOrderForRollout(t *testing.T) {
	options := Options{Namespace: "ns", NodePullSecret: "node-pull"}
	secret := func(name string) *v1alpha1.SecretReference {
		return &v1alpha1.SecretReference{Name: name, Namespace: "ns"}
	}
	leaving, abandoned := osConfig(true, image2), osConfig(true, image2)
	leaving.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	abandoned.DeletionTimestamp = leaving.DeletionTimestamp
	abandoned.Annotations = map[string]string{machineconfiguration.AnnotationAbandon: ""}
	own := osConfig(true, image2)
	own.Annotations = map[string]string{machineconfiguration.AnnotationNodePullSecret: "own"}
	users := handedOff(image1)
	users.Spec.NodeSelector = withLabel("mine")
	ready, running := aWorld(), aWorld()
	running.osConfig, running.builds[1] = osConfig(false, image1), build("worker-2", config2, mcfgv1.MachineOSBuilding, "")

	for name, tc := range map[string]struct {
		osConfig *mcfgv1.MachineOSConfig
		builds   []mcfgv1.MachineOSBuild
		existing *v1alpha1.ImageRollout
		options  Options
		want     *order
	}{
		"the first image":                                 {ready.osConfig, ready.builds, nil, options, &order{image: image2, pullSecret: secret("node-pull")}},
		"the next image":                                  {ready.osConfig, ready.builds, handedOff(image1), options, &order{image: image2, pullSecret: secret("node-pull")}},
		"the MachineOSConfig's own secret":                {own, ready.builds, nil, options, &order{image: image2, pullSecret: secret("own")}},
		"no secret at all":                                {ready.osConfig, ready.builds, nil, Options{Namespace: "ns"}, &order{image: image2}},
		"not before it is built":                          {running.osConfig, running.builds, nil, options, nil},
		"while it is built the last target stays":         {running.osConfig, running.builds, handedOff(image1), options, &order{image: image1, pullSecret: secret("node-pull")}},
		"and when it failed":                              {running.osConfig, []mcfgv1.MachineOSBuild{build("worker-2", config2, mcfgv1.MachineOSBuildFailed, "")}, handedOff(image1), options, &order{image: image1, pullSecret: secret("node-pull")}},
		"not before Ready":                                {osConfig(false, image2), ready.builds, nil, options, nil},
		"not when Ready is about an older spec":           {edited(osConfig(true, image2)), ready.builds, nil, options, nil},
		"not when Ready is about an older rendered":       {osConfig(true, image1), ready.builds, nil, options, nil},
		"the last image of a MachineOSConfig that goes":   {leaving, ready.builds, handedOff(image1), options, &order{image: image2, pullSecret: secret("node-pull")}},
		"nothing for one that is abandoned":               {abandoned, ready.builds, handedOff(image1), options, nil},
		"never without a MachineOSConfig":                 {nil, nil, nil, options, nil},
		"a rollout of the user's making is left alone":    {nil, nil, users, options, nil},
		"a MachineOSConfig that went away leaves its own": {nil, nil, handedOff(image1), options, &order{image: image1, pullSecret: secret("node-pull")}},
	} {
		t.Run(name, func(t *testing.T) {
			pool := builders.MachineConfigPool("worker", builders.Rendered(config2), builders.Paused)
			got, isNeeded := orderFor(pool, targetOf(tc.osConfig, tc.builds, config2), tc.existing, tc.options)
			if isNeeded != (tc.want != nil) {
				t.Fatalf("order = %+v, needed %t", got, isNeeded)
			}
			if tc.want == nil {
				return
			}
			want := *tc.want
			want.paused, want.nodeSelector, want.maxUnavailable = true, nodesOf("worker"), intstr.FromInt32(1)
			want.config = map[string]string{image1: config1, image2: config2}[want.image]
			if diff := cmp.Diff(want, got, cmp.AllowUnexported(order{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestOrderIsWrittenOnlyWhereItDiffers(t *testing.T) {
	want, _ := orderFor(builders.MachineConfigPool("worker", builders.Rendered(config2)), targetOf(osConfig(true, image2), aWorld().builds, config2), nil, Options{Namespace: "ns", NodePullSecret: "node-pull"})
	for name, tc := range map[string]struct {
		change func(*v1alpha1.ImageRollout)
		want   bool
	}{
		"the same":             {func(*v1alpha1.ImageRollout) {}, true},
		"a field of the users": {func(r *v1alpha1.ImageRollout) { r.Spec.RetryToken, r.Spec.MaxConcurrentStaging = "again", 3 }, true},
		"another config":       {func(r *v1alpha1.ImageRollout) { r.Annotations = nil }, false},
		"another image":        {func(r *v1alpha1.ImageRollout) { r.Spec.Image = image1 }, false},
		"another pause":        {func(r *v1alpha1.ImageRollout) { r.Spec.Paused = true }, false},
		"another selector":     {func(r *v1alpha1.ImageRollout) { r.Spec.NodeSelector = withLabel("x") }, false},
		"no maxUnavailable":    {func(r *v1alpha1.ImageRollout) { r.Spec.MaxUnavailable = nil }, false},
		"no secret":            {func(r *v1alpha1.ImageRollout) { r.Spec.PullSecretRef = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			existing := handedOff(image2)
			tc.change(existing)
			if got := want.isIn(existing); got != tc.want {
				t.Errorf("isIn = %t, want %t", got, tc.want)
			}
		})
	}
	if want.isIn(nil) {
		t.Error("a rollout that does not exist says nothing")
	}
}

func TestApplyConfigurationHoldsOurFieldsAndNoOther(t *testing.T) {
	percent := intstr.FromString("25%")
	o := order{image: image2, config: config2, paused: false, nodeSelector: nodesOf("worker"), maxUnavailable: percent}
	applied, err := o.applyConfiguration("worker", handedOff(image1))
	if err != nil {
		t.Fatal(err)
	}
	got := applied.Object
	want := map[string]any{
		"apiVersion": "imagemode.dev/v1alpha1", "kind": "ImageRollout",
		"metadata": map[string]any{"name": "worker", "resourceVersion": "5", "annotations": map[string]any{
			"imagemode.dev/rendered-machine-config": config2,
		}},
		"spec": map[string]any{
			"image": image2, "paused": false, "maxUnavailable": "25%",
			"nodeSelector": map[string]any{"matchLabels": map[string]any{"imagemode.dev/pool": "worker"}},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	o.live = &v1alpha1.LiveContent{TrustBundle: "PEM"}
	if applied, err = o.applyConfiguration("worker", nil); err != nil {
		t.Fatal(err)
	}
	live, _, _ := unstructured.NestedMap(applied.Object, "spec", "live")
	if diff := cmp.Diff(map[string]any{"trustBundle": "PEM"}, live); diff != "" {
		t.Error(diff)
	}
}

func TestMaxUnavailable(t *testing.T) {
	for name, tc := range map[string]struct {
		wanted *intstr.IntOrString
		want   string
		event  string
	}{
		"nothing said":    {nil, "1", ""},
		"a number":        {new(intstr.FromInt32(3)), "3", ""},
		"none":            {new(intstr.FromInt32(0)), "0", "MaxUnavailableZero"},
		"none in percent": {new(intstr.FromString("0%")), "0%", "MaxUnavailableZero"},
		"a percentage":    {new(intstr.FromString("50%")), "50%", ""},
		"a negative one":  {new(intstr.FromInt32(-1)), "1", "InvalidMaxUnavailable"},
		"over a hundred":  {new(intstr.FromString("101%")), "1", "InvalidMaxUnavailable"},
		"a word":          {new(intstr.FromString("all")), "1", "InvalidMaxUnavailable"},
		"a number quoted": {new(intstr.FromString("3")), "1", "InvalidMaxUnavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			pool := builders.MachineConfigPool("worker")
			pool.Spec.MaxUnavailable = tc.wanted
			got, _ := maxUnavailable(pool)
			if event, message := oddMaxUnavailable(pool); got.String() != tc.want || event != tc.event {
				t.Errorf("maxUnavailable = %s, event %q %s", got.String(), event, message)
			}
		})
	}
}
