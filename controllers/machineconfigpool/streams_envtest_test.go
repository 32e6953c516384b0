//go:build envtest

package machineconfigpool

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/controllers/osimagestream"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
)

// imageLabels stands in for the registries: debian-13 has crun alone, and every other
// image both runtimes. Images whose names contain a held text are not answered for, and
// those with a failing one are refused.
type imageLabels struct {
	mutex   sync.Mutex
	held    map[string]chan struct{}
	failing string
}

func (l *imageLabels) reader(registry.Access) osimagestream.ImageReader { return l }

func (l *imageLabels) Labels(ctx context.Context, image string) (map[string]string, error) {
	l.mutex.Lock()
	failing := l.failing
	var release chan struct{}
	for text, channel := range l.held {
		if strings.Contains(image, text) {
			release = channel
		}
	}
	l.mutex.Unlock()
	if release != nil {
		select {
		case <-release:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	if failing != "" && strings.Contains(image, failing) {
		return nil, &registry.Error{Class: request.Network, Image: image, Err: errors.New("no route to host")}
	}
	if strings.Contains(image, "debian-13") {
		return map[string]string{streams.LabelRuntimes: "crun"}, nil
	}
	return map[string]string{streams.LabelRuntimes: "crun,runc"}, nil
}

func (l *imageLabels) File(context.Context, string, string, int64) ([]byte, error) {
	return nil, errors.New("there is no release image here")
}

// hold lets images with a text in their names wait until what it returns is called.
func (l *imageLabels) hold(text string) (release func()) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	channel := make(chan struct{})
	if l.held == nil {
		l.held = map[string]chan struct{}{}
	}
	l.held[text] = channel
	return func() {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		delete(l.held, text)
		close(channel)
	}
}

// fail refuses images with a text in their names; the empty one: none.
func (l *imageLabels) fail(text string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.failing = text
}

const (
	twelve = "registry.example.com/os/debian-12@" + digest1
	other  = "registry.example.com/os/debian-13@" + digest2
)

// rendersOn waits until a pool's rendered config is built on an image, and gives
// the config's name.
func (c *cluster) rendersOn(pool, image string) string {
	c.Helper()
	name := ""
	eventually(c, pool+" renders on "+image, &mcfgv1.MachineConfigPool{}, pool, func(p *mcfgv1.MachineConfigPool) bool {
		name = p.Spec.Configuration.Name
		rendered, err := get(c.ctx, c.Client, name, &mcfgv1.MachineConfig{})
		return err == nil && rendered != nil && rendered.Spec.OSImageURL == image &&
			says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionFalse, "")
	})
	return name
}

func (c *cluster) wants(pool, stream string) {
	c.Helper()
	change(c, &mcfgv1.MachineConfigPool{}, pool, func(p *mcfgv1.MachineConfigPool) { p.Spec.OSImageStream.Name = stream }, c.update)
}

func TestAPoolSwitchesItsStreamByOneField(t *testing.T) {
	c := start(t)
	for _, name := range []string{"worker", "infra", "pinned", "master"} {
		c.create(builders.MachineConfigPool(name))
	}
	c.wants("pinned", "debian-12")
	streamsMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data:       map[string]string{"debian-12": "osImage: " + twelve, "debian-13": "osImage: " + other},
	}
	c.create(streamsMap)
	first := map[string]string{}
	for _, name := range []string{"worker", "infra", "pinned", "master"} {
		first[name] = c.rendersOn(name, twelve)
	}

	c.wants("worker", "debian-13")
	c.rendersOn("worker", other)
	c.rendersOn("infra", other) // a custom pool takes over the worker's stream
	for _, name := range []string{"pinned", "master"} {
		if now := c.rendersOn(name, twelve); now != first[name] {
			t.Errorf("pool %s went from %s to %s", name, first[name], now)
		}
	}

	t.Run("runc on a stream with crun alone", func(t *testing.T) {
		eventually(c, "what debian-13 can do", &mcfgv1.OSImageStream{}, "cluster", func(o *mcfgv1.OSImageStream) bool {
			return len(streams.RuntimesOf(o, "debian-13")) == 1
		})
		before := c.rendersOn("worker", other)
		c.create(builders.MachineConfig("99-runc", "worker", builders.File("/etc/crio/crio.conf.d/99-runc", "[crio.runtime]\ndefault_runtime = \"runc\"\n")))
		degraded := c.pool("degraded", func(p *mcfgv1.MachineConfigPool) bool {
			return says(p, mcfgv1.MachineConfigPoolRenderDegraded, corev1.ConditionTrue, reasonRuntimeMissing)
		})
		if degraded.Spec.Configuration.Name != before {
			t.Errorf("the pool went from %s to %s", before, degraded.Spec.Configuration.Name)
		}
		if c.rendersOn("pinned", twelve) == "" {
			t.Error("a pool whose stream has runc should work on")
		}
		if err := c.Delete(c.ctx, builders.MachineConfig("99-runc", "worker")); err != nil {
			t.Fatal(err)
		}
		c.rendersOn("worker", other)
	})
	t.Run("switching back gives the configs of before, whose images exist", func(t *testing.T) {
		c.wants("worker", "debian-12")
		for _, name := range []string{"worker", "infra", "pinned"} {
			if now := c.rendersOn(name, twelve); now != first[name] {
				t.Errorf("pool %s renders %s, and rendered %s before", name, now, first[name])
			}
		}
	})
	t.Run("a stream that is deprecated and in use stands on its pools", func(t *testing.T) {
		streamsMap.Data["debian-12"] += "\ndeprecated: true"
		if err := c.Client.Update(c.ctx, streamsMap); err != nil {
			t.Fatal(err)
		}
		c.pool("says so", func(p *mcfgv1.MachineConfigPool) bool {
			return says(p, conditionStreamProblems, corev1.ConditionTrue, "") && says(p, mcfgv1.MachineConfigPoolDegraded, corev1.ConditionFalse, "")
		})
	})
}

// A stream and a payload, here the images of ConfigMap imagemode-streams, that change
// together give one new config, and so one build and one reboot.
func TestAStreamAndAPayloadThatChangeTogetherGiveOneConfig(t *testing.T) {
	c := start(t, func(options *Options) { options.Settle = DefaultSettle })
	c.create(builders.MachineConfigPool("worker"))
	images := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: machineconfiguration.Namespace, Name: machineconfiguration.ConfigMapStreams},
		Data:       map[string]string{"debian-12": "osImage: " + twelve, "debian-13": "osImage: " + other},
	}
	c.create(images)
	before := c.rendersOn("worker", twelve)
	const next = "registry.example.com/os/debian-13@" + digest1
	c.wants("worker", "debian-13")
	images.Data["debian-13"] = "osImage: " + next
	if err := c.Client.Update(c.ctx, images); err != nil {
		t.Fatal(err)
	}
	after := c.rendersOn("worker", next)
	var all mcfgv1.MachineConfigList
	if err := c.List(c.ctx, &all); err != nil {
		t.Fatal(err)
	}
	for _, config := range all.Items {
		if config.Name != before && config.Name != after {
			t.Errorf("config %s on %s was rendered on the way", config.Name, config.Spec.OSImageURL)
		}
	}
}
