package controller

import (
	"flag"
	"os"
	"testing"
)

// TestMain has the model take the same sample every time, unless -rapid.seed
// asks for another: whether a change passes must not depend on luck. "make soak"
// takes new ones, and more than the forty that are enough for every day.
func TestMain(m *testing.M) {
	flag.Parse()
	if seed := flag.Lookup("rapid.seed"); seed.Value.String() == seed.DefValue {
		if err := seed.Value.Set("1"); err != nil {
			panic(err)
		}
	}
	if checks := flag.Lookup("rapid.checks"); checks.Value.String() == checks.DefValue {
		if err := checks.Value.Set("40"); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}
