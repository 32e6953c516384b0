// Package request is the contract between the controller that asks for an
// image and the builder that makes it: the request, handed over as one JSON
// file, and the result, handed back as the pod's termination message.
package request

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Request is everything that one build needs, except credentials and
// certificates, which are files of their own beside it (see Files).
type Request struct {
	// Name is the MachineOSBuild's name; the image is pushed under it as a tag.
	Name string `json:"name"`
	// InputsHash is the image inputs hash, 64 hex; it becomes the image's
	// revision label and the tag inputs-<hash>. For an image that no cluster takes
	// it may be left out, see DecodeLocal.
	InputsHash string `json:"inputsHash"`
	// BaseImage is the OS image to build on, by digest.
	BaseImage string `json:"baseImage"`
	// ExtensionsImage holds packages as a repository, by digest. In the user's
	// Containerfile it is the build context "extensions", for
	// RUN --mount=type=bind,from=extensions,target=…; it is pulled only if
	// something refers to it. Empty: there is none, or nothing uses it.
	ExtensionsImage string `json:"extensionsImage,omitempty"`
	// Extensions are the package sets asked for in the rendered MachineConfig.
	Extensions []string `json:"extensions,omitempty"`
	// KernelType is canonical: "default" is written as "".
	KernelType string `json:"kernelType,omitempty"`
	// KernelArguments are appended to the host's command line.
	KernelArguments []string `json:"kernelArguments,omitempty"`
	// Ignition is the Ignition config of the rendered MachineConfig, any spec 3.x.
	Ignition json.RawMessage `json:"ignition,omitempty"`
	// Containerfile is the user's text for Architecture; empty: none.
	Containerfile string `json:"containerfile,omitempty"`
	// AgentImage holds imagemode-agent as a service of the host, by digest: its
	// layers go on top of everything. Empty: the image has no agent of its own.
	AgentImage string `json:"agentImage,omitempty"`
	// Architecture is Go's name for it: amd64, arm64, ppc64le, s390x.
	Architecture string `json:"architecture"`
	// PushSpec is the tag to push to: host[:port]/repository:<Name>.
	PushSpec string `json:"pushSpec"`
	// Rebuild is the number of rebuilds the user asked for. Where a step runs a
	// RUN it enters the step's key and bypasses every cache.
	Rebuild int `json:"rebuild,omitempty"`
}

// Files of a build pod. All are below one directory, /run/imagemode/build by
// default, so that the same builder runs on a workstation. All but the request
// may be missing.
//
// Two things come another way: a proxy, for registries and for every RUN, by the
// builder's environment (HTTP_PROXY, HTTPS_PROXY, NO_PROXY); and what a node
// knows of registries (mirrors, signature policy with its keys, lookaside
// configuration, certs.d) by the Ignition config of the request, as it reaches
// the node.
const (
	// FileRequest is the Request: JSON, gzip.
	FileRequest = "request.json.gz"
	// FilePullAuth and FilePushAuth are credentials in docker config.json format.
	FilePullAuth = "pull/config.json"
	FilePushAuth = "push/config.json"
	// FileTrustBundle is a PEM bundle added to the system's certificates for
	// registries, and to the image's own while a RUN runs.
	FileTrustBundle = "trust/ca-bundle.crt"
	// DirEntitlement, DirYumRepos and DirGPGKeys are directories of which every
	// RUN sees a copy, at /etc/pki/entitlement, /etc/yum.repos.d and
	// /etc/pki/rpm-gpg; nothing of them is left in the image. Their files may be
	// links, as in a mounted Secret.
	DirEntitlement = "entitlement"
	DirYumRepos    = "yum.repos.d"
	DirGPGKeys     = "rpm-gpg"
)

// FailureClass says who can mend a failed build.
type FailureClass string

// The failure classes. They are the reason of a MachineOSBuild's Failed condition.
const (
	// Containerfile: the user's text does not parse, or a RUN in it failed.
	Containerfile FailureClass = "Containerfile"
	// Image: an image is missing, of the wrong architecture, or not bootable.
	Image FailureClass = "Image"
	// Registry: a registry answered with an error of its own.
	Registry FailureClass = "Registry"
	// Authentication: a registry refused the credentials.
	Authentication FailureClass = "Authentication"
	// Network: a registry or repository could not be reached.
	Network FailureClass = "Network"
	// Resources: disk, memory, or an eviction.
	Resources FailureClass = "Resources"
	// Config: the MachineConfig asks for something an image cannot hold.
	Config FailureClass = "Config"
	// Internal: a fault of imagemode.
	Internal FailureClass = "Internal"
)

// MaxResultSize is the size in bytes at which the kubelet cuts a termination
// message off; an encoded Result never exceeds it.
const MaxResultSize = 4096

// Result is what a builder reports. Exactly one of Digest and Failure is set.
type Result struct {
	// Digest of the pushed manifest, sha256:<64 hex>.
	Digest string `json:"digest,omitempty"`
	// Size is the sum of the image's compressed layers in bytes.
	Size int64 `json:"size,omitempty"`
	// Steps in the order they ran. A build that found its image already there has
	// one step, StepInputs.
	Steps []Step `json:"steps,omitempty"`
	// LayerTags are the tags of the push repository under which single layers of
	// user steps were kept or found: layer-<32 hex>. See Tags.
	LayerTags []string `json:"layerTags,omitempty"`
	// Skeleton is the key, 64 hex, of the names of an image's files, which were
	// kept or found because the config needs to know them; empty: it does not.
	// They are in the push repository under StepTag(Skeleton).
	Skeleton string `json:"skeleton,omitempty"`
	// Agent is the key, 64 hex, under which the checked copy of the agent's image
	// was kept or found, as StepTag(Agent); empty: there is none in the image, or
	// the step was not run.
	Agent string `json:"agent,omitempty"`
	// Failure says what went wrong.
	Failure *Failure `json:"failure,omitempty"`
}

// Step is one step of a build.
type Step struct {
	Name string `json:"name"`
	// Key addresses the step by its content, 64 hex; empty where the step makes
	// no image. The image is in the push repository under StepTag(Key).
	Key string `json:"key,omitempty"`
	// Duration of the step.
	Duration metav1.Duration `json:"duration"`
	// Reused is true when the result of an earlier build was taken.
	Reused bool `json:"reused,omitempty"`
}

// Failure is the reason why there is no image.
type Failure struct {
	Class FailureClass `json:"class"`
	// Step is the name of the step that failed.
	Step string `json:"step,omitempty"`
	// Message is one or two sentences for the user.
	Message string `json:"message"`
	// Line is the line of the user's Containerfile, from 1; 0: not known.
	Line int `json:"line,omitempty"`
	// ExitCode of a failed RUN.
	ExitCode int `json:"exitCode,omitempty"`
	// LastLines of the step's output.
	LastLines []string `json:"lastLines,omitempty"`
	// Repository, host[:port]/path, that the registry refused or did not give, for
	// the classes that are about one; empty: not known.
	Repository string `json:"repository,omitempty"`
}

// ExitFinal is the exit status of a builder after a failure that IsFinal. A Job
// can go by it.
const ExitFinal = 3

// IsFinal reports whether another attempt with the same request, credentials and
// certificates fails in the same way. What may pass by itself is not final, and a
// program in a RUN may find tomorrow what it does not find today.
func (f *Failure) IsFinal() bool { return f.Class == Authentication || f.Class == Config }

// WantsPackages reports whether a request asks for anything that is installed
// from the extensions image before the user's text runs.
func (r *Request) WantsPackages() bool { return len(r.Extensions) > 0 || r.KernelType != "" }
