package controller

import (
	"flag"
	"os"
	"testing"
)

// TestMain has the model take the same sample every time, unless -rapid.seed
// asks for another: whether a change passes must not depend on luck. "make soak"
// takes new ones, and more than the thirty that are enough for every day. They are long:
// with as few as thirty steps hardly any rollout meets two troubles.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == seed.DefValue {
		if err := seed.Value.Set("1"); err != nil {
			panic(err)
		}
	}
	for name, value := range map[string]string{"rapid.checks": "30", "rapid.steps": "100"} {
		if set := flag.Lookup(name); set.Value.String() == set.DefValue {
			if err := set.Value.Set(value); err != nil {
				panic(err)
			}
		}
	}
	os.Exit(m.Run())
}
