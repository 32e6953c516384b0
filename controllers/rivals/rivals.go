// Package rivals looks for the parts of a machine-config-operator that do the same
// work as this program.
package rivals

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// Interval is how long an answer is believed: Deployments and DaemonSets are not
// watched.
const Interval = time.Minute

// Found says what is there.
type Found struct {
	// Builder is a machine-os-builder that is not scaled to 0: it builds images.
	Builder bool
	// Daemon is a machine-config-daemon: it takes nodes to their images, and writes
	// the annotations of Nodes.
	Daemon bool
}

// Watch looks for them, and remembers the answer for an Interval. It is safe for
// concurrent use. A nil Watch finds nothing.
type Watch struct {
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	mutex sync.Mutex
	found Found
	at    time.Time
}

// NewWatch returns a Watch on a namespace. live reads from the API server.
func NewWatch(live client.Reader, namespace string, clock clock.PassiveClock) *Watch {
	return &Watch{live: live, namespace: namespace, clock: clock}
}

// +kubebuilder:rbac:groups=apps,namespace=openshift-machine-config-operator,resources=deployments;daemonsets,verbs=get

// Look asks the API server, once in an Interval at most. An error is that of a
// read, and says of what.
func (w *Watch) Look(ctx context.Context) (Found, error) {
	if w == nil {
		return Found{}, nil
	}
	w.mutex.Lock()
	defer w.mutex.Unlock()
	now := w.clock.Now()
	if !w.at.IsZero() && now.Sub(w.at) < Interval {
		return w.found, nil
	}
	builder, daemon := &appsv1.Deployment{}, &appsv1.DaemonSet{}
	isBuilder, err := w.find(ctx, machineconfiguration.DeploymentMachineOSBuilder, builder)
	if err != nil {
		return Found{}, err
	}
	isDaemon, err := w.find(ctx, machineconfiguration.DaemonSetMachineConfigDaemon, daemon)
	if err != nil {
		return Found{}, err
	}
	isAtWork := isBuilder && (builder.Spec.Replicas == nil || *builder.Spec.Replicas > 0)
	w.found, w.at = Found{Builder: isAtWork, Daemon: isDaemon}, now
	return w.found, nil
}

func (w *Watch) find(ctx context.Context, name string, object client.Object) (bool, error) {
	err := w.live.Get(ctx, client.ObjectKey{Namespace: w.namespace, Name: name}, object)
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look for %T %s: %w", object, name, err)
	}
	return true, nil
}
