package controller

import (
	"fmt"
	"maps"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// isRefused says that the API server will answer the same to the same write until
// somebody changes a right, a policy or a quota: an admission webhook refuses it, say.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
}

// refusedOnly leaves those of the nodes' errors that are refusals.
func refusedOnly(failed map[string]error) map[string]error {
	refused := map[string]error{}
	for name, err := range failed {
		if isRefused(err) {
			refused[name] = err
		}
	}
	return refused
}

// refusedWrites names the nodes that are not served for that.
func refusedWrites(scope *Scope, _ []v1alpha1.Slot) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(scope.Refused)) {
		names = append(names, fmt.Sprintf("%s: %s", name, cutTo(oneLine(scope.Refused[name].Error()), maxDetailBytes)))
	}
	return list(names)
}
