//go:build envtest

package machineosbuild

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	controllerconfig "sigs.k8s.io/controller-runtime/pkg/config"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/envtest"
)

// everythingThere is a registry that has every image by digest, and none by tag.
type everythingThere struct{}

func (everythingThere) Read(_ context.Context, _ ImageAccess, image string) (ImageFacts, error) {
	if digest := digestOf(image); digest != "" {
		return ImageFacts{Digest: digest}, nil
	}
	return ImageFacts{}, &registry.Error{Class: request.Image, Image: image, Err: errors.New("manifest unknown")}
}

func (everythingThere) Exists(context.Context, ImageAccess, string) (registry.Existence, error) {
	return registry.Present, nil
}
func (everythingThere) Tag(context.Context, ImageAccess, string, string) error { return nil }
func (everythingThere) Tags(context.Context, ImageAccess, string) ([]string, error) {
	return nil, nil
}
func (everythingThere) Untag(context.Context, ImageAccess, string) error  { return nil }
func (everythingThere) Mark(context.Context, ImageAccess, string) error   { return nil }
func (everythingThere) Delete(context.Context, ImageAccess, string) error { return nil }

// server is an API server with both controllers at work on it.
type server struct {
	*testing.T
	client.Client
}

// startServer runs both controllers until the test ends.
func startServer(t *testing.T) *server {
	t.Helper()
	return &server{t, startControllers(t)}
}

// startControllers runs both controllers on an API server of their own, and
// returns a client of it.
func startControllers(t testing.TB, changes ...func(*Options)) client.WithWatch {
	t.Helper()
	config := envtest.Start(t)
	config.QPS, config.Burst = 200, 400 // the program's defaults
	mgr, err := ctrl.NewManager(config, ctrl.Options{
		Scheme: testScheme, Metrics: metricsserver.Options{BindAddress: "0"}, Controller: controllerconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	options := Options{
		Namespace: keys.Namespace, BuilderImage: "registry.example.com/builder:1", NodePullSecret: "nodes",
		Architecture: "amd64", Images: everythingThere{}, Prune: PruneImages, ClusterID: "c1",
	}
	for _, change := range changes {
		change(&options)
	}
	if err := Add(mgr, options); err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan error)
	go func() { stopped <- mgr.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-stopped; err != nil {
			t.Errorf("the manager ended with: %v", err)
		}
	})
	api, err := client.NewWithWatch(config, client.Options{Scheme: testScheme})
	if err != nil {
		t.Fatal(err)
	}
	return api
}

func (s *server) create(objects ...client.Object) {
	s.Helper()
	for _, object := range objects {
		if err := s.Create(context.Background(), object); err != nil {
			s.Fatalf("create %T %s: %v", object, object.GetName(), err)
		}
	}
}

