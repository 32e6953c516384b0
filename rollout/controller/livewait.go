package controller

import (
	"bytes"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"time"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// liveWaits says, of a paused rollout, for how many nodes a change of spec.live waits,
// and when the next of its certificates expires: what replaces an old authority mostly
// has it in it, too. Of the content nothing else is told. Empty: nothing waits.
func liveWaits(scope *Scope) string {
	hash, err := scope.live().told()
	if err != nil {
		return "" // LiveTooLarge or LiveInvalid says what it waits for
	}
	waiting, nodes := 0, scope.selected()
	for _, node := range nodes {
		if node.Image != nil && node.Image.Spec.LiveHash != hash {
			waiting++
		}
	}
	if waiting == 0 {
		return ""
	}
	text := fmt.Sprintf("a change of spec.live waits for %d of %d nodes", waiting, len(nodes))
	if expiry := expiryOf(certificatesOf(scope.Rollout.Spec.Live), scope.Now); expiry != "" {
		text += ": " + expiry
	}
	return text
}

// liveCertificate is where in spec.live a certificate stands, and until when it is valid.
type liveCertificate struct {
	field string
	until time.Time
}

// expiryOf says which of the certificates expires next, and how many have already: a
// bundle may keep some for ever.
func expiryOf(certificates []liveCertificate, now time.Time) string {
	var next *liveCertificate
	expired := 0
	for i := range certificates {
		switch found := &certificates[i]; {
		case !found.until.After(now):
			expired++
		case next == nil || found.until.Before(next.until):
			next = found
		}
	}
	switch {
	case len(certificates) == 0:
		return ""
	case next == nil:
		return fmt.Sprintf("the certificates in it (%d) have all expired", len(certificates))
	}
	count := fmt.Sprint(len(certificates))
	if expired > 0 {
		count += fmt.Sprintf(", %d expired", expired)
	}
	return fmt.Sprintf("of the certificates in it (%s) the next expires at %s (%s)", count, next.until.UTC().Format(time.RFC3339), next.field)
}

// certificatesOf are those that can be read; keys and whatever else stands beside them
// are passed over.
func certificatesOf(live *v1alpha1.LiveContent) []liveCertificate {
	if live == nil {
		return nil
	}
	found := parseCertificates("spec.live.trustBundle", []byte(live.TrustBundle))
	for _, file := range live.Files {
		found = append(found, parseCertificates(file.Path, file.Content)...)
	}
	return found
}

// parseCertificates reads PEM, else DER.
func parseCertificates(field string, content []byte) []liveCertificate {
	var found []liveCertificate
	add := func(der []byte) {
		if certificate, err := x509.ParseCertificate(der); err == nil {
			found = append(found, liveCertificate{field, certificate.NotAfter})
		}
	}
	if !bytes.Contains(content, []byte("-----BEGIN ")) {
		add(content)
		return found
	}
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		if block.Type == "CERTIFICATE" {
			add(block.Bytes)
		}
	}
	return found
}
