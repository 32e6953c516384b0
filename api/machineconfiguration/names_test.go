package machineconfiguration

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation"
)

func TestShortenKeepsWhatFits(t *testing.T) {
	for _, length := range []int{1, 25, 63} {
		name := strings.Repeat("a", length)
		if got := Shorten(name, MaxLabelValue); got != name {
			t.Errorf("Shorten(%q) = %q", name, got)
		}
	}
}

func TestShortenedNamesAreValidAndDifferent(t *testing.T) {
	for name, long := range map[string]string{
		"letters only":           strings.Repeat("a", 253),
		"a dot where it is cut":  strings.Repeat("a", 53) + "." + strings.Repeat("b", 60),
		"hyphens where it's cut": strings.Repeat("a", 50) + "----" + strings.Repeat("b", 60),
	} {
		t.Run(name, func(t *testing.T) {
			got := Shorten(long, MaxLabelValue)
			if len(got) > MaxLabelValue {
				t.Errorf("%q has %d bytes", got, len(got))
			}
			if problems := append(validation.IsValidLabelValue(got), validation.IsDNS1123Subdomain(got)...); len(problems) > 0 {
				t.Errorf("%q is not valid: %v", got, problems)
			}
			if other := Shorten(long+"x", MaxLabelValue); other == got {
				t.Errorf("two names became %q", got)
			}
		})
	}
}
