package containerfiles

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestCheckAccepts(t *testing.T) {
	const given = "FROM configs AS final\n"
	tests := map[string]struct {
		text string
		want Plan
	}{
		"no text asks for nothing": {
			text: "",
			want: Plan{From: FromNone, Empty: true, UsesConfigs: true},
		},
		"comments alone ask for nothing": {
			text: "# nothing yet\n\n",
			want: Plan{From: FromNone, Empty: true, UsesConfigs: true},
		},
		"a lone FROM configs asks for nothing": {
			text: "FROM configs AS final\n",
			want: Plan{From: FromConfigs, Empty: true, UsesConfigs: true},
		},
		"a lone FROM base asks for nothing": {
			text: "FROM base\n",
			want: Plan{From: FromBase, UsesBase: true, Empty: true},
		},
		"a text without FROM continues configs": {
			text: "RUN true\n",
			want: Plan{From: FromNone, UsesConfigs: true, HasRun: true, Text: given + "RUN true\n"},
		},
		"a FROM is put in below a parser directive": {
			text: "# escape=`\n\nRUN a `\n  b\n",
			want: Plan{From: FromNone, UsesConfigs: true, HasRun: true, Text: "# escape=`\n\n" + given + "RUN a `\n  b\n"},
		},
		"a final stage on configs": {
			text: "FROM configs AS final\nRUN true\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, HasRun: true},
		},
		"a final stage on base needs no configs": {
			text: "FROM base AS final\nRUN true\n",
			want: Plan{From: FromBase, UsesBase: true, HasRun: true},
		},
		"a final stage that descends from base through another stage": {
			text: "FROM base AS tools\nRUN true\nFROM tools AS final\nLABEL a=b\n",
			want: Plan{From: FromBase, UsesBase: true, HasRun: true},
		},
		"another image is a source of files": {
			text: "FROM registry.example.com/golang:1 AS build\nRUN true\nFROM configs\nCOPY --from=build /a /a\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, HasRun: true},
		},
		"extensions bound into a RUN": {
			text: "FROM configs\nRUN --mount=type=bind,from=extensions,target=/run/extensions,z true\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, UsesExtensions: true, HasRun: true},
		},
		"extensions copied from": {
			text: "FROM configs\nCOPY --from=extensions /a /a\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, UsesExtensions: true},
		},
		"heredocs": {
			text: "FROM configs\nCOPY <<EOF /etc/a\nhello\nEOF\nRUN <<EOF\ntrue\nEOF\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, HasRun: true},
		},
		"a FROM by an argument with a default": {
			text: "ARG B=configs\nFROM ${B} AS final\nRUN true\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, HasRun: true, Text: "ARG B=configs\nFROM configs AS final\nRUN true\n"},
		},
		"a FROM by an argument that is made from another": {
			text: "ARG R=registry.example.com\nARG I=$R/tools\nFROM $I:1 AS tools\nFROM ${B:-base}\nCOPY --from=tools /a /a\n",
			want: Plan{From: FromBase, UsesBase: true, Text: "ARG R=registry.example.com\nARG I=$R/tools\nFROM registry.example.com/tools:1 AS tools\nFROM base\nCOPY --from=tools /a /a\n"},
		},
		"a stage for the platform of the build is left to buildah": {
			text: "FROM registry.example.com/tools:$TARGETARCH AS tools\nFROM base\nCOPY --from=tools /a /a\n",
			want: Plan{From: FromBase, UsesBase: true, UsesExtensions: true},
		},
		"an argument in front of FROM": {
			text: "ARG V=1\nFROM configs\nARG V\nRUN echo $V\n",
			want: Plan{From: FromConfigs, UsesConfigs: true, HasRun: true},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Check(test.text)
			if err != nil {
				t.Fatal(err)
			}
			if test.want.Text == "" && !isBlank(test.text) {
				test.want.Text = test.text
			}
			if diff := cmp.Diff(&test.want, got, cmpopts.IgnoreUnexported(Plan{})); diff != "" {
				t.Error(diff)
			}
			if got := UsesExtensions(test.text); got != test.want.UsesExtensions {
				t.Errorf("UsesExtensions = %v", got)
			}
		})
	}
}

