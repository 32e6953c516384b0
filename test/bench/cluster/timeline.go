package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// seen is an object as the API server told of it, and when it did.
type seen struct {
	object any
	at     time.Time
}

// watch tells of builds, Jobs and pods from now on.
func (b *bench) watch(ctx context.Context) (<-chan seen, error) {
	events := make(chan seen, 1000)
	for _, list := range []client.ObjectList{&mcfgv1.MachineOSBuildList{}, &batchv1.JobList{}, &corev1.PodList{}} {
		known := map[string]bool{}
		if err := b.told.Cluster.Client.List(ctx, list); err != nil {
			return nil, err
		}
		_ = meta.EachListItem(list, func(object runtime.Object) error {
			known[string(object.(client.Object).GetUID())] = true
			return nil
		})
		stream, err := b.told.Cluster.Client.Watch(ctx, list)
		if err != nil {
			return nil, err
		}
		go pass(ctx, stream, known, events)
	}
	return events, nil
}

// pass leaves out what was there before.
func pass(ctx context.Context, stream watch.Interface, known map[string]bool, events chan<- seen) {
	defer stream.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case event, open := <-stream.ResultChan():
			object, isObject := event.Object.(client.Object)
			if !open {
				return
			}
			if isObject && event.Type != watch.Deleted && !known[string(object.GetUID())] {
				events <- seen{object, time.Now()}
			}
		}
	}
}

// follow notes when each thing was seen first, until the build has ended.
func follow(ctx context.Context, events <-chan seen, begun time.Time) (lines string, took time.Duration, err error) {
	var text strings.Builder
	noted := map[string]bool{}
	for {
		select {
		case <-ctx.Done():
			return text.String(), 0, context.Cause(ctx)
		case event := <-events:
			for _, mark := range marksOf(event.object) {
				if !noted[mark] {
					noted[mark] = true
					fmt.Fprintf(&text, "  %6.2f s  %s\n", event.at.Sub(begun).Seconds(), mark)
				}
			}
			switch {
			case noted[markFailed]:
				return text.String(), 0, errors.New("the build failed")
			case noted[markSucceeded]:
				return text.String(), event.at.Sub(begun), nil
			}
		}
	}
}

const (
	markSucceeded = "MachineOSBuild Succeeded"
	markFailed    = "MachineOSBuild Failed"
)

// marksOf names what an object has come to.
func marksOf(object any) []string {
	switch object := object.(type) {
	case *mcfgv1.MachineOSBuild:
		return buildMarks(object)
	case *batchv1.Job:
		return jobMarks(object)
	case *corev1.Pod:
		if object.Labels[machineconfiguration.LabelMachineOSBuild] != "" {
			return podMarks(object)
		}
	}
	return nil
}

func buildMarks(build *mcfgv1.MachineOSBuild) []string {
	marks := []string{"MachineOSBuild created"}
	for _, condition := range build.Status.Conditions {
		if condition.Status == "True" && condition.Type != string(mcfgv1.MachineOSBuildPrepared) {
			marks = append(marks, "MachineOSBuild "+condition.Type)
		}
	}
	return marks
}

func jobMarks(job *batchv1.Job) []string {
	marks := []string{"Job created"}
	if job.Spec.Suspend != nil && !*job.Spec.Suspend {
		marks = append(marks, "Job resumed")
	}
	for _, condition := range job.Status.Conditions {
		if condition.Type == batchv1.JobComplete {
			marks = append(marks, "Job complete")
		}
	}
	return marks
}

func podMarks(pod *corev1.Pod) []string {
	marks := []string{"pod created"}
	if pod.Spec.NodeName != "" {
		marks = append(marks, "pod scheduled")
	}
	for _, status := range append(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses...) {
		if status.State.Running != nil || status.State.Terminated != nil {
			marks = append(marks, "container "+status.Name+" started")
		}
		if status.State.Terminated != nil {
			marks = append(marks, "container "+status.Name+" ended")
		}
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		marks = append(marks, "pod succeeded")
	}
	return marks
}
