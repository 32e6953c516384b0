package machineconfigpool

import (
	"errors"
	"fmt"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

func TestOnlyConflictsAreQuiet(t *testing.T) {
	conflict := fmt.Errorf("write: %w", apierrors.NewConflict(mcfgv1.Resource("machineconfigpools"), "worker", errors.New("newer")))
	broken := errors.New("connection refused")
	for name, tc := range map[string]struct {
		err     error
		isAgain bool
		isError bool
	}{
		"nothing went wrong":            {nil, false, false},
		"another writer was faster":     {conflict, true, false},
		"twice":                         {errors.Join(nil, conflict, conflict), true, false},
		"among other things":            {errors.Join(conflict, broken), false, true},
		"something else":                {broken, false, true},
		"conflicts within conflicts":    {errors.Join(errors.Join(conflict), conflict), true, false},
		"an error deep in a joined one": {errors.Join(errors.Join(conflict, broken)), false, true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := result(tc.err)
			if (got.RequeueAfter > 0) != tc.isAgain || (err != nil) != tc.isError {
				t.Errorf("result = %+v, %v", got, err)
			}
		})
	}
}
