package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

// change is one case.
type change struct {
	isLarge, isPulledAfterDrain bool
}

// cases, alternating, so that a machine that gets slower harms all of them.
var cases = []change{{false, false}, {true, false}, {false, true}, {true, true}}

func (c change) name() string {
	size, order := "small change", "staged first"
	if c.isLarge {
		size = "large change"
	}
	if c.isPulledAfterDrain {
		order = "pulled after the drain"
	}
	return order + ", " + size
}

type bench struct {
	*story.Story
	settings
	// took are seconds out of service, by case.
	took map[string][]float64
}

// caseTimeout bounds one case on all workers.
const caseTimeout = 10 * time.Minute

// measure takes a fresh image to every worker, one after the other.
func (b *bench) measure(ctx context.Context, c change) error {
	ctx, cancel := context.WithTimeoutCause(ctx, caseTimeout, fmt.Errorf("not done within %s", caseTimeout))
	defer cancel()
	size := int64(0)
	if c.isLarge {
		size = b.bytes
	}
	image, err := local.Derive(ctx, nil, size)
	if err != nil {
		return err
	}
	names := b.Workers.Names()
	for _, worker := range names[:min(b.workers, len(names))] {
		before := b.OutagesOf(worker)
		if err := b.update(ctx, worker, image, c.isPulledAfterDrain); err != nil {
			return err
		}
		took, err := b.AwaitOutages(ctx, worker, before+1)
		if err != nil {
			return err
		}
		fmt.Printf("%s: %.1f s\n", worker, took.Seconds())
		b.took[c.name()] = append(b.took[c.name()], took.Seconds())
	}
	return nil
}

// update takes the image to one worker over a slow line.
func (b *bench) update(ctx context.Context, worker, image string, isPulledAfterDrain bool) (err error) {
	line, err := b.SlowRegistry(ctx, worker, b.rate)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.TakeAway(worker, line)) }()
	if isPulledAfterDrain {
		return b.drainAndPull(ctx, worker, image)
	}
	return b.rollOut(ctx, worker, image)
}

func (b *bench) rollOut(ctx context.Context, worker, image string) error {
	err := b.ApplyRollout(ctx, image, func(spec *v1alpha1.ImageRolloutSpec) {
		spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/hostname": worker}}
		spec.Soak = &metav1.Duration{}
	})
	if err != nil {
		return err
	}
	if _, err := b.AwaitNode(ctx, worker, "to run the image", story.Runs(image)); err != nil {
		return err
	}
	_, err = b.RolloutCondition(ctx, v1alpha1.ConditionProgressing, metav1.ConditionFalse, "Updated")
	return err
}

// drainAndPull is the order of before, made by hand: the node is cordoned and
// drained, then the rollout may download, and what took it out of service puts it
// back.
func (b *bench) drainAndPull(ctx context.Context, worker, image string) error {
	if _, err := b.Cluster.Kubectl(ctx, "drain", worker, "--ignore-daemonsets", "--delete-emptydir-data"); err != nil {
		return err
	}
	if err := b.rollOut(ctx, worker, image); err != nil {
		return err
	}
	_, err := b.Cluster.Kubectl(ctx, "uncordon", worker)
	if err != nil {
		return err
	}
	return b.AwaitService(ctx, worker)
}

// report prints the medians beside the limit, and fails over it.
func (b *bench) report() error {
	fmt.Printf("\nTime out of service, from cordon to uncordon: large change %.1f GB at %.0f MB/s, soak 0s\n", float64(b.bytes)/1e9, float64(b.rate)/1e6)
	for _, c := range cases {
		fmt.Printf("  %-40s median %6.1f s of %.1f\n", c.name(), median(b.took[c.name()]), b.took[c.name()])
	}
	added := func(after bool) float64 {
		return median(b.took[change{true, after}.name()]) - median(b.took[change{false, after}.name()])
	}
	fmt.Printf("  the large change adds %.1f s when staged first (limit %.1f), %.1f s when pulled after the drain (the line alone: %.1f)\n",
		added(false), b.limit, added(true), float64(b.bytes)/float64(b.rate))
	if added(false) > b.limit {
		return fmt.Errorf("staged first, the large change adds %.1f s, %.1f at most", added(false), b.limit)
	}
	return nil
}

// median of an even number is the mean of the two in the middle.
func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}
