package machineconfigpool

import (
	"context"
	"fmt"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

var (
	kindCRD = schema.GroupVersionKind{Group: "apiextensions.k8s.io", Version: "v1", Kind: "CustomResourceDefinition"}
	// machineConfigNodes is the name of their CRD.
	machineConfigNodes = "machineconfignodes." + mcfgv1.GroupName
)

// nodeSchema tells whether the served API of MachineConfigNodes has the fields for
// images, which clusters have only with a feature gate of their platform. The API
// server drops a field that it does not know, so that what was written would
// look different for ever.
type nodeSchema struct {
	// live reads from the API server: of CRDs the cache has metadata alone.
	live client.Reader

	mutex sync.Mutex
	// isKnown is false until the CRD was read, and after it has changed.
	isKnown, hasImages bool
}

// withImages reads the CRD when it has changed.
func (s *nodeSchema) withImages(ctx context.Context) (bool, error) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if s.isKnown {
		return s.hasImages, nil
	}
	crd := &unstructured.Unstructured{}
	crd.SetGroupVersionKind(kindCRD)
	if err := s.live.Get(ctx, client.ObjectKey{Name: machineConfigNodes}, crd); err != nil {
		return false, fmt.Errorf("read the fields of MachineConfigNode: %w", err)
	}
	s.isKnown, s.hasImages = true, hasImageFields(crd)
	return s.hasImages, nil
}

// changed forgets what was read.
func (s *nodeSchema) changed() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.isKnown = false
}

// hasImageFields reports whether the version that is used here has configImage, in
// spec and status.
func hasImageFields(crd *unstructured.Unstructured) bool {
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, entry := range versions {
		version, _ := entry.(map[string]any)
		if version["name"] != mcfgv1.GroupVersion.Version {
			continue
		}
		for _, part := range []string{"spec", "status"} {
			_, found, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", part, "properties", "configImage")
			if err != nil || !found {
				return false
			}
		}
		return true
	}
	return false
}
