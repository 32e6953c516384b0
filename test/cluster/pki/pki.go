// Package pki is the cluster's certificate authority: one for everything, made
// by the first `up` and kept until `down`, so that kubeconfigs and trusted
// certificates stay valid across restarts.
package pki

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

// validity of certificates; the cluster is a test's and does not renew them.
const validity = 365 * 24 * time.Hour

// Authority signs certificates and keeps them in a directory.
type Authority struct {
	dir         string
	certificate *x509.Certificate
	key         crypto.Signer
}

// Pair is a certificate and its private key, in files and as PEM text.
type Pair struct {
	CertFile, KeyFile string
	CertPEM, KeyPEM   []byte
}

// Subject is whom a certificate is for. With DNSNames or IPs it is a serving
// certificate, otherwise a client's: Name is then the user, Groups its groups.
type Subject struct {
	Name     string
	Groups   []string
	DNSNames []string
	IPs      []string
}

// Open loads the authority kept in dir, or makes a new one there.
func Open(dir string) (*Authority, error) {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return nil, err
	}
	certFile, keyFile := filepath.Join(dir, "ca.crt"), filepath.Join(dir, "ca.key")
	if _, err := os.Stat(certFile); errors.Is(err, fs.ErrNotExist) {
		if err := create(certFile, keyFile); err != nil {
			return nil, err
		}
	}
	certificates, err := cert.CertsFromFile(certFile)
	if err != nil {
		return nil, err
	}
	key, err := keyutil.PrivateKeyFromFile(keyFile)
	if err != nil {
		return nil, err
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("%s holds no signing key: run down, then up", keyFile)
	}
	return &Authority{dir: dir, certificate: certificates[0], key: signer}, nil
}

func create(certFile, keyFile string) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	certificate, err := cert.NewSelfSignedCACert(cert.Config{CommonName: "imagemode-local-cluster"}, key)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(keyFile, keyPEM); err != nil {
		return err
	}
	return cert.WriteCert(certFile, encode(certificate.Raw)) // last: its presence says that both are there
}

// CertPEM is the authority's own certificate.
func (a *Authority) CertPEM() []byte { return encode(a.certificate.Raw) }

// Issue returns the certificate kept under name, as in kube-apiserver, or signs
// a new one for subject.
func (a *Authority) Issue(name string, subject Subject) (Pair, error) {
	pair := Pair{
		CertFile: filepath.Join(a.dir, name+".crt"),
		KeyFile:  filepath.Join(a.dir, name+".key"),
	}
	if _, err := os.Stat(pair.CertFile); errors.Is(err, fs.ErrNotExist) {
		if err := a.sign(pair, subject); err != nil {
			return Pair{}, fmt.Errorf("certificate %s: %w", name, err)
		}
	}
	var err error
	if pair.CertPEM, err = os.ReadFile(pair.CertFile); err != nil {
		return Pair{}, err
	}
	pair.KeyPEM, err = os.ReadFile(pair.KeyFile)
	return pair, err
}

func (a *Authority) sign(pair Pair, subject Subject) error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	template, err := template(subject)
	if err != nil {
		return err
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	if err := keyutil.WriteKey(pair.KeyFile, keyPEM); err != nil {
		return err
	}
	return cert.WriteCert(pair.CertFile, encode(raw))
}

func template(subject Subject) (*x509.Certificate, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	certificate := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: subject.Name, Organization: subject.Groups},
		NotBefore:    now.Add(-5 * time.Minute), // clocks of machines may lag a little
		NotAfter:     now.Add(validity),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
		DNSNames:     subject.DNSNames,
	}
	for _, text := range subject.IPs {
		ip := net.ParseIP(text)
		if ip == nil {
			return nil, fmt.Errorf("%q is no IP address", text)
		}
		certificate.IPAddresses = append(certificate.IPAddresses, ip)
	}
	if len(subject.DNSNames)+len(subject.IPs) > 0 {
		certificate.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
	return certificate, nil
}

// ServiceAccountKey returns the file with the key pair that signs and checks
// ServiceAccount tokens, and makes it when there is none.
func (a *Authority) ServiceAccountKey() (file string, err error) {
	file = filepath.Join(a.dir, "service-account.key")
	if _, err := os.Stat(file); !errors.Is(err, fs.ErrNotExist) {
		return file, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return "", err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return "", err
	}
	return file, keyutil.WriteKey(file, keyPEM)
}
