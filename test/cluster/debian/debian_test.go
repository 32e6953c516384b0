package debian

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestMissing(t *testing.T) {
	for sentence, test := range map[string]struct {
		output string
		want   []string
	}{
		"all are installed":                       {output: "gcc installed\nkmod installed\n"},
		"dpkg does not know one":                  {output: "gcc installed\n", want: []string{"kmod"}},
		"one was removed and left its settings":   {output: "gcc installed\nkmod config-files\n", want: []string{"kmod"}},
		"one is for several architectures":        {output: "gcc installed\nkmod installed\nkmod installed\n"},
		"nothing is installed, as on a new image": {output: "", want: []string{"gcc", "kmod"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			if diff := cmp.Diff(test.want, missing([]string{"gcc", "kmod"}, []byte(test.output))); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestFirstErrorIsTheLineThatSaysWhatIsWrong(t *testing.T) {
	const output = "Hit:1 http://deb.example bookworm InRelease\nErr:2 http://deb.example bookworm-updates InRelease\n  Could not resolve\nE: Some index files failed to download.\n"
	if got := firstError([]byte(output)); got != "Err:2 http://deb.example bookworm-updates InRelease" {
		t.Errorf("got %q", got)
	}
}
