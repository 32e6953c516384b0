package bootc_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/rollout/bootc"
)

var (
	digestA = "sha256:" + strings.Repeat("a", 64)
	digestB = "sha256:" + strings.Repeat("b", 64)
)

func entry(reference, digest, more string) string {
	return `{"image":{"image":{"image":"` + reference + `","transport":"registry"` + more + `},"version":null,"timestamp":null,"imageDigest":"` + digest + `","architecture":"amd64"},"cachedUpdate":null,"incompatible":false,"pinned":false,"downloadOnly":true,"store":"ostreeContainer","ostree":{"stateroot":"default","checksum":"0","deploySerial":0},"futureField":[1]}`
}

func document(staged, booted string) string {
	return `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","metadata":{"name":"host"},"spec":{"image":null,"bootOrder":"default"},"status":{"staged":` + staged + `,"booted":` + booted + `,"rollback":null,"rollbackQueued":false,"type":"bootcHost","usrOverlay":null}}`
}

func TestParseStatusOfAnyBootc(t *testing.T) {
	image, err := bootc.ParseReference("registry.example:5000/os@" + digestA)
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		raw       string
		isManaged bool
		runs      bool
		hasStaged bool
		signature bootc.Signature
	}{
		"a host that runs the image":                          {raw: document("null", entry("registry.example:5000/os@"+digestA, digestA, "")), isManaged: true, runs: true},
		"a host that follows a tag, by the manifest's digest": {raw: document("null", entry("registry.example:5000/os:latest", digestA, "")), isManaged: true, runs: true},
		"a host pinned to an index, by the digest in the reference": {
			raw: document("null", entry("registry.example:5000/os@"+digestA, digestB, "")), isManaged: true, runs: true,
		},
		"a host with the image staged": {
			raw: document(entry("registry.example:5000/os@"+digestA, digestA, ""), entry("registry.example:5000/os@"+digestB, digestB, "")), isManaged: true, hasStaged: true,
		},
		"a signature that is a string": {
			raw: document("null", entry("os@"+digestB, digestB, `,"signature":"containerPolicy"`)), isManaged: true, signature: bootc.Signature{Policy: "containerPolicy"},
		},
		"a signature that is an object": {
			raw: document("null", entry("os@"+digestB, digestB, `,"signature":{"ostreeRemote":"fedora"}`)), isManaged: true, signature: bootc.Signature{Policy: "ostreeRemote", Remote: "fedora"},
		},
		"a signature of a kind not known yet": {raw: document("null", entry("os@"+digestB, digestB, `,"signature":{"sigstore":{"key":"x"}}`)), isManaged: true},
		"a host that was not made from an image": {
			raw: document("null", `{"image":null,"cachedUpdate":null,"incompatible":false,"pinned":false,"ostree":null}`),
		},
		"a container, where everything is null": {raw: `{"apiVersion":"org.containers.bootc/v1","kind":"BootcHost","status":{"staged":null,"booted":null,"rollback":null,"type":null}}`},
		"the API's earlier version, with a field that went": {
			raw: `{"apiVersion":"org.containers.bootc/v1alpha1","kind":"BootcHost","isContainer":false,"status":{"booted":` + entry("os@"+digestA, digestA, "") + `}}`, isManaged: true, runs: true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			host, err := bootc.ParseStatus([]byte(test.raw))
			if err != nil {
				t.Fatal(err)
			}
			got := []bool{host.IsManaged(), host.Runs(image), host.HasStaged(image)}
			if diff := cmp.Diff([]bool{test.isManaged, test.runs, test.hasStaged}, got); diff != "" {
				t.Errorf("managed, runs, staged (-want +got):\n%s", diff)
			}
			if host.IsManaged() {
				if diff := cmp.Diff(test.signature, host.Status.Booted.Image.Image.Signature); diff != "" {
					t.Errorf("signature (-want +got):\n%s", diff)
				}
			}
		})
	}
}

func TestParseStatusRefuses(t *testing.T) {
	tests := map[string]struct{ raw, want string }{
		"an empty output":       {"", "did not print JSON"},
		"YAML":                  {"apiVersion: org.containers.bootc/v1", "did not print JSON"},
		"another kind":          {`{"apiVersion":"org.containers.bootc/v1","kind":"BootcImage"}`, `kind "BootcImage"`},
		"another group":         {`{"apiVersion":"v1","kind":"BootcHost"}`, `apiVersion "v1"`},
		"more than is sensible": {strings.Repeat(" ", 1<<20+1), "printed 1048577 bytes"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := bootc.ParseStatus([]byte(test.raw))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one that says %q", err, test.want)
			}
		})
	}
}
