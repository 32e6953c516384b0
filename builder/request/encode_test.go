package request

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var hex64 = strings.Repeat("0123456789abcdef", 4)

func valid() *Request {
	return &Request{
		Name:            "worker-0123",
		InputsHash:      hex64,
		BaseImage:       "registry.example.com/os/base@sha256:" + hex64,
		ExtensionsImage: "registry.example.com/os/extensions@sha256:" + hex64,
		KernelArguments: []string{"quiet"},
		Ignition:        json.RawMessage(`{"ignition":{"version":"3.4.0"}}`),
		Containerfile:   "FROM configs AS final\n",
		Architecture:    "amd64",
		PushSpec:        "10.89.0.1:5000/os/worker:worker-0123",
	}
}

func TestRequestSurvivesEncoding(t *testing.T) {
	first, err := Encode(valid())
	if err != nil {
		t.Fatal(err)
	}
	second, err := Encode(valid())
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first, second) {
		t.Error("the same request gave other bytes")
	}
	got, err := Decode(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(valid(), got); diff != "" {
		t.Error(diff)
	}
}

func TestPlainJSONIsRead(t *testing.T) {
	raw, err := json.Marshal(valid())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Decode(bytes.NewReader(raw)); err != nil {
		t.Fatal(err)
	}
}

func TestDecodeRefuses(t *testing.T) {
	change := func(edit func(*Request)) []byte {
		r := valid()
		edit(r)
		raw, _ := json.Marshal(r)
		return raw
	}
	tests := map[string]struct {
		raw  []byte
		want string
	}{
		"an empty file":              {nil, "EOF"},
		"a field it does not know":   {[]byte(`{"name":"a","sideEffects":true}`), "unknown field"},
		"a base by tag":              {change(func(r *Request) { r.BaseImage = "registry.example.com/os/base:1" }), "baseImage"},
		"no base":                    {change(func(r *Request) { r.BaseImage = "" }), "baseImage"},
		"a base without a registry":  {change(func(r *Request) { r.BaseImage = "base@sha256:" + hex64 }), "baseImage"},
		"extensions by tag":          {change(func(r *Request) { r.ExtensionsImage = "registry.example.com/e:1" }), "extensionsImage"},
		"an agent by tag":            {change(func(r *Request) { r.AgentImage = "registry.example.com/agent:1" }), "agentImage"},
		"a push by digest":           {change(func(r *Request) { r.PushSpec = "registry.example.com/a@sha256:" + hex64 }), "pushSpec"},
		"no push":                    {change(func(r *Request) { r.PushSpec = "" }), "pushSpec is missing"},
		"a push without a tag":       {change(func(r *Request) { r.PushSpec = "registry.example.com/a" }), "pushSpec"},
		"an unknown architecture":    {change(func(r *Request) { r.Architecture = "x86_64" }), "architecture"},
		"a name that leaves its dir": {change(func(r *Request) { r.Name = "../a" }), "name"},
		"a short hash":               {change(func(r *Request) { r.InputsHash = "abc" }), "inputsHash"},
		"an empty kernel argument":   {change(func(r *Request) { r.KernelArguments = []string{""} }), "kernelArguments"},
		"a decompression bomb":       {bomb(t), "more than"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Decode(bytes.NewReader(test.raw))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want an error with %q", err, test.want)
			}
		})
	}
}

