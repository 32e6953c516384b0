package ignition

import (
	"errors"
	"strings"
	"testing"
)

// TestCheckRefusesWhatALayerWould, and nothing that depends on the base image.
func TestCheckRefusesWhatALayerWould(t *testing.T) {
	for sentence, test := range map[string]struct {
		body      string
		arguments []string
		refused   string
	}{
		"what an image holds":                          {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"}}]}`, []string{"quiet"}, ""},
		"a unit of the base, which only it can tell":   {`"systemd":{"units":[{"name":"a.service","enabled":true}]}`, nil, ""},
		"what could follow after such a question":      {`"systemd":{"units":[{"name":"a.service","enabled":true}]},"storage":{"files":[{"path":"/usr/local/a","append":[{"source":"data:,"}]}]}`, nil, ""},
		"an append below /var":                         {`"storage":{"files":[{"path":"/usr/local/a","append":[{"source":"data:,"}]}]}`, nil, "/usr/local/a: append"},
		"content that does not decode":                 {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,x","compression":"gzip"}}]}`, nil, "/etc/a"},
		"two paths that are one":                       {`"storage":{"files":[{"path":"/bin/a","contents":{"source":"data:,"}},{"path":"/usr/bin/a","contents":{"source":"data:,"}}]}`, nil, "delivered twice"},
		"a file below a file":                          {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"}},{"path":"/etc/a/b","contents":{"source":"data:,"}}]}`, nil, "/etc/a/b: it is below /etc/a"},
		"a kernel argument of the MachineConfig":       {`"storage":{}`, []string{"quiet", `a="b`}, `kernelArguments: kernel argument "a=\"b"`},
		"an argument without a name":                   {`"storage":{}`, []string{""}, `kernel argument "": it is empty`},
		"an argument of two lines":                     {`"storage":{}`, []string{"a\nb"}, `kernel argument "a\nb": it is empty or has a line end`},
		"the same, where the base has to be asked too": {`"systemd":{"units":[{"name":"a.service","enabled":true}]}`, []string{`a="b`}, "kernelArguments"},
	} {
		t.Run(sentence, func(t *testing.T) {
			parsed, err := Parse([]byte(config(test.body)))
			if err != nil {
				t.Fatal(err)
			}
			err = errors.Join(Check(parsed), CheckArguments(test.arguments))
			var refused *RefusedError
			switch {
			case test.refused == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.refused != "" && (!errors.As(err, &refused) || !strings.Contains(err.Error(), test.refused)):
				t.Errorf("error %v, want %q", err, test.refused)
			}
			if _, layerErr := NewLayer(parsed, DefaultBase(), test.arguments); (layerErr == nil || errors.Is(layerErr, ErrBaseUnread)) != (err == nil) && test.arguments == nil {
				t.Errorf("a layer says %v", layerErr)
			}
		})
	}
}

func TestWhichConfigBringsAProblem(t *testing.T) {
	parsed, err := Parse([]byte(config(`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"}}]},"systemd":{"units":[{"name":"b.service"}]},"kernelArguments":{"shouldExist":["c=\"d"]}`)))
	if err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{
		"/etc/a: no": true, "/etc/a/b: it is below /etc/a, which is": true, "/etc/ab: no": false, "/etc/a/b: no": false, "/x/etc/a: no": false,
		"/y: is as /etc/a.": true, "b.service: no": true, "bb.service: no": false, `kernelArguments: kernel argument "c=\"d": no`: true, `kernelArguments: kernel argument "e": no`: false,
	} {
		path, reason, _ := strings.Cut(text, ": ")
		if got := Brings(parsed, Problem{path, reason}); got != want {
			t.Errorf("%s: %t", text, got)
		}
	}
}
