package story

import (
	"bytes"
	"context"
	"fmt"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/vincent-petithory/dataurl"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// Containerfile adds one package to the image, from the stream's extensions
// image, since the builders reach nothing outside.
const Containerfile = `FROM configs AS final
RUN --mount=type=bind,from=extensions,target=/run/extensions \
    apt-get update && apt-get install --yes figlet && apt-get clean
`

const unitText = `[Unit]
Description=Shows that a unit of a MachineConfig runs

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/cat ` + ConfigFile + `

[Install]
WantedBy=multi-user.target
`

// declare pauses the pool and then writes the two objects in the order of a
// user: first the configuration, then the wish to have it as an image.
func (s *Story) declare(ctx context.Context) error {
	if err := s.setPaused(ctx, Pool, true); err != nil {
		return err
	}
	s.Log.Line("MachineConfigPool %s is paused", Pool)
	if err := s.applyMachineConfig(ctx); err != nil {
		return err
	}
	s.Log.Line("MachineConfig %s: %s and the enabled unit %s", machineConfigName, ConfigFile, Unit)
	if err := until(ctx, "the rendered config with "+machineConfigName, s.textIsRendered); err != nil {
		return err
	}
	s.Log.Line("rendered as %s", s.Rendered)
	if err := s.ApplyMachineOSConfig(ctx, Pool, Containerfile, "push"); err != nil {
		return err
	}
	s.Log.Line("MachineOSConfig %s: FROM configs, RUN apt-get install figlet", Pool)
	return nil
}

// textIsRendered is done when the pool's rendered config holds the file's text.
// A new name alone would not do: a new OS stream gives one, too.
func (s *Story) textIsRendered(ctx context.Context) (string, bool, error) {
	pool, err := s.pool(ctx)
	if err != nil {
		return err.Error(), false, nil
	}
	s.Rendered = pool.Spec.Configuration.Name
	rendered := &mcfgv1.MachineConfig{}
	if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: s.Rendered}, rendered); err != nil {
		return err.Error(), false, nil
	}
	holds := bytes.Contains(rendered.Spec.Config.Raw, []byte(dataurl.EncodeBytes([]byte(s.Text))))
	return s.Rendered + "; " + conditionsOf(pool), holds, nil
}

func (s *Story) applyMachineConfig(ctx context.Context) error {
	return s.ApplyMachineConfig(ctx, machineConfigName, Pool, builders.File(ConfigFile, s.Text), builders.Unit(Unit, unitText))
}

// ApplyMachineConfig writes a MachineConfig of a role.
func (s *Story) ApplyMachineConfig(ctx context.Context, name, role string, options ...builders.MachineConfigOption) error {
	want := builders.MachineConfig(name, role, options...)
	config := &mcfgv1.MachineConfig{ObjectMeta: want.ObjectMeta}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Cluster.Client, config, func() error {
		config.Spec = want.Spec
		return nil
	})
	return err
}

// ApplyMachineOSConfig asks for an image for a pool.
func (s *Story) ApplyMachineOSConfig(ctx context.Context, pool, containerfile, pushSecret string) error {
	return s.askFor(ctx, builders.MachineOSConfig(pool,
		builders.Containerfile(containerfile),
		builders.BasePullSecret("base-pull"),
		builders.PushTo(local.Registry+"/os/"+pool+":latest", pushSecret)))
}

// askFor writes a MachineOSConfig.
func (s *Story) askFor(ctx context.Context, want *mcfgv1.MachineOSConfig) error {
	config := &mcfgv1.MachineOSConfig{ObjectMeta: want.ObjectMeta}
	_, err := controllerutil.CreateOrUpdate(ctx, s.Cluster.Client, config, func() error {
		config.Spec = want.Spec
		return nil
	})
	return err
}

// setPaused pauses or releases a pool.
func (s *Story) setPaused(ctx context.Context, name string, paused bool) error {
	pool := builders.MachineConfigPool(name)
	patch := fmt.Sprintf(`{"spec":{"paused":%t}}`, paused)
	return s.Cluster.Client.Patch(ctx, pool, client.RawPatch("application/merge-patch+json", []byte(patch)))
}

func (s *Story) pool(ctx context.Context) (*mcfgv1.MachineConfigPool, error) {
	pool := &mcfgv1.MachineConfigPool{}
	err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: Pool}, pool)
	return pool, err
}
