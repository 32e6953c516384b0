package story

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/test/e2e/local"
)

// Names that the story's objects have.
const (
	// Pool is the pool that gets an image; its MachineOSConfig has the same name,
	// as the API demands.
	Pool = "worker"
	// ConfigFile and Unit are what the MachineConfig brings to the nodes.
	ConfigFile = "/etc/imagemode-demo.conf"
	Unit       = "imagemode-demo.service"
	// Program is what the Containerfile installs, from the package figlet.
	Program = "/usr/bin/figlet-figlet"

	machineConfigName = "50-worker-demo"
)

// Times that the story holds still to see that nothing moves.
const (
	installHold = 15 * time.Second
	pauseHold   = 15 * time.Second
)

// Story is one telling.
type Story struct {
	Cluster *local.Cluster
	Log     *Log
	// Text is the content of ConfigFile. A text not told before gives a new image.
	Text string
	// ControllerArgs and ControllerEnv are what the controller gets besides its
	// usual ones, AlsoTrusted certificates, PEM, that the cluster trusts besides
	// the registry's.
	ControllerArgs []string
	ControllerEnv  []corev1.EnvVar
	AlsoTrusted    string

	// Workers is what became of the worker nodes since the story began.
	Workers *Workers
	// Workload is what became of the pods on them.
	Workload *Workload
	// Rendered is the name of the rendered MachineConfig, Image the image by
	// digest that the build ended with.
	Rendered string
	Image    string
	// FirstBuild and ChangedBuild are how long a Containerfile FROM base took to
	// become an image, and a change of a file below it.
	FirstBuild, ChangedBuild time.Duration
}

// Begin connects to the cluster and records what becomes of its workers until
// the context ends.
func (s *Story) Begin(ctx context.Context) error {
	if err := s.Cluster.Connect(); err != nil {
		return err
	}
	s.Workload = &Workload{}
	go s.watchWorkload(ctx)
	return s.watchNodes(ctx)
}

// Install deploys imagemode and sees that it leaves the nodes alone.
func (s *Story) Install() []Phase {
	return []Phase{
		{"deploy imagemode", 5 * time.Minute, s.deploy},
		{"see that installing reboots nothing", time.Minute, func(ctx context.Context) error {
			return s.holdStill(ctx, installHold, "imagemode is installed")
		}},
	}
}

// Build pauses the pool, declares what is wanted and follows the build.
func (s *Story) Build() []Phase {
	return []Phase{
		{"pause the pool, declare a MachineConfig and a MachineOSConfig", 2 * time.Minute, s.declare},
		{"run something on the workers", 2 * time.Minute, s.startWorkload},
		{"build the image", 15 * time.Minute, s.followBuild},
		{"see that the paused pool stays as it is", time.Minute, func(ctx context.Context) error {
			return s.holdStill(ctx, pauseHold, "the image is built and the pool is paused")
		}},
	}
}

// Release releases the pool and follows the rollout to its end.
func (s *Story) Release() []Phase {
	return []Phase{
		{"release the pool: node after node moves to the image", 15 * time.Minute, s.rollOut},
	}
}

// holdStill waits and fails if a worker rebooted or was out of service since
// the story began.
func (s *Story) holdStill(ctx context.Context, duration time.Duration, situation string) error {
	if err := sleep(ctx, duration); err != nil {
		return err
	}
	if err := errors.Join(s.Workers.Disturbances()...); err != nil {
		return fmt.Errorf("%s, but: %w", situation, err)
	}
	s.Log.Line("%s: no node was rebooted, cordoned or drained", situation)
	return nil
}
