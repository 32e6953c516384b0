package machineconfigpool

import (
	"context"
	"fmt"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// rivalInterval is how long it is believed that no machine-config-daemon runs.
const rivalInterval = time.Minute

// rivals looks for a machine-config-daemon, which writes the annotations of Nodes
// and takes nodes to their images itself.
type rivals struct {
	// live reads from the API server: DaemonSets are not watched.
	live      client.Reader
	namespace string
	clock     clock.PassiveClock

	mutex   sync.Mutex
	isThere bool
	at      time.Time
}

// +kubebuilder:rbac:groups=apps,namespace=openshift-machine-config-operator,resources=daemonsets,verbs=get

// hasDaemon reports whether there is one.
func (r *rivals) hasDaemon(ctx context.Context) (bool, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if now := r.clock.Now(); now.Sub(r.at) >= rivalInterval {
		key := client.ObjectKey{Namespace: r.namespace, Name: machineconfiguration.DaemonSetMachineConfigDaemon}
		err := r.live.Get(ctx, key, &appsv1.DaemonSet{})
		if client.IgnoreNotFound(err) != nil {
			return false, fmt.Errorf("look for DaemonSet %s: %w", key.Name, err)
		}
		r.isThere, r.at = err == nil, now
	}
	return r.isThere, nil
}
