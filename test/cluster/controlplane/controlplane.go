// Package controlplane configures etcd, kube-apiserver, kube-controller-manager
// and kube-scheduler as daemons on this host.
package controlplane

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/imagemode/imagemode/test/cluster/kubeconfig"
	"github.com/imagemode/imagemode/test/cluster/layout"
	"github.com/imagemode/imagemode/test/cluster/pki"
	"github.com/imagemode/imagemode/test/cluster/process"
)

// Configuration is what the daemons are made from.
type Configuration struct {
	Authority *pki.Authority
	// BinDir holds the programs by their usual names.
	BinDir  string
	Cgroups []string
}

// Specs returns the daemons in the order in which they have to start, after
// writing certificates and kubeconfigs.
func (c Configuration) Specs() ([]process.Spec, error) {
	serviceAccountKey, err := c.Authority.ServiceAccountKey()
	if err != nil {
		return nil, err
	}
	if err := c.writeAdminKubeconfig(); err != nil {
		return nil, err
	}
	apiserver, err := c.apiserver(serviceAccountKey)
	if err != nil {
		return nil, err
	}
	manager, err := c.controllerManager(serviceAccountKey)
	if err != nil {
		return nil, err
	}
	scheduler, err := c.scheduler()
	if err != nil {
		return nil, err
	}
	return []process.Spec{c.etcd(), apiserver, manager, scheduler}, nil
}

func (c Configuration) spec(name string, inputs []string, flags ...string) process.Spec {
	return process.Spec{
		Name:    name,
		Args:    append([]string{filepath.Join(c.BinDir, name)}, flags...),
		Cgroups: c.Cgroups,
		Inputs:  inputs,
	}
}

// etcd listens on the loopback address only and without TLS: whoever is on this
// host as root has everything anyway, and nobody else can reach it.
func (c Configuration) etcd() process.Spec {
	client := fmt.Sprintf("http://%s:%d", layout.Loopback, layout.EtcdClientPort)
	peer := fmt.Sprintf("http://%s:%d", layout.Loopback, layout.EtcdPeerPort)
	return c.spec("etcd", nil,
		"--name=local",
		"--data-dir="+filepath.Join(layout.StateDir, "etcd"),
		"--listen-client-urls="+client,
		"--advertise-client-urls="+client,
		"--listen-peer-urls="+peer,
		"--initial-advertise-peer-urls="+peer,
		"--initial-cluster=local="+peer,
		"--unsafe-no-fsync", // a test's data; halves the time of every write
	)
}

func (c Configuration) apiserver(serviceAccountKey string) (process.Spec, error) {
	serving, err := c.Authority.Issue("kube-apiserver", pki.Subject{
		Name: "kube-apiserver",
		DNSNames: []string{
			"localhost", "kubernetes", "kubernetes.default",
			"kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
		},
		IPs: []string{layout.HostIP, layout.Loopback, layout.ServiceIP},
	})
	if err != nil {
		return process.Spec{}, err
	}
	toKubelets, err := c.Authority.Issue("kube-apiserver-kubelet-client", pki.Subject{
		Name: "kube-apiserver-kubelet-client", Groups: []string{masters},
	})
	if err != nil {
		return process.Spec{}, err
	}
	return c.spec("kube-apiserver", []string{serving.CertFile, toKubelets.CertFile, layout.CAFile},
		fmt.Sprintf("--etcd-servers=http://%s:%d", layout.Loopback, layout.EtcdClientPort),
		"--bind-address="+layout.HostIP,
		"--advertise-address="+layout.HostIP,
		fmt.Sprintf("--secure-port=%d", layout.APIServerPort),
		"--service-cluster-ip-range="+layout.ServiceCIDR,
		"--client-ca-file="+layout.CAFile,
		"--tls-cert-file="+serving.CertFile,
		"--tls-private-key-file="+serving.KeyFile,
		"--kubelet-certificate-authority="+layout.CAFile,
		"--kubelet-client-certificate="+toKubelets.CertFile,
		"--kubelet-client-key="+toKubelets.KeyFile,
		// `kubectl logs` and `exec`: no name service here knows the nodes' names.
		"--kubelet-preferred-address-types=InternalIP",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file="+serviceAccountKey,
		"--service-account-signing-key-file="+serviceAccountKey,
		"--authorization-mode=Node,RBAC",
		"--enable-admission-plugins=NodeRestriction",
		"--allow-privileged=true",
		// Nothing routes the service address, and the default reconciler would
		// only publish an endpoint that no one uses.
		"--endpoint-reconciler-type=none",
	), nil
}

func (c Configuration) controllerManager(serviceAccountKey string) (process.Spec, error) {
	credential, err := c.credential("controller-manager", pki.Subject{Name: "system:kube-controller-manager"})
	if err != nil {
		return process.Spec{}, err
	}
	return c.spec("kube-controller-manager", []string{credential},
		"--bind-address="+layout.Loopback,
		fmt.Sprintf("--secure-port=%d", layout.ControllerManagerPort),
		"--kubeconfig="+credential,
		"--authentication-kubeconfig="+credential,
		"--authorization-kubeconfig="+credential,
		"--root-ca-file="+layout.CAFile,
		"--service-account-private-key-file="+serviceAccountKey,
		"--use-service-account-credentials=true",
		"--allocate-node-cidrs=false",
		"--leader-elect=false",
	), nil
}

func (c Configuration) scheduler() (process.Spec, error) {
	credential, err := c.credential("scheduler", pki.Subject{Name: "system:kube-scheduler"})
	if err != nil {
		return process.Spec{}, err
	}
	return c.spec("kube-scheduler", []string{credential},
		"--bind-address="+layout.Loopback,
		fmt.Sprintf("--secure-port=%d", layout.SchedulerPort),
		"--kubeconfig="+credential,
		"--authentication-kubeconfig="+credential,
		"--authorization-kubeconfig="+credential,
		"--leader-elect=false",
	), nil
}

// masters is the group the API server lets do everything.
const masters = "system:masters"

func (c Configuration) writeAdminKubeconfig() error {
	pair, err := c.Authority.Issue("admin", pki.Subject{Name: "admin", Groups: []string{masters}})
	if err != nil {
		return err
	}
	content, err := kubeconfig.Embedded("admin", c.Authority.CertPEM(), pair)
	if err != nil {
		return err
	}
	return os.WriteFile(layout.Kubeconfig, content, 0o600)
}

// credential writes the kubeconfig of a component and returns its path.
func (c Configuration) credential(name string, subject pki.Subject) (string, error) {
	pair, err := c.Authority.Issue(name, subject)
	if err != nil {
		return "", err
	}
	content, err := kubeconfig.Embedded(strings.TrimPrefix(subject.Name, "system:"), c.Authority.CertPEM(), pair)
	if err != nil {
		return "", err
	}
	path := filepath.Join(layout.PKIDir, name+".kubeconfig")
	return path, os.WriteFile(path, content, 0o600)
}
