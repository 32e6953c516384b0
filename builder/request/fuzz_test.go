package request

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// FuzzDecode: what is read back as a request can be written, and is the same.
func FuzzDecode(f *testing.F) {
	digest := "registry.example.com/os/base@sha256:" + strings.Repeat("a", 64)
	encoded, err := Encode(&Request{
		Name: "worker-1", InputsHash: strings.Repeat("0", 64), BaseImage: digest, Architecture: "amd64",
		PushSpec: "registry.example.com/os/worker:worker-1", Ignition: json.RawMessage(`{"ignition":{"version":"3.4.0"}}`),
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(encoded)
	f.Add([]byte(`{"name":"a"}`))
	f.Add([]byte("\x1f\x8b"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		first, err := Decode(bytes.NewReader(raw))
		if err != nil {
			return
		}
		written, err := Encode(first)
		if err != nil {
			t.Fatalf("it was read and cannot be written: %v", err)
		}
		second, err := Decode(bytes.NewReader(written))
		if err != nil {
			t.Fatalf("it was written and cannot be read: %v", err)
		}
		if again, err := Encode(second); err != nil || !bytes.Equal(written, again) {
			t.Fatalf("it changes when it is read and written again: %v", err)
		}
	})
}

// FuzzDecodeResult: whatever a pod leaves behind is refused or is a result
// that fits into a termination message.
func FuzzDecodeResult(f *testing.F) {
	f.Add([]byte(`{"digest":"sha256:` + strings.Repeat("a", 64) + `","steps":[{"name":"base","duration":"1s"}]}`))
	f.Add([]byte(`{"failure":{"class":"Network","message":"a","lastLines":["b"]}}`))
	f.Add([]byte("panic: runtime error"))
	f.Fuzz(func(t *testing.T, message []byte) {
		result, err := DecodeResult(message)
		if err != nil {
			return
		}
		encoded := result.Encode()
		if len(encoded) > MaxResultSize {
			t.Fatalf("%d bytes", len(encoded))
		}
		again, err := DecodeResult(encoded)
		if err != nil {
			t.Fatalf("it was written and cannot be read: %v", err)
		}
		if again.Digest != result.Digest {
			t.Fatal(cmp.Diff(result, again))
		}
	})
}
