//go:build envtest

package machineosbuild

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
)

var (
	benchPools = flag.Int("bench.pools", 200, "pools with a MachineOSConfig each")
	benchWork  = flag.Int("bench.workers", defaultWorkers, "reconciles at the same time, of each kind")
	benchIdle  = flag.Duration("bench.idle", 10*time.Minute, "how long nothing happens")
)

// BenchmarkControllers lets many pools build at once on a real API server, with
// builder pods that end at once, then edits each, then does nothing.
func BenchmarkControllers(b *testing.B) {
	for range b.N {
		bench := startBench(b)
		b.ReportMetric(bench.converge().Seconds(), "s/converged")
		edits := bench.edit()
		b.ReportMetric(edits[len(edits)/2].Seconds(), "s/edit-to-Job-p50")
		b.ReportMetric(edits[len(edits)-1].Seconds(), "s/edit-to-Job-max")
		b.ReportMetric(bench.idle(), "writes/idle")
		b.ReportMetric(reconcileQuantile(b, 0.99)*1000, "ms/reconcile-p99")
		b.ReportMetric(residentMegabytes(b), "MB-resident")
	}
}

type bench struct {
	*testing.B
	client.WithWatch
	started map[string]time.Time
	mutex   sync.Mutex
}

func startBench(b *testing.B) *bench {
	b.Helper()
	api := startControllers(b, func(options *Options) { options.MaxConcurrentBuilds, options.Workers = *benchPools, *benchWork })
	made := &bench{B: b, WithWatch: api, started: map[string]time.Time{}}
	made.make(
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: keys.Namespace}},
		builders.DockerConfig(keys.Namespace, "push", "registry.example.com"),
		builders.DockerConfig(keys.Namespace, "nodes", "registry.example.com"),
	)
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		made.endBuilds(ctx)
	}()
	b.Cleanup(func() { stop(); <-stopped })
	return made
}

func (b *bench) make(objects ...client.Object) {
	b.Helper()
	for _, object := range objects {
		if err := b.Create(context.Background(), object); err != nil {
			b.Fatal(err)
		}
	}
}

// endBuilds stands in for the Job controller and the kubelets: a Job that is let
// go gets a pod which has ended with an image.
func (b *bench) endBuilds(ctx context.Context) {
	done := map[string]bool{}
	for ctx.Err() == nil {
		events, err := b.Watch(ctx, &batchv1.JobList{}, client.InNamespace(keys.Namespace))
		if err != nil {
			continue // the namespace is made after this has started
		}
		for event := range events.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok || event.Type == watch.Deleted {
				continue
			}
			b.noteJob(job.Name)
			if !isSuspended(job) && !hasEnded(job) && !done[string(job.UID)] && b.endBuild(ctx, job) == nil {
				done[string(job.UID)] = true
			}
		}
	}
}

func (b *bench) noteJob(name string) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	if _, known := b.started[name]; !known {
		b.started[name] = time.Now()
	}
}

func (b *bench) endBuild(ctx context.Context, job *batchv1.Job) error {
	pod := &corev1.Pod{ObjectMeta: *job.Spec.Template.ObjectMeta.DeepCopy(), Spec: *job.Spec.Template.Spec.DeepCopy()}
	pod.Namespace, pod.Name = job.Namespace, job.Name+"-0"
	pod.Spec.ServiceAccountName = ""
	pod.Labels[batchv1.ControllerUidLabel] = string(job.UID)
	pod.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(job, batchv1.SchemeGroupVersion.WithKind("Job"))}
	if err := client.IgnoreAlreadyExists(b.Create(ctx, pod)); err != nil {
		return err
	}
	ended := aPod(reported(request.Result{Digest: "sha256:" + hashOfText(job.Name)}))
	pod.Status = ended.Status
	for i := range pod.Status.InitContainerStatuses {
		pod.Status.InitContainerStatuses[i].Image = "registry.example.com/builder:1"
	}
	if err := builders.ReportStatus(ctx, b, pod); err != nil {
		return err
	}
	now := metav1.Now()
	job.Status.StartTime, job.Status.CompletionTime, job.Status.Succeeded = &now, &now, 1
	for _, kind := range []batchv1.JobConditionType{batchv1.JobSuccessCriteriaMet, batchv1.JobComplete} {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{
			Type: kind, Status: corev1.ConditionTrue, Reason: batchv1.JobReasonCompletionsReached, LastTransitionTime: now,
		})
	}
	return builders.ReportStatus(ctx, b, job)
}

func benchPool(number int) string { return fmt.Sprintf("pool-%03d", number) }

// converge makes everything and waits until every MachineOSConfig is Ready.
func (b *bench) converge() time.Duration {
	b.Helper()
	began := time.Now()
	for number := range *benchPools {
		name := benchPool(number)
		rendered := aRendered()
		rendered.Name = "rendered-" + name + "-" + hashOfText(name)[:hashDigits]
		b.make(rendered, builders.MachineConfigPool(name, builders.Rendered(rendered.Name)),
			builders.MachineOSConfig(name, builders.Containerfile(withRun)))
	}
	b.waitReady()
	return time.Since(began)
}

