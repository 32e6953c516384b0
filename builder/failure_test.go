package builder

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
)

func TestBuildFailures(t *testing.T) {
	tests := map[string]struct {
		containerfile string
		change        func(*workplace)
		want          request.Failure
		lastLine      string
	}{
		"a RUN that fails": {
			containerfile: "FROM configs AS final\n# a comment\nRUN [\"/bin/tool\", \"write\", \"/a\", \"a\"]\nRUN [\"/bin/tool\", \\\n  \"fail\", \"7\", \"one\", \"two\"]\nLABEL a=b\n",
			want:          request.Failure{Class: request.Containerfile, Step: "user", Line: 4, ExitCode: 7, Message: "exit status 7"},
			lastLine:      "two",
		},
		"a RUN that fails in a text without FROM": {
			containerfile: "\nRUN [\"/bin/tool\", \"fail\", \"3\"]\n",
			want:          request.Failure{Class: request.Containerfile, Step: "user", Line: 2, ExitCode: 3, Message: "exit status 3"},
		},
		"a RUN that cannot reach a repository": {
			containerfile: "RUN [\"/bin/tool\", \"fail\", \"100\", \"E: Temporary failure resolving 'deb.example.com'\"]\n",
			want:          request.Failure{Class: request.Network, Step: "user", Line: 1, ExitCode: 100, Message: "could not reach the network"},
			lastLine:      "Temporary failure",
		},
		"a RUN that fills the disk": {
			containerfile: "RUN [\"/bin/tool\", \"fail\", \"1\", \"write: No space left on device\"]\n",
			want:          request.Failure{Class: request.Resources, Step: "user", Line: 1, ExitCode: 1, Message: "exit status 1"},
		},
		"a COPY of what is not there": {
			containerfile: "FROM configs\n\nCOPY --from=base /none /none\n",
			want:          request.Failure{Class: request.Containerfile, Step: "user", Line: 3, Message: "none"},
		},
		"an image in the text that is not there": {
			containerfile: "FROM HOST/os/none:1 AS a\nFROM configs\nCOPY --from=a /a /a\n",
			change: func(w *workplace) {
				w.request.Containerfile = strings.Replace(w.request.Containerfile, "HOST", w.registry.Host, 1)
			},
			want: request.Failure{Class: request.Image, Step: "user", Line: 1, Message: "os/none"},
		},
		"a text that does not parse": {
			containerfile: "FROM configs\nRUNN true\n",
			want:          request.Failure{Class: request.Containerfile, Step: "inputs", Line: 2, Message: "unknown instruction"},
		},
		"a base that is not there": {
			change: func(w *workplace) {
				w.request.BaseImage = w.registry.Host + "/os/base@sha256:" + inputsHash
			},
			want: request.Failure{Class: request.Image, Step: "base", Message: "os/base"},
		},
		"a base of another architecture": {
			change: func(w *workplace) {
				w.request.Architecture = "arm64"
			},
			want: request.Failure{Class: request.Image, Step: "base", Message: "architecture amd64"},
		},
		"a base that cannot boot": {
			change: func(w *workplace) { w.request.BaseImage = w.request.ExtensionsImage },
			want:   request.Failure{Class: request.Image, Step: "base", Message: "containers.bootc"},
		},
		"credentials that are refused": {
			change: func(w *workplace) { w.registry.AddUser("user", "another") },
			want:   request.Failure{Class: request.Authentication, Step: "base", Message: "os/base"},
		},
		"credentials that are refused to a text": {
			containerfile: "FROM HOST/secret/tools:1 AS a\nFROM configs\nCOPY --from=a /a /a\n",
			change: func(w *workplace) {
				w.request.Containerfile = strings.Replace(w.request.Containerfile, "HOST", w.registry.Host, 1)
				w.registry.Fail(func(r *http.Request) int {
					if strings.Contains(r.URL.Path, "secret/tools") {
						return http.StatusForbidden
					}
					return 0
				})
			},
			want: request.Failure{Class: request.Authentication, Step: "user", Line: 1, Message: "secret/tools"},
		},
		"a push that is refused": {
			change: func(w *workplace) {
				w.registry.Fail(func(r *http.Request) int {
					if r.Method == http.MethodPost {
						return http.StatusForbidden
					}
					return 0
				})
			},
			want: request.Failure{Class: request.Authentication, Step: "configs", Message: "os/worker"},
		},
		"a config that no image can hold": {
			change: func(w *workplace) {
				w.request.Ignition = json.RawMessage(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/run/a","contents":{"source":"data:,"}}]}}`)
			},
			want: request.Failure{Class: request.Config, Step: "inputs", Message: "/run/a"},
		},
		"a config that does not parse": {
			change: func(w *workplace) { w.request.Ignition = json.RawMessage(`{"ignition":{"version":"9.0.0"}}`) },
			want:   request.Failure{Class: request.Config, Step: "inputs", Message: "9.0.0"},
		},
		"extensions where the stream has none": {
			change: func(w *workplace) { w.request.Extensions, w.request.ExtensionsImage = []string{"usbguard"}, "" },
			want:   request.Failure{Class: request.Config, Step: "inputs", Message: "the OS stream has none"},
		},
		"a kernel type that there is not": {
			change: func(w *workplace) { w.request.KernelType = "fast" },
			want:   request.Failure{Class: request.Config, Step: "inputs", Message: `"fast" is none of default`},
		},
		"64k pages on amd64": {
			change: func(w *workplace) { w.request.KernelType = "64k-pages" },
			want:   request.Failure{Class: request.Config, Step: "inputs", Message: "arm64 only"},
		},
		"an image that bootc would not boot": {
			containerfile: "FROM configs\nCOPY --from=base /bin/tool /usr/bin/bootc\nRUN [\"/bin/tool\", \"write\", \"/usr/etc/a\", \"a\"]\n",
			want:          request.Failure{Class: request.Image, Step: "user", Message: "bootc container lint"},
			lastLine:      "Failed lint: etc-usretc",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, test.containerfile)
			if test.change != nil {
				test.change(w)
			}
			result, err := w.build()
			if err == nil || result.Failure == nil {
				t.Fatalf("it was built: %+v", result)
			}
			got := *result.Failure
			if !strings.Contains(got.Message, test.want.Message) {
				t.Errorf("message %q, want one with %q", got.Message, test.want.Message)
			}
			last := strings.Join(got.LastLines, "\n")
			if strings.Count(last, "subprocess exited") > 1 {
				t.Errorf("the end of the program is told more than once: %q", got.LastLines)
			}
			if !strings.Contains(last, test.lastLine) {
				t.Errorf("last lines %q, want %q", last, test.lastLine)
			}
			if isRefused := got.Class == request.Authentication; isRefused && got.Repository != w.registry.Host+"/"+test.want.Message {
				t.Errorf("the repository is %q", got.Repository)
			}
			got.Message, got.LastLines, got.Repository = test.want.Message, nil, ""
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
			if strings.Contains(string(result.Encode()), password) {
				t.Error("the result holds the password")
			}
		})
	}
}

func TestLintPasses(t *testing.T) {
	w := newWorkplace(t, "FROM configs\nCOPY --from=base /bin/tool /usr/bin/bootc\n")
	w.mustBuild()
}
