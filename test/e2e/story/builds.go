package story

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"github.com/vincent-petithory/dataurl"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/e2e/local"
)

// BuildFile is a file of every Asked, with its text.
const BuildFile = "/etc/imagemode-build.conf"

// Asked is an image that is wanted, for a pool without nodes: nothing boots it.
type Asked struct {
	// Pool names the pool and everything that is made for it.
	Pool string
	// Text is the content of BuildFile. Others are others' images.
	Text string
	// Config is what the MachineConfig has besides.
	Config []builders.MachineConfigOption
	// Containerfile of the MachineOSConfig; empty: none.
	Containerfile string
	// Options of the MachineOSConfig, which pushes to a repository of the pool's
	// name without.
	Options []func(*mcfgv1.MachineOSConfig)
}

// Built is what became of it.
type Built struct {
	Build *mcfgv1.MachineOSBuild
	// Image by digest; empty: the build failed.
	Image string
	// Failed is the condition of a build that failed, or nil.
	Failed *metav1.Condition
	// Pods is how many pods were at work.
	Pods int
	// Result is what the last of them reported; nil: nothing.
	Result *request.Result
	// Took is the time from the last change to the end, as the story saw it.
	Took time.Duration
}

// Reused says of the result's steps which were taken from an earlier build.
func (b *Built) Reused() map[string]bool {
	reused := map[string]bool{}
	if b.Result != nil {
		for _, step := range b.Result.Steps {
			reused[step.Name] = step.Reused
		}
	}
	return reused
}

// AskForImage declares what is wanted, each object once the one before it counts:
// so there is one build, and not one that is interrupted by another.
func (s *Story) AskForImage(ctx context.Context, asked Asked) error {
	if err := s.ChangeConfig(ctx, asked); err != nil {
		return err
	}
	if err := s.CreateEmptyPool(ctx, asked.Pool); err != nil {
		return err
	}
	if _, err := s.renderedWith(ctx, asked); err != nil {
		return err
	}
	options := []func(*mcfgv1.MachineOSConfig){
		builders.BasePullSecret("base-pull"),
		builders.PushTo(local.Registry+"/os/"+asked.Pool+":latest", "push"),
	}
	if asked.Containerfile != "" {
		options = append(options, builders.Containerfile(asked.Containerfile))
	}
	return s.askFor(ctx, builders.MachineOSConfig(asked.Pool, append(options, asked.Options...)...))
}

// ChangeConfig writes the MachineConfig.
func (s *Story) ChangeConfig(ctx context.Context, asked Asked) error {
	options := append([]builders.MachineConfigOption{builders.File(BuildFile, asked.Text)}, asked.Config...)
	return s.ApplyMachineConfig(ctx, asked.machineConfig(), asked.Pool, options...)
}

func (a Asked) machineConfig() string { return "50-" + a.Pool }

// renderedWith waits until the pool's rendered config has the text, and gives its
// name.
func (s *Story) renderedWith(ctx context.Context, asked Asked) (string, error) {
	name := ""
	encoded := []byte(dataurl.EncodeBytes([]byte(asked.Text)))
	err := until(ctx, "the rendered config of pool "+asked.Pool, func(ctx context.Context) (string, bool, error) {
		pool := &mcfgv1.MachineConfigPool{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: asked.Pool}, pool); err != nil {
			return err.Error(), false, nil
		}
		name = pool.Spec.Configuration.Name
		rendered := &mcfgv1.MachineConfig{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, rendered); err != nil {
			return name + "; " + conditionsOf(pool), false, nil
		}
		return name, bytes.Contains(rendered.Spec.Config.Raw, encoded), nil
	})
	return name, err
}

// EndOfBuild waits until the build of what was asked for has ended.
func (s *Story) EndOfBuild(ctx context.Context, asked Asked) (*Built, error) {
	begun := time.Now()
	rendered, err := s.renderedWith(ctx, asked)
	if err != nil {
		return nil, err
	}
	built := &Built{}
	err = until(ctx, "the build for pool "+asked.Pool, func(ctx context.Context) (string, bool, error) {
		config := &mcfgv1.MachineOSConfig{}
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: asked.Pool}, config); err != nil {
			return err.Error(), false, nil
		}
		// Anew each time: what a build does not have would stay from the one before.
		built.Build = &mcfgv1.MachineOSBuild{}
		name := config.Annotations[machineconfiguration.AnnotationCurrentMachineOSBuild]
		if err := s.Cluster.Client.Get(ctx, client.ObjectKey{Name: name}, built.Build); err != nil {
			return describeConditions(config.Status.Conditions), false, nil
		}
		hasEnded := built.Build.Status.BuildEnd != nil && built.Build.Spec.MachineConfig.Name == rendered
		return describeConditions(built.Build.Status.Conditions), hasEnded, nil
	})
	if err != nil {
		return nil, err
	}
	built.Took = time.Since(begun)
	built.Image = string(built.Build.Status.DigestedImagePushSpec)
	if failed := meta.FindStatusCondition(built.Build.Status.Conditions, string(mcfgv1.MachineOSBuildFailed)); failed != nil && failed.Status == metav1.ConditionTrue {
		built.Failed = failed
	}
	return built, s.addReport(ctx, built)
}

// addReport reads what the pods of a build left.
func (s *Story) addReport(ctx context.Context, built *Built) error {
	var pods corev1.PodList
	err := s.Cluster.Client.List(ctx, &pods, client.InNamespace(machineconfiguration.Namespace), client.MatchingLabels{
		machineconfiguration.LabelMachineOSBuild: machineconfiguration.Shorten(built.Build.Name, machineconfiguration.MaxLabelValue),
	})
	built.Pods = len(pods.Items)
	for i := range pods.Items {
		for _, status := range pods.Items[i].Status.ContainerStatuses {
			if status.State.Terminated == nil {
				continue
			}
			if result, err := request.DecodeResult([]byte(status.State.Terminated.Message)); err == nil {
				built.Result = result
			}
		}
	}
	return err
}

// ForgetImages deletes what was asked for, pool by pool; no image is built for
// pools that have no nodes to go back to it.
func (s *Story) ForgetImages(ctx context.Context, asked ...Asked) error {
	var problems []error
	for _, one := range asked {
		config := &mcfgv1.MachineOSConfig{ObjectMeta: metav1.ObjectMeta{Name: one.Pool}}
		abandon := fmt.Sprintf(`{"metadata":{"annotations":{%q:""}}}`, machineconfiguration.AnnotationAbandon)
		err := s.Cluster.Client.Patch(ctx, config, client.RawPatch("application/merge-patch+json", []byte(abandon)))
		problems = append(problems, client.IgnoreNotFound(err), s.DeletePool(ctx, one.Pool),
			client.IgnoreNotFound(s.Cluster.Client.Delete(ctx, builders.MachineConfig(one.machineConfig(), one.Pool))))
	}
	return errors.Join(problems...)
}