func (b *bench) waitReady() {
	b.Helper()
	deadline := time.Now().Add(10 * time.Minute)
	for {
		var configs mcfgv1.MachineOSConfigList
		if err := b.List(context.Background(), &configs); err != nil {
			b.Fatal(err)
		}
		ready := 0
		for i := range configs.Items {
			found := apimeta.FindStatusCondition(configs.Items[i].Status.Conditions, keys.ConditionReady)
			if found != nil && found.Status == metav1.ConditionTrue && found.ObservedGeneration == configs.Items[i].Generation {
				ready++
			}
		}
		if ready == *benchPools {
			return
		}
		if time.Now().After(deadline) {
			b.Fatalf("%d of %d are Ready", ready, *benchPools)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

// edit edits one MachineOSConfig after the other, and returns, in order, the
// times from the edit until its Job is seen.
func (b *bench) edit() []time.Duration {
	b.Helper()
	var took []time.Duration
	for number := range *benchPools {
		config := &mcfgv1.MachineOSConfig{}
		if err := b.Get(context.Background(), client.ObjectKey{Name: benchPool(number)}, config); err != nil {
			b.Fatal(err)
		}
		before := config.DeepCopy()
		builders.Containerfile("FROM configs AS final\nRUN echo " + strconv.Itoa(number) + "\n")(config)
		known := b.jobsOf(config.Name)
		edited := time.Now()
		if err := b.Patch(context.Background(), config, client.MergeFrom(before)); err != nil {
			b.Fatal(err)
		}
		for b.jobsOf(config.Name) == known {
			if time.Since(edited) > time.Minute {
				b.Fatalf("no Job for the edit of %s", config.Name)
			}
			time.Sleep(5 * time.Millisecond)
		}
		took = append(took, time.Since(edited))
	}
	b.waitReady()
	slices.Sort(took)
	return took
}

func (b *bench) jobsOf(config string) int {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	count := 0
	for job := range b.started {
		if strings.HasPrefix(job, "build-"+config+"-") {
			count++
		}
	}
	return count
}

// idle counts the writes to the kinds that builds are about while nothing
// happens, by the resource versions that the server gives out.
func (b *bench) idle() float64 {
	b.Helper()
	time.Sleep(5 * time.Second) // events and clean-up of the builds before
	before := b.versions()
	time.Sleep(*benchIdle)
	changed := 0
	after := b.versions()
	for object, version := range after {
		if before[object] != version {
			b.Logf("written while idle: %s", object)
			changed++
		}
	}
	return float64(changed + max(0, len(before)-len(after)))
}

func (b *bench) versions() map[string]string {
	b.Helper()
	versions := map[string]string{}
	for _, list := range []client.ObjectList{
		&mcfgv1.MachineOSConfigList{}, &mcfgv1.MachineOSBuildList{}, &batchv1.JobList{}, &corev1.SecretList{}, &corev1.ConfigMapList{},
	} {
		if err := b.List(context.Background(), list); err != nil {
			b.Fatal(err)
		}
		for _, object := range objectsOf(list) {
			versions[fmt.Sprintf("%T %s", object, object.GetName())] = object.GetResourceVersion()
		}
	}
	return versions
}

// reconcileQuantile reads controller-runtime's histogram of reconcile times; the
// answer is the upper bound of the bucket it falls into, in seconds.
func reconcileQuantile(b *testing.B, quantile float64) float64 {
	b.Helper()
	families, err := metrics.Registry.Gather()
	if err != nil {
		b.Fatal(err)
	}
	total, buckets := uint64(0), map[float64]uint64{}
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_time_seconds" {
			continue
		}
		for _, metric := range family.GetMetric() {
			total += addBuckets(buckets, metric.GetHistogram())
		}
	}
	bounds := make([]float64, 0, len(buckets))
	for bound := range buckets {
		bounds = append(bounds, bound)
	}
	slices.Sort(bounds)
	for _, bound := range bounds {
		if float64(buckets[bound]) >= quantile*float64(total) {
			return bound
		}
	}
	b.Fatalf("%d reconciles, of which too many are above all buckets", total)
	return 0
}

func addBuckets(buckets map[float64]uint64, histogram *dto.Histogram) uint64 {
	for _, bucket := range histogram.GetBucket() {
		buckets[bucket.GetUpperBound()] += bucket.GetCumulativeCount()
	}
	return histogram.GetSampleCount()
}

// residentMegabytes is the memory of this process: the controllers, their cache,
// and this benchmark's own lists.
func residentMegabytes(b *testing.B) float64 {
	b.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "VmRSS:"); found {
			kilobytes, err := strconv.ParseFloat(strings.Fields(rest)[0], 64)
			if err != nil {
				b.Fatal(err)
			}
			return kilobytes / 1024
		}
	}
	b.Fatal("/proc/self/status has no VmRSS")
	return 0
}
