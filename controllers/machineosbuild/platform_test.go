package machineosbuild

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	configv1 "github.com/openshift/api/config/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/builder/request"
)

func aControllerConfig(bundle string, proxy *configv1.ProxyStatus) *mcfgv1.ControllerConfig {
	return &mcfgv1.ControllerConfig{
		ObjectMeta: metav1.ObjectMeta{Name: platformConfig},
		Spec:       mcfgv1.ControllerConfigSpec{AdditionalTrustBundle: []byte(bundle), Proxy: proxy},
	}
}

func TestWhatAPlatformSaysComesFirst(t *testing.T) {
	t.Setenv("HTTP_PROXY", "")
	t.Setenv("HTTPS_PROXY", "http://own:1")
	t.Setenv("NO_PROXY", "")
	own := []corev1.EnvVar{{Name: "HTTPS_PROXY", Value: "http://own:1"}}
	proxy := &configv1.ProxyStatus{HTTPProxy: "http://site:1", NoProxy: ".svc"}
	sites := []corev1.EnvVar{{Name: "HTTP_PROXY", Value: "http://site:1"}, {Name: "NO_PROXY", Value: ".svc"}}
	for name, test := range map[string]struct {
		config *mcfgv1.ControllerConfig
		want   site
	}{
		"there is no platform":       {nil, site{"map", own}},
		"it has neither":             {aControllerConfig("", nil), site{"map", own}},
		"it has a trust bundle":      {aControllerConfig("platform", nil), site{"platform", own}},
		"it has a proxy":             {aControllerConfig("", proxy), site{"map", sites}},
		"it has a proxy that is off": {aControllerConfig("", &configv1.ProxyStatus{}), site{"map", nil}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, siteOf(test.config, "map"), cmp.AllowUnexported(site{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestAPlatformsProxyReachesTheBuilderAndHealsAFailedBuild(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(failsWith(request.Internal))
	w.settle()
	failed := w.current()
	w.create(aControllerConfig("PEM", &configv1.ProxyStatus{HTTPSProxy: "http://proxy.example.com:3128"}))
	w.settle()
	if got := w.current().Name; got != failed.Name {
		t.Fatal("it is read without having been seen to change")
	}
	w.configs.gatherer.platform.changed()
	w.settle()
	next := w.current()
	if next.Name == failed.Name {
		t.Fatal("the build is not tried again")
	}
	found := false
	for _, variable := range w.job(next).Spec.Template.Spec.Containers[0].Env {
		found = found || variable == corev1.EnvVar{Name: "HTTPS_PROXY", Value: "http://proxy.example.com:3128"}
	}
	if !found {
		t.Error("the builder does not have the proxy")
	}
	if inputsHashOf(next) != inputsHashOf(failed) {
		t.Error("another proxy is said to be another image")
	}
}
