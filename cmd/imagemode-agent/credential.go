package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// kubeletCredentials is where kubelets have their credential: on OpenShift, and
// where kubeadm made the node.
var kubeletCredentials = []string{"/var/lib/kubelet/kubeconfig", "/etc/kubernetes/kubelet.conf"}

// credentialInterval is how often a credential is looked for that a node which
// joins has yet to get.
const credentialInterval = 5 * time.Second

// connect gives the way to the API server: that of a pod, or the kubelet's, whose
// name is the node's.
func (o *Options) connect(ctx context.Context) (*rest.Config, error) {
	if !o.isService() {
		return ctrl.GetConfig()
	}
	if err := useKubeletCredential(ctx, kubeletCredentials, credentialInterval); err != nil {
		return nil, err
	}
	config, err := ctrl.GetConfig()
	if err != nil || o.NodeName != "" {
		return config, err
	}
	o.NodeName, err = nodeNameOf(ctx, config)
	return config, err
}

// useKubeletCredential has the client library read the first file that there is,
// unless the user has named one. It waits for one.
func useKubeletCredential(ctx context.Context, paths []string, interval time.Duration) error {
	if named := flag.Lookup("kubeconfig"); os.Getenv("KUBECONFIG") != "" || named != nil && named.Value.String() != "" {
		return nil
	}
	for isSaid := false; ; {
		for _, path := range paths {
			_, err := os.Stat(path)
			if err == nil {
				return os.Setenv("KUBECONFIG", path)
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if !isSaid {
			log.FromContext(ctx).Info("waiting for the kubelet's credential", "paths", paths)
			isSaid = true
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(interval):
		}
	}
}

// nodeNameOf asks the API server whom the credential is for. The host's name may
// be another than the node's, on cloud providers say.
func nodeNameOf(ctx context.Context, config *rest.Config) (string, error) {
	api, err := client.New(config, client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		return "", err
	}
	review := &authenticationv1.SelfSubjectReview{}
	if err := api.Create(ctx, review); err != nil {
		return "", fmt.Errorf("the node's name is not known: %w", err)
	}
	user := review.Status.UserInfo.Username
	name, isNode := strings.CutPrefix(user, "system:node:")
	if !isNode || name == "" {
		return "", fmt.Errorf("the node's name is not known: the credential is that of %q and no node's; set NODE_NAME in /etc/imagemode/agent.env", user)
	}
	return name, nil
}
