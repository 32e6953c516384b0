package host

import "time"

// The types of this file are the JSON of `bootc status --format-version=1`, as
// bootc documents it in host-v1.schema.json.

// Status is the whole document.
type Status struct {
	APIVersion string     `json:"apiVersion"`
	Kind       string     `json:"kind"`
	Metadata   Metadata   `json:"metadata"`
	Spec       HostSpec   `json:"spec"`
	Status     HostStatus `json:"status"`
}

// Metadata is there because the document looks like a Kubernetes object.
type Metadata struct {
	Name string `json:"name"`
}

// HostSpec is what the host shall run next.
type HostSpec struct {
	Image     *ImageReference `json:"image"`
	BootOrder string          `json:"bootOrder"`
}

// HostStatus is what the host has.
type HostStatus struct {
	Staged           *BootEntry  `json:"staged"`
	Booted           *BootEntry  `json:"booted"`
	Rollback         *BootEntry  `json:"rollback"`
	OtherDeployments []BootEntry `json:"otherDeployments,omitempty"`
	RollbackQueued   bool        `json:"rollbackQueued"`
	// Type is bootcHost, or null in a container.
	Type *string `json:"type"`
}

// BootEntry is one deployment.
type BootEntry struct {
	Image             *ImageStatus `json:"image"`
	CachedUpdate      *ImageStatus `json:"cachedUpdate"`
	Incompatible      bool         `json:"incompatible"`
	Pinned            bool         `json:"pinned"`
	SoftRebootCapable bool         `json:"softRebootCapable"`
	DownloadOnly      bool         `json:"downloadOnly"`
	Store             string       `json:"store"`
	Ostree            *OstreeEntry `json:"ostree"`
}

// ImageStatus is a resolved image.
type ImageStatus struct {
	Image        ImageReference `json:"image"`
	Version      *string        `json:"version"`
	Timestamp    *time.Time     `json:"timestamp"`
	ImageDigest  string         `json:"imageDigest"`
	Architecture string         `json:"architecture"`
}

// ImageReference is what the host follows.
type ImageReference struct {
	Image     string `json:"image"`
	Transport string `json:"transport"`
}

// OstreeEntry names the deployment in the backend.
type OstreeEntry struct {
	Stateroot    string `json:"stateroot"`
	Checksum     string `json:"checksum"`
	DeploySerial int    `json:"deploySerial"`
}

// ContainerStatus is the answer in a container: well-formed, and all null.
func ContainerStatus() Status {
	return Status{
		APIVersion: "org.containers.bootc/v1",
		Kind:       "BootcHost",
		Metadata:   Metadata{Name: "host"},
		Spec:       HostSpec{BootOrder: "default"},
	}
}

// Status describes the host. It holds the sysroot's lock while it reads, and so
// waits for a pull that is under way, as bootc does.
func (h *Host) Status() (Status, error) {
	unlock, err := h.lock()
	if err != nil {
		return Status{}, err
	}
	defer unlock()
	state, err := h.load()
	if err != nil {
		return Status{}, err
	}
	status := state.status()
	return status, h.distort(&status)
}

func (s state) status() Status {
	status := ContainerStatus()
	kind := "bootcHost"
	status.Status.Type = &kind
	status.Status.Booted = s.booted.entry(false)
	if s.staged != nil {
		status.Status.Staged = s.staged.entry(s.stagedLocked)
	}
	if s.rollback != nil {
		status.Status.Rollback = s.rollback.entry(false)
	}
	if following := s.following(); following != nil {
		status.Spec.Image = &ImageReference{Image: following.Image, Transport: following.Transport}
	}
	if s.rollbackQueued() {
		status.Status.RollbackQueued = true
		status.Spec.BootOrder = "rollback"
	}
	return status
}

// entry is nil for no deployment.
func (d *Deployment) entry(locked bool) *BootEntry {
	if d == nil {
		return nil
	}
	image := &ImageStatus{
		Image:        ImageReference{Image: d.Image, Transport: d.Transport},
		Timestamp:    d.Timestamp,
		ImageDigest:  d.Digest,
		Architecture: d.Architecture,
	}
	if d.Version != "" {
		image.Version = &d.Version
	}
	return &BootEntry{
		Image:        image,
		DownloadOnly: locked,
		Store:        "ostreeContainer",
		Ostree:       &OstreeEntry{Stateroot: "default", Checksum: d.checksum(), DeploySerial: d.Serial},
	}
}