// eventually waits until check returns nil.
func (s *server) eventually(check func() error) {
	s.Helper()
	deadline := time.Now().Add(time.Minute)
	for {
		err := check()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			s.Fatal(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// condition waits for a condition of the MachineOSConfig.
func (s *server) condition(kind string, status metav1.ConditionStatus, reason string) {
	s.Helper()
	s.eventually(func() error {
		config := &mcfgv1.MachineOSConfig{}
		if err := s.Get(context.Background(), client.ObjectKey{Name: "worker"}, config); err != nil {
			return err
		}
		found := apimeta.FindStatusCondition(config.Status.Conditions, kind)
		if found == nil || found.Status != status || found.Reason != reason || found.ObservedGeneration != config.Generation {
			return errors.New(kind + " is not " + string(status) + " " + reason + ": " + describeConditions(config.Status.Conditions))
		}
		return nil
	})
}

func describeConditions(conditions []metav1.Condition) string {
	var texts []string
	for _, condition := range conditions {
		texts = append(texts, condition.Type+"="+string(condition.Status)+" "+condition.Reason+": "+condition.Message)
	}
	return strings.Join(texts, "; ")
}

func (s *server) config() *mcfgv1.MachineOSConfig {
	s.Helper()
	config := &mcfgv1.MachineOSConfig{}
	if err := s.Get(context.Background(), client.ObjectKey{Name: "worker"}, config); err != nil {
		s.Fatal(err)
	}
	return config
}

// currentBuild waits until the current build is in a phase.
func (s *server) currentBuild(want phase) *mcfgv1.MachineOSBuild {
	s.Helper()
	build := &mcfgv1.MachineOSBuild{}
	s.eventually(func() error {
		name := s.config().Annotations[keys.AnnotationCurrentMachineOSBuild]
		if err := s.Get(context.Background(), client.ObjectKey{Name: name}, build); err != nil {
			return err
		}
		if got := phaseOf(build); got != want {
			return errors.New("MachineOSBuild " + name + " is " + string(got) + ", not " + string(want) + ": " + describeConditions(build.Status.Conditions))
		}
		return nil
	})
	return build
}

// resumedJob waits for a build's Job to be let go.
func (s *server) resumedJob(build *mcfgv1.MachineOSBuild) *batchv1.Job {
	s.Helper()
	job := &batchv1.Job{}
	s.eventually(func() error {
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: jobName(build.Name)}, job); err != nil {
			return err
		}
		if isSuspended(job) {
			return errors.New("the Job is suspended")
		}
		return nil
	})
	return job
}

// podOf makes the pod that the Job controller would make.
func (s *server) podOf(job *batchv1.Job) *corev1.Pod {
	s.Helper()
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = job.Namespace, job.Name+"-0"
	pod.Labels[batchv1.ControllerUidLabel] = string(job.UID)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	s.create(pod)
	return pod
}

func (s *server) writeStatus(object client.Object) {
	s.Helper()
	if err := builders.ReportStatus(context.Background(), s, object); err != nil {
		s.Fatal(err)
	}
}

// completes ends a Job as the Job controller does.
func (s *server) completes(job *batchv1.Job) {
	s.Helper()
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached, LastTransitionTime: now,
		})
	}
	s.writeStatus(job)
}

func TestLifecycleOnAnAPIServer(t *testing.T) {
	s := startServer(t)
	s.create(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}},
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: keys.Namespace, Name: builderServiceAccount}},
		builders.DockerConfig(keys.Namespace, "nodes", "registry.example.com"),
		&corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Namespace: keys.Namespace, Name: keys.ConfigMapTrustBundle},
			Data:       map[string]string{keys.KeyTrustBundle: "PEM"},
		},
	)
	// Each thing that is missing is named in turn.
	s.create(builders.MachineOSConfig("worker", builders.Containerfile(withRun)))
	s.condition(keys.ConditionValid, metav1.ConditionFalse, "PoolNotFound")
	s.create(builders.MachineConfigPool("worker", builders.Rendered(renderedName)))
	s.condition(keys.ConditionValid, metav1.ConditionUnknown, reasonWaitingForRender)
	s.create(aRendered())
	s.condition(keys.ConditionValid, metav1.ConditionFalse, "SecretNotFound")
	s.create(builders.DockerConfig(keys.Namespace, "push", "registry.example.com"))
	s.condition(keys.ConditionValid, metav1.ConditionTrue, reasonValid)

	build := s.currentBuild(mcfgv1.MachineOSBuildPrepared)
	s.condition(keys.ConditionReady, metav1.ConditionFalse, reasonBuilding)
	job := s.resumedJob(build)
	for _, name := range []string{pullSecretName(build.Name), pushSecretName(build.Name)} {
		if err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: name}, &corev1.Secret{}); err != nil {
			t.Error(err)
		}
	}
	pod := s.podOf(job)
	aRunning := aPod()
	pod.Status = aRunning.Status
	for i := range pod.Status.InitContainerStatuses {
		pod.Status.InitContainerStatuses[i].Image = "registry.example.com/builder:1"
	}
	s.writeStatus(pod)
	s.currentBuild(mcfgv1.MachineOSBuilding)

	reported(request.Result{Digest: imageDigest})(pod)
	s.writeStatus(pod)
	s.completes(job)
	build = s.currentBuild(mcfgv1.MachineOSBuildSucceeded)
	s.condition(keys.ConditionReady, metav1.ConditionTrue, reasonReady)
	if got, want := string(s.config().Status.CurrentImagePullSpec), "registry.example.com/os/worker@"+imageDigest; got != want {
		t.Errorf("image %s, want %s", got, want)
	}
	if !build.Status.BuildEnd.After(build.Status.BuildStart.Time) {
		t.Error("the build ends before it starts")
	}
	s.eventually(func() error {
		err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: pushSecretName(build.Name)}, &corev1.Secret{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.New("the push credentials outlive the build")
	})

	t.Run("a rebuild is accepted and forgotten", func(t *testing.T) { s.rebuild(t, build) })
	t.Run("an edit interrupts the build that runs", func(t *testing.T) { s.interrupt(t) })
	t.Run("a Containerfile that does not parse fails without a Job", func(t *testing.T) { s.mistake(t) })
	t.Run("a secret that is corrected reaches a running build", func(t *testing.T) { s.correctSecret(t) })
	t.Run("keys that Ignition does not know are told", func(t *testing.T) { s.unknownKeys(t) })
}

