package source

import (
	"strings"
	"testing"
)

func TestCanonicalize(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("ab", 32)
	tests := map[string]struct{ name, want string }{
		"a digest alone decides":               {"10.89.0.1:5000/os/worker:tag" + digest, "10.89.0.1:5000/os/worker" + digest},
		"a digest without a tag stays":         {"registry.example/os" + digest, "registry.example/os" + digest},
		"a tag stays":                          {"registry.example/os:1", "registry.example/os:1"},
		"a name alone is kept as it was given": {"registry.example/os", "registry.example/os"},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			got, err := Canonicalize(test.name)
			if err != nil || got != test.want {
				t.Errorf("got %q (%v), want %q", got, err, test.want)
			}
		})
	}
	if _, err := Canonicalize("Not A Name"); err == nil {
		t.Error("a name that is none was taken")
	}
}
