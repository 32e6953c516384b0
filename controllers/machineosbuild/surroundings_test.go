package machineosbuild

import (
	"strings"
	"testing"

	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/rivals"
)

func TestUpdaterConflictNamesWhoAndTheWayOut(t *testing.T) {
	for name, test := range map[string]struct {
		rivals       rivals.Found
		isRollingOut bool
		says         []string
	}{
		"nobody else":                       {rivals.Found{}, true, nil},
		"another builder":                   {rivals.Found{Builder: true}, false, []string{"machine-os-builder", "--controllers=-machineosbuild"}},
		"another updater of nodes":          {rivals.Found{Daemon: true}, true, []string{"machine-config-daemon", "--controllers=-hand-off,-rollout"}},
		"an updater of nodes that is meant": {rivals.Found{Daemon: true}, false, nil},
		"both":                              {rivals.Found{Builder: true, Daemon: true}, true, []string{"machine-os-builder", "machine-config-daemon"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := aScope(func(s *scope) { s.rivals, s.isRollingOut = test.rivals, test.isRollingOut })
			s.config.Status.Conditions = []metav1.Condition{{Type: keys.ConditionUpdaterConflict, Status: metav1.ConditionTrue}}
			status := configStatus(s, decide(s), pullCheck{}, s.now)
			found := apimeta.FindStatusCondition(status.Conditions, keys.ConditionUpdaterConflict)
			if (found != nil) != (test.says != nil) {
				t.Fatalf("condition %+v", found)
			}
			for _, text := range test.says {
				if !strings.Contains(found.Message, text) {
					t.Errorf("%q does not say %s", found.Message, text)
				}
			}
		})
	}
}
