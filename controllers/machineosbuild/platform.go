package machineosbuild

import (
	"context"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// platformConfig is the name of the one ControllerConfig of a cluster that has
// any.
const platformConfig = "machine-config-controller"

var kindControllerConfig = mcfgv1.GroupVersion.WithKind("ControllerConfig")

// site is what the builders of a cluster have to know of their surroundings.
type site struct {
	// trustBundle is PEM; empty: there is none.
	trustBundle string
	// proxy are variables of a builder's environment.
	proxy []corev1.EnvVar
}

// platform knows what a cluster's ControllerConfig says, where there is one. It is
// read again when it was seen to change.
type platform struct {
	// live reads from the API server: a cluster may lack the kind, which a cache
	// could not be asked for.
	live client.Reader

	mutex  sync.Mutex
	isRead bool
	config *mcfgv1.ControllerConfig
}

// +kubebuilder:rbac:groups=machineconfiguration.openshift.io,resources=controllerconfigs,verbs=get;list;watch

// changed makes the next look read it again.
func (p *platform) changed() {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	p.isRead = false
}

// read returns the ControllerConfig; nil: the cluster has none.
func (p *platform) read(ctx context.Context) (*mcfgv1.ControllerConfig, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.isRead {
		return p.config, nil
	}
	found := &mcfgv1.ControllerConfig{}
	err := p.live.Get(ctx, client.ObjectKey{Name: platformConfig}, found)
	switch {
	case apierrors.IsNotFound(err) || apimeta.IsNoMatchError(err):
		found = nil
	case err != nil:
		return nil, fmt.Errorf("read ControllerConfig %s: %w", platformConfig, err)
	}
	p.isRead, p.config = true, found
	return found, nil
}

// siteOf is what the ControllerConfig says, else the ConfigMap with the site's
// certificates and the controller's own environment.
func siteOf(config *mcfgv1.ControllerConfig, trustBundle string) site {
	found := site{trustBundle: trustBundle, proxy: ownProxy()}
	if config == nil {
		return found
	}
	if len(config.Spec.AdditionalTrustBundle) > 0 {
		found.trustBundle = string(config.Spec.AdditionalTrustBundle)
	}
	if proxy := config.Spec.Proxy; proxy != nil {
		found.proxy = environment(proxy.HTTPProxy, proxy.HTTPSProxy, proxy.NoProxy)
	}
	return found
}

// proxyVariables are those that programs look at, in the order of environment's
// arguments.
var proxyVariables = []string{"HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"}

func ownProxy() []corev1.EnvVar {
	var values []string
	for _, name := range proxyVariables {
		values = append(values, os.Getenv(name))
	}
	return environment(values...)
}

// environment leaves out what is empty.
func environment(values ...string) []corev1.EnvVar {
	var variables []corev1.EnvVar
	for i, value := range values {
		if value != "" {
			variables = append(variables, corev1.EnvVar{Name: proxyVariables[i], Value: value})
		}
	}
	return variables
}
