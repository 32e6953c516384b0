package nodepool

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kind of the objects. The module that has their Go types is not needed for a
// few fields.
var kind = schema.GroupVersionKind{Group: "hypershift.openshift.io", Version: "v1beta1", Kind: "NodePool"}

// nodePool is the part of a NodePool that is read or written.
type nodePool struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Release struct {
			Image string `json:"image"`
		} `json:"release"`
		Config        []corev1.LocalObjectReference `json:"config"`
		OSImageStream streamReference               `json:"osImageStream"`
	} `json:"spec"`
	Status struct {
		OSImageStream streamReference `json:"osImageStream"`
		Conditions    []condition     `json:"conditions"`
	} `json:"status"`
}

type streamReference struct {
	Name string `json:"name"`
}

// condition of a NodePool.
type condition struct {
	Type               string      `json:"type"`
	Status             string      `json:"status"`
	Reason             string      `json:"reason"`
	Message            string      `json:"message,omitempty"`
	Severity           string      `json:"severity,omitempty"`
	LastTransitionTime metav1.Time `json:"lastTransitionTime"`
	ObservedGeneration int64       `json:"observedGeneration,omitempty"`
}

func decode(object *unstructured.Unstructured) (*nodePool, error) {
	pool := &nodePool{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, pool); err != nil {
		return nil, fmt.Errorf("read NodePool %s/%s: %w", object.GetNamespace(), object.GetName(), err)
	}
	return pool, nil
}
