package v1alpha1

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
)

// LiveContent is what running nodes take over without a reboot. It is not in the
// image, and everybody who may read ImageRollouts can read it: no secrets. All
// of it together may take 256 KiB.
type LiveContent struct {
	// sshAuthorizedKeys are the keys with which users may log in. Other keys in
	// their ~/.ssh/authorized_keys stay.
	//
	// +optional
	// +listType=map
	// +listMapKey=user
	// +kubebuilder:validation:MaxItems=64
	SSHAuthorizedKeys []AuthorizedKeys `json:"sshAuthorizedKeys,omitempty"`

	// files are certificates and the like.
	//
	// +optional
	// +listType=map
	// +listMapKey=path
	// +kubebuilder:validation:MaxItems=256
	Files []LiveFile `json:"files,omitempty"`

	// trustBundle are certificates, in PEM, of authorities that the node trusts
	// beside its own.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	TrustBundle string `json:"trustBundle,omitempty"`
}

// AuthorizedKeys are the keys of one user.
type AuthorizedKeys struct {
	// user that exists on the node.
	//
	// +required
	// +kubebuilder:validation:MaxLength=32
	// +kubebuilder:validation:Pattern=`^[a-z_][a-z0-9_-]*$`
	User string `json:"user"`
	// keys as lines of an authorized_keys file.
	//
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=16384
	Keys []string `json:"keys,omitempty"`
}

// LiveFile is one file.
type LiveFile struct {
	// path below /etc/containers/certs.d, /etc/docker/certs.d,
	// /etc/pki/ca-trust/source/anchors or /usr/local/share/ca-certificates.
	//
	// +required
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^(/etc/containers/certs\.d|/etc/docker/certs\.d|/etc/pki/ca-trust/source/anchors|/usr/local/share/ca-certificates)(/[A-Za-z0-9_:@%+,=-][A-Za-z0-9._:@%+,=-]*)+$`
	Path string `json:"path"`
	// content of the file, in base64.
	//
	// +optional
	// +kubebuilder:validation:MaxLength=262144
	Content []byte `json:"content,omitempty"`
	// mode of the file. Default 0644.
	//
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=511
	Mode *int32 `json:"mode,omitempty"`
}

// MaxLiveBytes is how much all live content may take, as JSON.
const MaxLiveBytes = 256 << 10

// Hash is the SHA-256, in hex, by which NodeImages name the content; empty for
// none. Content that is too large is an error.
func (l *LiveContent) Hash() (string, error) {
	if l == nil {
		return "", nil
	}
	content, err := json.Marshal(l)
	if err != nil {
		return "", err
	}
	if len(content) > MaxLiveBytes {
		return "", fmt.Errorf("it takes %d bytes, %d at most", len(content), MaxLiveBytes)
	}
	sum := sha256.Sum256(content)
	return hex.EncodeToString(sum[:]), nil
}