// edit changes the MachineOSConfig as a user does.
func (s *server) edit(change func(*mcfgv1.MachineOSConfig)) {
	s.Helper()
	config := s.config()
	before := config.DeepCopy()
	change(config)
	if err := s.Patch(context.Background(), config, client.MergeFrom(before)); err != nil {
		s.Fatal(err)
	}
}

func (s *server) rebuild(t *testing.T, first *mcfgv1.MachineOSBuild) {
	s.edit(askRebuild("please"))
	s.rebuildIsAnswered(first)
	second := s.currentBuild(mcfgv1.MachineOSBuildPrepared)
	// A value that another one has replaced is not removed.
	reconciler := &configReconciler{client: s.Client}
	s.edit(askRebuild("newer"))
	config := s.config()
	config.ResourceVersion = ""
	if err := reconciler.removeRebuild(context.Background(), config, "older", counters{}); !errors.Is(err, errLeftover) {
		t.Errorf("error %v, want errLeftover", err)
	}
	s.rebuildIsAnswered(second)
}

// rebuildIsAnswered waits until a build after the given one was chosen and the
// request removed.
func (s *server) rebuildIsAnswered(before *mcfgv1.MachineOSBuild) {
	s.Helper()
	s.eventually(func() error {
		config := s.config()
		if _, asked := config.Annotations[keys.AnnotationRebuild]; asked {
			return errors.New("the annotation is still there")
		}
		if config.Annotations[keys.AnnotationCurrentMachineOSBuild] == before.Name {
			return errors.New("no other build was chosen")
		}
		return nil
	})
}

func (s *server) interrupt(t *testing.T) {
	running := s.currentBuild(mcfgv1.MachineOSBuildPrepared)
	s.resumedJob(running)
	s.edit(builders.Containerfile(withoutRun))
	s.eventually(func() error {
		build := &mcfgv1.MachineOSBuild{}
		if err := s.Get(context.Background(), client.ObjectKeyFromObject(running), build); err != nil {
			return err
		}
		if phaseOf(build) != mcfgv1.MachineOSBuildInterrupted {
			return errors.New("it is " + string(phaseOf(build)))
		}
		return nil
	})
	s.eventually(func() error {
		err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: jobName(running.Name)}, &batchv1.Job{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.New("its Job is still there")
	})
	if build := s.currentBuild(mcfgv1.MachineOSBuildPrepared); build.Name == running.Name {
		t.Error("no other build was chosen")
	}
}

