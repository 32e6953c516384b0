package pki

import (
	"encoding/pem"

	"k8s.io/client-go/util/cert"
)

// encode turns a DER certificate into PEM text.
func encode(raw []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: cert.CertificateBlockType, Bytes: raw})
}
