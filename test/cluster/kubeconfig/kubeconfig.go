// Package kubeconfig writes the files by which clients find the API server and
// prove who they are.
package kubeconfig

import (
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/pki"
)

// Embedded returns a kubeconfig for user that holds everything itself, so that
// it can be copied to another machine.
func Embedded(user string, authority []byte, pair pki.Pair) ([]byte, error) {
	const name = "imagemode"
	return clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{
			name: {Server: layout.APIServer(), CertificateAuthorityData: authority},
		},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{
			user: {ClientCertificateData: pair.CertPEM, ClientKeyData: pair.KeyPEM},
		},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: user}},
		CurrentContext: name,
	})
}
