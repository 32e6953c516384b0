package agent

import (
	"flag"
	"os"
	"testing"
)

// TestMain has the model take the same sample every time, unless -rapid.seed
// asks for another: whether a change passes must not depend on luck. "make soak"
// takes new ones. With thirty steps hardly any order meets two troubles.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == seed.DefValue {
		if err := seed.Value.Set("1"); err != nil {
			panic(err)
		}
	}
	if steps := flag.Lookup("rapid.steps"); steps.Value.String() == steps.DefValue {
		if err := steps.Value.Set("100"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
