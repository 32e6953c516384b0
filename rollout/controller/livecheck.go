package controller

import (
	"bytes"
	"crypto/x509"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"path"
	"strings"

	"golang.org/x/crypto/ssh"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// registryFolders are where registries' certificates are read from: their readers take
// what ends with .crt for authorities in PEM, and pass over one that is not in silence.
var registryFolders = []string{"/etc/containers/certs.d/", "/etc/docker/certs.d/"}

// checkedLive is spec.live after a look at it: it is the same for all nodes of a pass.
type checkedLive struct {
	of   *v1alpha1.LiveContent
	hash string
	// tooLarge and invalid say why no node is told of it.
	tooLarge, invalid error
}

// live looks at spec.live once.
func (s *Scope) live() checkedLive {
	if content := s.Rollout.Spec.Live; s.checked == nil || s.checked.of != content {
		hash, err := content.Hash()
		checked := checkedLive{of: content, hash: hash, tooLarge: err}
		if err == nil {
			checked.invalid = checkLive(content)
		}
		s.checked = &checked
	}
	return *s.checked
}

// told is the hash by which nodes are told of the content; an error when none is.
func (c checkedLive) told() (string, error) {
	if c.tooLarge != nil || c.invalid != nil {
		return "", errors.Join(c.tooLarge, c.invalid)
	}
	return c.hash, nil
}

// checkLive names what of the content no host could use, by its field: what is on a
// node is found out only when somebody cannot log in, or a registry is not trusted.
func checkLive(live *v1alpha1.LiveContent) error {
	if live == nil {
		return nil
	}
	var problems []string
	if err := checkBundle([]byte(live.TrustBundle)); err != nil && strings.TrimSpace(live.TrustBundle) != "" {
		problems = append(problems, "spec.live.trustBundle "+err.Error())
	}
	for i, entry := range live.SSHAuthorizedKeys {
		for j, key := range entry.Keys {
			if err := checkKey(key); err != nil {
				problems = append(problems, fmt.Sprintf("spec.live.sshAuthorizedKeys[%d].keys[%d] (user %s) %v", i, j, entry.User, err))
			}
		}
	}
	for i, file := range live.Files {
		if !isAuthorityOfRegistry(file.Path) {
			continue
		}
		if err := checkBundle(file.Content); err != nil {
			problems = append(problems, fmt.Sprintf("spec.live.files[%d] (%s) %v", i, file.Path, err))
		}
	}
	if len(problems) == 0 {
		return nil
	}
	return errors.New(list(problems))
}

func isAuthorityOfRegistry(name string) bool {
	for _, folder := range registryFolders {
		if strings.HasPrefix(name, folder) && path.Ext(name) == ".crt" {
			return true
		}
	}
	return false
}

// checkBundle wants certificates in PEM, each of which is one. Text between them is
// usual, and so are blocks of other types.
func checkBundle(content []byte) error {
	// What does not decode is passed over by the decoder: it is counted beforehand.
	begun := bytes.Count(content, []byte("-----BEGIN "))
	blocks, certificates := 0, 0
	for block, rest := pem.Decode(content); block != nil; block, rest = pem.Decode(rest) {
		blocks++
		if !strings.HasSuffix(block.Type, "CERTIFICATE") { // also TRUSTED CERTIFICATE
			continue
		}
		certificates++
		if block.Type == "CERTIFICATE" && !isCertificate(block.Bytes) {
			return fmt.Errorf("holds a certificate that cannot be read: number %d", certificates)
		}
	}
	switch {
	case blocks < begun:
		return fmt.Errorf("holds %d blocks of PEM of which %d cannot be read", begun, begun-blocks)
	case certificates == 0:
		return errors.New("holds no certificate in PEM")
	}
	return nil
}

// isCertificate also takes those whose form is right and that this program's library
// is too strict for, such as old authorities with a negative serial number: the tools
// of hosts take them.
func isCertificate(der []byte) bool {
	if _, err := x509.ParseCertificate(der); err == nil {
		return true
	}
	var form struct {
		Content, Algorithm asn1.RawValue
		Signature          asn1.BitString
	}
	rest, err := asn1.Unmarshal(der, &form)
	return err == nil && len(rest) == 0 && form.Content.IsCompound && form.Algorithm.IsCompound
}

// checkKey takes a comment, too, and a line of a kind that sshd may know and this
// program's library does not. The key itself is not repeated.
func checkKey(line string) error {
	line = strings.Join(strings.Fields(line), " ") // as it is written on nodes
	if line == "" || strings.HasPrefix(line, "#") {
		return nil
	}
	if _, _, _, _, err := ssh.ParseAuthorizedKey([]byte(line)); err != nil && !isOfNewKind(line) {
		return errors.New("is no SSH public key")
	}
	return nil
}

// isOfNewKind says whether the line holds a key that names its kind as the line does.
func isOfNewKind(line string) bool {
	fields := strings.Fields(line)
	for i := 1; i < len(fields); i++ {
		blob, err := base64.StdEncoding.DecodeString(fields[i])
		if err != nil {
			continue
		}
		if _, err := ssh.ParsePublicKey(blob); err != nil && strings.HasSuffix(err.Error(), "unknown key algorithm: "+fields[i-1]) {
			return true
		}
	}
	return false
}
