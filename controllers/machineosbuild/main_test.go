package machineosbuild

import (
	"flag"
	"os"
	"testing"

	"github.com/go-logr/logr"
	ctrl "sigs.k8s.io/controller-runtime"
)

// everyCrash crashes at every point, and not at one in five.
var everyCrash = flag.Bool("crashes.all", false, "crash after every write of every scenario")

func TestMain(m *testing.M) {
	ctrl.SetLogger(logr.Discard())
	os.Exit(m.Run())
}
