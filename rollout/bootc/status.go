package bootc

import (
	"encoding/json"
	"fmt"
	"strings"
)

// maxStatusBytes bounds what is parsed of a status: a real one has some 3 KiB.
const maxStatusBytes = 1 << 20

// apiGroup is the group in the apiVersion of a status; its version was
// v1alpha1 before it became v1, with the fields used here unchanged.
const apiGroup = "org.containers.bootc/"

// Host is what `bootc status --json --format-version=1` prints. Fields that
// nothing here uses are left out, unknown ones are ignored: any bootc from 1.1
// on can be read.
type Host struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Status     HostStatus `json:"status"`
}

// HostStatus holds the deployments of a host; each is nil where there is none.
type HostStatus struct {
	Staged   *BootEntry `json:"staged"`
	Booted   *BootEntry `json:"booted"`
	Rollback *BootEntry `json:"rollback"`
	// RollbackQueued is true while the next boot goes to Rollback.
	RollbackQueued bool `json:"rollbackQueued"`
	// Type is "bootcHost", or empty where the booted system is no container image.
	Type string `json:"type"`
}

// BootEntry is one deployment.
type BootEntry struct {
	// Image is nil for a deployment that was not made from a container image.
	Image *ImageStatus `json:"image"`
	// Incompatible is true when packages were layered on the host by hand;
	// bootc then refuses to update it.
	Incompatible bool `json:"incompatible"`
	Pinned       bool `json:"pinned"`
	// SoftRebootCapable exists since bootc 1.7.
	SoftRebootCapable bool `json:"softRebootCapable"`
	// DownloadOnly is true for a staged deployment that the next reboot drops
	// in place of applying it. Exists since bootc 1.12.
	DownloadOnly bool `json:"downloadOnly"`
}

// ImageStatus is the image of a deployment.
type ImageStatus struct {
	Image ImageReference `json:"image"`
	// ImageDigest is the digest of the manifest for the host's architecture,
	// sha256:<64 hex>, even where the reference names an index.
	ImageDigest string `json:"imageDigest"`
	// Architecture exists since bootc 1.2.
	Architecture string `json:"architecture"`
	Version      string `json:"version"`
	Timestamp    string `json:"timestamp"`
}

// ImageReference is the reference that a deployment follows.
type ImageReference struct {
	Image     string    `json:"image"`
	Transport string    `json:"transport"`
	Signature Signature `json:"signature"`
}

// Signature is how an image's signature is checked: Policy is
// "containerPolicy" or "insecure", or "ostreeRemote" with the remote's name.
type Signature struct {
	Policy string
	Remote string
}

// UnmarshalJSON reads the two forms that bootc prints: a string, or an object
// with the one key ostreeRemote. An unknown form leaves the policy empty, so
// that a later bootc's addition does not make a status unreadable.
func (s *Signature) UnmarshalJSON(raw []byte) error {
	if err := json.Unmarshal(raw, &s.Policy); err == nil {
		return nil
	}
	var remote struct {
		Name string `json:"ostreeRemote"`
	}
	if err := json.Unmarshal(raw, &remote); err == nil && remote.Name != "" {
		*s = Signature{Policy: "ostreeRemote", Remote: remote.Name}
	}
	return nil
}

// ParseStatus reads the output of StatusArguments. It fails for output that is
// no bootc status, not for fields that it does not know.
func ParseStatus(raw []byte) (Host, error) {
	if len(raw) > maxStatusBytes {
		return Host{}, fmt.Errorf("bootc status printed %d bytes, more than the %d that are read", len(raw), maxStatusBytes)
	}
	var host Host
	if err := json.Unmarshal(raw, &host); err != nil {
		return Host{}, fmt.Errorf("bootc status did not print JSON: %w", err)
	}
	if !strings.HasPrefix(host.APIVersion, apiGroup) || host.Kind != "BootcHost" {
		return Host{}, fmt.Errorf("bootc status printed apiVersion %q, kind %q, want %sv1, BootcHost", host.APIVersion, host.Kind, apiGroup)
	}
	return host, nil
}

// IsManaged says whether bootc can update the host: it was booted from a
// container image. (In a container bootc prints a status with nothing in it
// and succeeds, so that absence is the only sign.)
func (h Host) IsManaged() bool {
	return h.Status.Booted != nil && h.Status.Booted.Image != nil
}

// Runs says whether the host is booted into the image.
func (h Host) Runs(image Reference) bool {
	return h.Status.Booted.Is(image)
}

// HasStaged says whether the image is staged, locked or not.
func (h Host) HasStaged(image Reference) bool {
	return h.Status.Staged.Is(image)
}

// Is says whether the deployment holds the image. An image reference may be
// pinned to an index: ImageDigest is then the manifest's, and the index's
// digest stands in the reference only, so that either may match.
func (e *BootEntry) Is(image Reference) bool {
	if e == nil || e.Image == nil {
		return false
	}
	return e.Image.ImageDigest == image.Digest() || strings.HasSuffix(e.Image.Image.Image, "@"+image.Digest())
}