func (s *server) mistake(t *testing.T) {
	s.edit(builders.Containerfile(withMistake))
	s.condition(keys.ConditionImageBuildDegraded, metav1.ConditionTrue, reasonBuildFailed)
	build := s.currentBuild(mcfgv1.MachineOSBuildFailed)
	if found := conditionOf(build); found.Reason != "Containerfile" || !strings.Contains(found.Message, "line 2") {
		t.Errorf("%+v", found)
	}
	err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: jobName(build.Name)}, &batchv1.Job{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("a Job was made (%v)", err)
	}
}

// putSecret gives the push secret a content.
func (s *server) putSecret(config string) {
	s.Helper()
	found := &corev1.Secret{}
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: "push"}, found); err != nil {
		s.Fatal(err)
	}
	found.Data = map[string][]byte{corev1.DockerConfigJsonKey: []byte(config)}
	if err := s.Update(context.Background(), found); err != nil {
		s.Fatal(err)
	}
}

func (s *server) correctSecret(t *testing.T) {
	s.putSecret(`{"auths":{"registry.example.com":{"auth":"!!!"}}}`)
	s.edit(builders.Containerfile("FROM configs AS final\nRUN corrected\n"))
	s.condition(keys.ConditionValid, metav1.ConditionFalse, "SecretInvalid")
	s.putSecret(`{"auths":{"registry.example.com":{"auth":"dXNlcjp3cm9uZw=="}}}`)
	s.condition(keys.ConditionValid, metav1.ConditionTrue, reasonValid)
	first := s.currentBuild(mcfgv1.MachineOSBuildPrepared)
	pod := s.podOf(s.resumedJob(first))
	pod.Status = aPod().Status
	for i := range pod.Status.InitContainerStatuses {
		pod.Status.InitContainerStatuses[i].Image = "registry.example.com/builder:1"
	}
	reported(failsWith(request.Registry))(pod)
	s.writeStatus(pod)
	s.currentBuild(mcfgv1.MachineOSBuilding)

	s.putSecret(`{"auths":{"registry.example.com":{"auth":"dXNlcjpyaWdodA=="}}}`)
	second := s.currentBuild(mcfgv1.MachineOSBuildPrepared)
	if second.Name == first.Name {
		t.Fatal("the build goes on with the old secret")
	}
	s.resumedJob(second)
	copied := &corev1.Secret{}
	if err := s.Get(context.Background(), client.ObjectKey{Namespace: keys.Namespace, Name: pushSecretName(second.Name)}, copied); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(copied.Data[corev1.DockerConfigJsonKey]), "dXNlcjpyaWdodA==") {
		t.Error("the new build has the old secret")
	}
}

func (s *server) unknownKeys(t *testing.T) {
	s.create(builders.MachineConfig("50-misspelt", "worker", builders.Ignition(`{"ignition":{"version":"3.4.0"},"strage":{}}`)))
	pool := &mcfgv1.MachineConfigPool{}
	if err := s.Get(context.Background(), client.ObjectKey{Name: "worker"}, pool); err != nil {
		t.Fatal(err)
	}
	pool.Spec.Configuration.Source = []corev1.ObjectReference{{Name: "50-misspelt"}}
	if err := s.Update(context.Background(), pool); err != nil {
		t.Fatal(err)
	}
	says := func(isSaid bool) {
		t.Helper()
		s.eventually(func() error {
			valid := apimeta.FindStatusCondition(s.config().Status.Conditions, keys.ConditionValid)
			if valid.Status == metav1.ConditionTrue && strings.Contains(valid.Message, "strage of MachineConfig 50-misspelt") == isSaid {
				return nil
			}
			return errors.New(string(valid.Status) + " " + valid.Message)
		})
	}
	says(true)
	source := &mcfgv1.MachineConfig{}
	if err := s.Get(context.Background(), client.ObjectKey{Name: "50-misspelt"}, source); err != nil {
		t.Fatal(err)
	}
	source.Spec.Config.Raw = []byte(`{"ignition":{"version":"3.4.0"}}`)
	if err := s.Update(context.Background(), source); err != nil {
		t.Fatal(err)
	}
	says(false)
}
