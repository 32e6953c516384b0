// Package local is the cluster of test/cluster as the demo and the end-to-end
// test use it: its command, its files, kubectl, a client, and a shell in its
// machines.
package local

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// Where the cluster keeps what its users need. The cluster command's package
// layout names them too; it is a module of its own.
const (
	stateDir       = "/var/lib/imagemode-cluster"
	KubeconfigFile = stateDir + "/kubeconfig"
	CAFile         = stateDir + "/pki/ca.crt"
	streamsFile    = stateDir + "/streams.yaml"
	imagesFile     = stateDir + "/images.yaml"
	registryDir    = stateDir + "/registry"

	// Registry is the host and port that every image reference begins with.
	Registry = "10.89.0.1:5000"
)

// stopGrace is how long a command may take to clean up when it is interrupted:
// the cluster command stops what it was about to start.
const stopGrace = time.Minute

// Cluster is the local cluster, running or about to.
type Cluster struct {
	// Root is the checkout's directory.
	Root string
	// Out receives what the cluster's command prints.
	Out io.Writer

	// Client and Core are nil until Connect.
	Client client.WithWatch
	Core   kubernetes.Interface

	config *rest.Config
}

// Find returns the local cluster of the checkout that the working directory is in.
func Find(out io.Writer) (*Cluster, error) {
	start, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for directory := start; directory != "/"; directory = filepath.Dir(directory) {
		if _, err := os.Stat(filepath.Join(directory, "test/cluster/go.mod")); err == nil {
			return &Cluster{Root: directory, Out: out}, nil
		}
	}
	return nil, fmt.Errorf("%s is not in a checkout of imagemode: run this from one", start)
}

// Connect makes the clients; the cluster has to be up. What the client library
// would log is not for the readers of the story.
func (c *Cluster) Connect() error {
	log.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", KubeconfigFile)
	if err != nil {
		return fmt.Errorf("the local cluster is not up (run \"make cluster-up\"): %w", err)
	}
	config.QPS, config.Burst = 50, 100
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientgoscheme.AddToScheme, mcfgv1.Install, v1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			return err
		}
	}
	if c.Core, err = kubernetes.NewForConfig(config); err != nil {
		return err
	}
	c.config = config
	c.Client, err = client.NewWithWatch(config, client.Options{Scheme: scheme})
	return err
}

// ClientWithToken is a client of whoever the token belongs to.
func (c *Cluster) ClientWithToken(token string) (client.Client, error) {
	config := rest.AnonymousClientConfig(c.config)
	config.BearerToken = token
	return client.New(config, client.Options{Scheme: c.Client.Scheme()})
}

// ClientWithKubeconfig is a client of whoever the kubeconfig is for.
func (c *Cluster) ClientWithKubeconfig(content []byte) (client.Client, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(content)
	if err != nil {
		return nil, err
	}
	return client.New(config, client.Options{Scheme: c.Client.Scheme()})
}

// Command runs a subcommand of the cluster command (up, images, down …) and
// passes its output on.
func (c *Cluster) Command(ctx context.Context, arguments ...string) error {
	command := c.clusterCommand(ctx, arguments...)
	command.Stdout, command.Stderr = c.Out, c.Out
	if err := command.Run(); err != nil {
		return fmt.Errorf("cluster %s: %w", strings.Join(arguments, " "), err)
	}
	return nil
}

// Exec runs a command in a machine and returns what it prints on its standard
// output, without the last newline.
func (c *Cluster) Exec(ctx context.Context, machine string, arguments ...string) (string, error) {
	return output(c.clusterCommand(ctx, append([]string{"exec", machine, "--"}, arguments...)...))
}

// Install puts a program into a machine, at a path below /var: /usr cannot be
// written there.
func (c *Cluster) Install(ctx context.Context, machine, program, path string) error {
	file, err := os.Open(program)
	if err != nil {
		return err
	}
	defer file.Close()
	command := c.clusterCommand(ctx, "exec", machine, "--", "install", "-m", "0755", "/dev/stdin", path)
	command.Stdin = file
	_, err = output(command)
	return err
}

// Kubectl runs the cluster's kubectl as administrator and returns its output.
func (c *Cluster) Kubectl(ctx context.Context, arguments ...string) (string, error) {
	command := exec.CommandContext(ctx, filepath.Join(CacheDir(), "bin", "kubectl"), arguments...)
	command.Env = append(os.Environ(), "KUBECONFIG="+KubeconfigFile)
	command.Dir = c.Root
	return output(command)
}

// CacheDir holds the programs that the cluster command compiled.
func CacheDir() string {
	if directory := os.Getenv("IMAGEMODE_CACHE"); directory != "" {
		return directory
	}
	return filepath.Join(os.Getenv("HOME"), ".cache", "imagemode")
}

func (c *Cluster) clusterCommand(ctx context.Context, arguments ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, "go", append([]string{"run", "."}, arguments...)...)
	command.Dir = filepath.Join(c.Root, "test/cluster")
	// "go run" passes no signal on: interrupt the program with it, as a group.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGINT) }
	command.WaitDelay = stopGrace
	return command
}

func output(command *exec.Cmd) (string, error) {
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%s: %w: %s", strings.Join(command.Args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return strings.TrimSuffix(stdout.String(), "\n"), nil
}