func TestCheckRefuses(t *testing.T) {
	tests := map[string]struct {
		text    string
		line    int
		message string
	}{
		"an unknown instruction":                    {"FROM configs\nRUNN true\n", 2, "unknown instruction RUNN"},
		"an unknown instruction without a FROM":     {"# a\nRUN true\nINSTALL vim\n", 3, "unknown instruction INSTALL"},
		"a RUN without a command":                   {"FROM configs\nRUN\n", 2, "RUN needs a command"},
		"an unterminated heredoc":                   {"FROM configs\nRUN <<EOF\ntrue\n", 2, "unterminated heredoc"},
		"an ENV of one word":                        {"FROM configs\n\nENV A\n", 3, "ENV must have two arguments"},
		"a stage named like a context":              {"FROM configs\nFROM base AS extensions\n", 2, "cannot be named extensions"},
		"a stage named like a context, in capitals": {"FROM base AS Configs\n", 1, "cannot be named configs"},
		"a final stage from elsewhere":              {"FROM configs AS a\nRUN true\nFROM alpine\nRUN true\n", 3, "comes from alpine"},
		"a final stage from an argument":            {"ARG B\nFROM $B\n", 2, "only known when it is built"},
		"a stage from an empty argument":            {"ARG B=\nFROM $B AS a\nFROM base\n", 2, "is empty"},
		"a final stage from extensions":             {"FROM extensions\nRUN true\n", 1, "comes from extensions"},
		"a COPY of files that are not there":        {"FROM configs\nCOPY a /a\n", 2, "no build context to copy a"},
		"an ADD of files that are not there":        {"FROM configs\nADD a.tar /a\n", 2, "no build context to add a.tar"},
		"a mount from a variable":                   {"FROM configs\nRUN --mount=type=bind,from=${A},target=/a true\n", 2, "variable expansion"},
		"a NUL byte":                                {"FROM configs\nRUN \x00\n", 2, "NUL"},
		"more than the API allows":                  {"RUN " + strings.Repeat("a", MaxSize), 0, "more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Check(test.text)
			var found *Error
			if !errors.As(err, &found) {
				t.Fatalf("got %v, want an *Error", err)
			}
			if found.Line != test.line || !strings.Contains(found.Message, test.message) {
				t.Errorf("got line %d %q, want line %d %q", found.Line, found.Message, test.line, test.message)
			}
		})
	}
}

// TestOddBytes: whatever 4096 bytes a user writes, there is a plan or an error with
// a text.
func TestOddBytes(t *testing.T) {
	source := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		odd := make([]byte, MaxSize)
		for i := range odd {
			// Every other text is near to what means something.
			odd[i] = byte(source.Uint32())
			if odd[0]%2 == 0 {
				odd[i] = "FROM base\nRUN <<EOF $\\\"'[]{}--mount=type=bind,from="[source.IntN(48)]
			}
		}
		_, err := Check(string(odd))
		var found *Error
		if err != nil && (!errors.As(err, &found) || found.Message == "") {
			t.Fatalf("%T: %v", err, err)
		}
	}
}

func FuzzCheck(f *testing.F) {
	f.Add("FROM configs AS final\nRUN true\n")
	f.Add("# escape=`\nRUN <<A\nA\n")
	f.Fuzz(func(t *testing.T, text string) {
		plan, err := Check(text)
		var found *Error
		if err != nil && !errors.As(err, &found) {
			t.Fatalf("%T is not an *Error", err)
		}
		if err == nil && plan.From == "" {
			t.Fatal("a plan without From")
		}
	})
}