// TestDecodeLocalFillsIn what only a cluster knows, and nothing else.
func TestDecodeLocalFillsIn(t *testing.T) {
	tests := map[string]struct {
		edit     func(*Request)
		isPushed bool
		refused  string
	}{
		"no hash, for a layout":             {func(r *Request) { r.InputsHash = "" }, false, ""},
		"no hash and no tag, for a layout":  {func(r *Request) { r.InputsHash, r.PushSpec = "", "" }, false, ""},
		"no hash, for a look at a registry": {func(r *Request) { r.InputsHash = "" }, true, ""},
		"no tag, for a look at a registry":  {func(r *Request) { r.PushSpec = "" }, true, "pushSpec"},
		"a hash that is none":               {func(r *Request) { r.InputsHash = "abc" }, false, "inputsHash"},
		"a tag that is none":                {func(r *Request) { r.PushSpec = "worker" }, false, "pushSpec"},
		"no base":                           {func(r *Request) { r.BaseImage, r.PushSpec = "", "" }, false, "baseImage"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			want := valid()
			test.edit(want)
			raw, err := json.Marshal(want)
			if err != nil {
				t.Fatal(err)
			}
			got, err := DecodeLocal(bytes.NewReader(raw), test.isPushed)
			if test.refused != "" {
				if err == nil || !strings.Contains(err.Error(), test.refused) {
					t.Errorf("got %v, want an error with %q", err, test.refused)
				}
				return
			}
			if err != nil || !isDigest("sha256:"+got.InputsHash) {
				t.Fatalf("%+v, %v", got, err)
			}
			if _, err := Decode(bytes.NewReader(raw)); err == nil {
				t.Error("a cluster's build takes it, too")
			}
			want.InputsHash = got.InputsHash
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAHashThatIsFilledInIsThatOfTheInputs(t *testing.T) {
	hash := func(edit func(*Request)) string {
		t.Helper()
		r := valid()
		r.InputsHash = ""
		edit(r)
		raw, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		read, err := DecodeLocal(bytes.NewReader(raw), false)
		if err != nil {
			t.Fatal(err)
		}
		return read.InputsHash
	}
	same := hash(func(*Request) {})
	if got := hash(func(r *Request) { r.Name, r.PushSpec = "other", "" }); got != same {
		t.Errorf("another name: %s and %s", got, same)
	}
	for name, edit := range map[string]func(*Request){
		"text":    func(r *Request) { r.Containerfile += "RUN true\n" },
		"config":  func(r *Request) { r.Ignition = json.RawMessage(`{"ignition":{"version":"3.5.0"}}`) },
		"rebuild": func(r *Request) { r.Rebuild = 1 },
	} {
		if got := hash(edit); got == same {
			t.Errorf("another %s has the same hash", name)
		}
	}
}

// TestTheSampleIsRead: it is what the README tells to start from.
func TestTheSampleIsRead(t *testing.T) {
	sample, err := os.Open("../../config/samples/build-request.json")
	if err != nil {
		t.Fatal(err)
	}
	defer sample.Close()
	got, err := DecodeLocal(sample, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Ignition) == 0 || got.Containerfile == "" {
		t.Errorf("it shows no config or no text: %+v", got)
	}
}

func bomb(t *testing.T) []byte {
	t.Helper()
	var buffer bytes.Buffer
	packer := gzip.NewWriter(&buffer)
	zeros := make([]byte, 1<<20)
	for range MaxRequestSize>>20 + 1 {
		if _, err := packer.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := packer.Close(); err != nil {
		t.Fatal(err)
	}
	return buffer.Bytes()
}

func TestResultAlwaysFits(t *testing.T) {
	long := strings.Repeat("ü\"\n", 3000)
	lines := make([]string, 500)
	for i := range lines {
		lines[i] = strings.Repeat("x", i)
	}
	lines[len(lines)-1] = "the last line"
	steps := make([]Step, 400)
	for i := range steps {
		steps[i] = Step{Name: "configs", Key: hex64, Duration: metav1.Duration{Duration: time.Second}}
	}
	tests := map[string]Result{
		"a short success":         {Digest: "sha256:" + hex64, Size: 1, Steps: steps[:2]},
		"a success of many steps": {Digest: "sha256:" + hex64, Steps: steps},
		"a long message":          {Failure: &Failure{Class: Registry, Message: long}},
		"many last lines":         {Failure: &Failure{Class: Containerfile, Message: "short", LastLines: lines}},
		"everything at once":      {Steps: steps, Failure: &Failure{Class: Containerfile, Step: "user", Message: long, LastLines: lines}},
	}
	for name, result := range tests {
		t.Run(name, func(t *testing.T) {
			encoded := result.Encode()
			if len(encoded) > MaxResultSize {
				t.Fatalf("%d bytes", len(encoded))
			}
			got, err := DecodeResult(encoded)
			if err != nil {
				t.Fatal(err)
			}
			if got.Digest != result.Digest {
				t.Errorf("digest %q", got.Digest)
			}
			if result.Failure != nil && got.Failure.Class != result.Failure.Class {
				t.Errorf("class %q", got.Failure.Class)
			}
		})
	}
	t.Run("the last line is the one that stays", func(t *testing.T) {
		got, err := DecodeResult(tests["many last lines"].Encode())
		if err != nil {
			t.Fatal(err)
		}
		last := got.Failure.LastLines
		if len(last) == 0 || last[len(last)-1] != "the last line" || got.Failure.Message != "short" {
			t.Errorf("kept %d lines, message %q", len(last), got.Failure.Message)
		}
	})
}

func TestDecodeResultRefuses(t *testing.T) {
	tests := map[string]string{
		"nothing":                "",
		"the end of a log":       "panic: runtime error\ngoroutine 1\n",
		"JSON of something else": `{"level":"info","msg":"hello"}`,
		"neither":                `{}`,
		"both":                   `{"digest":"sha256:` + hex64 + `","failure":{"class":"Image","message":"m"}}`,
		"text behind it":         `{"digest":"sha256:` + hex64 + `"} and so on`,
		"a digest that is none":  `{"digest":"latest"}`,
		"too much":               strings.Repeat(" ", MaxResultSize+1),
	}
	for name, message := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := DecodeResult([]byte(message)); err == nil {
				t.Errorf("accepted as %+v", got)
			}
		})
	}
}
