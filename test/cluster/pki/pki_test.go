package pki

import (
	"crypto/x509"
	"encoding/pem"
	"testing"
)

func open(t *testing.T, dir string) *Authority {
	t.Helper()
	authority, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return authority
}

func issue(t *testing.T, authority *Authority, name string, subject Subject) (*x509.Certificate, Pair) {
	t.Helper()
	pair, err := authority.Issue(name, subject)
	if err != nil {
		t.Fatal(err)
	}
	block, _ := pem.Decode(pair.CertPEM)
	certificate, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		t.Fatal(err)
	}
	return certificate, pair
}

func TestServingCertificateIsValidForItsNamesOnly(t *testing.T) {
	authority := open(t, t.TempDir())
	certificate, _ := issue(t, authority, "server", Subject{Name: "server", DNSNames: []string{"localhost"}, IPs: []string{"10.89.0.1"}})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.CertPEM())
	for name, valid := range map[string]bool{"localhost": true, "10.89.0.1": true, "10.89.0.2": false} {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, DNSName: name})
		if (err == nil) != valid {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestClientCertificateDoesNotServe(t *testing.T) {
	authority := open(t, t.TempDir())
	certificate, _ := issue(t, authority, "kubelet", Subject{Name: "system:node:a", Groups: []string{"system:nodes"}})
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authority.CertPEM())
	for usage, valid := range map[x509.ExtKeyUsage]bool{x509.ExtKeyUsageClientAuth: true, x509.ExtKeyUsageServerAuth: false} {
		_, err := certificate.Verify(x509.VerifyOptions{Roots: roots, KeyUsages: []x509.ExtKeyUsage{usage}})
		if (err == nil) != valid {
			t.Errorf("usage %v: %v", usage, err)
		}
	}
	if certificate.Subject.CommonName != "system:node:a" || certificate.Subject.Organization[0] != "system:nodes" {
		t.Errorf("subject: %v", certificate.Subject)
	}
}

func TestAuthorityAndCertificatesStayAcrossRuns(t *testing.T) {
	dir := t.TempDir()
	first := open(t, dir)
	_, pair := issue(t, first, "a", Subject{Name: "a"})
	again := open(t, dir)
	if string(again.CertPEM()) != string(first.CertPEM()) {
		t.Error("the authority changed")
	}
	if _, kept := issue(t, again, "a", Subject{Name: "a"}); string(kept.CertPEM) != string(pair.CertPEM) {
		t.Error("the certificate changed")
	}
}
