package machineosbuild

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/builder/request"
)

var stepped = request.Result{Digest: imageDigest, Steps: []request.Step{
	{Name: "configs", Key: strings.Repeat("a", 64)}, {Name: "user", Key: strings.Repeat("b", 64)},
}}

func (w *world) stepTags() stepTags {
	w.t.Helper()
	found, err := find[corev1.ConfigMap](w.t.Context(), w.client, keys.Namespace, keys.ConfigMapStepTags)
	if err != nil {
		w.t.Fatal(err)
	}
	return decodeStepTags(found)
}

func TestTagsOfStepsGoTwoWeeksAfterTheirLastBuild(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(stepped)
	w.settle()
	configs := repository + ":step-" + strings.Repeat("a", 64)
	if tags := w.stepTags(); len(tags) != 2 || !tags[configs].After(someTime) {
		t.Fatalf("listed: %v", tags)
	}
	w.shelf[configs] = ImageFacts{Digest: digestNumber(1)}
	w.now = w.now.Add(stepTagsKept - 2*time.Minute)
	w.prune()
	if _, there := w.shelf[configs]; !there {
		t.Fatal("it went before its time")
	}
	w.now = w.now.Add(2 * time.Minute)
	w.prune()
	if _, there := w.shelf[configs]; there || len(w.stepTags()) != 0 {
		t.Errorf("it stays; listed: %v", w.stepTags())
	}
}

func TestATagThatIsNamedAgainStays(t *testing.T) {
	tags := stepTags{}
	if !tags.note(repository, []string{"step-a"}, someTime) || tags.note(repository, []string{"step-a"}, someTime.Add(time.Hour)) {
		t.Error("what is new is written, and what is fresh is not")
	}
	later := someTime.Add(stepTagsKept - time.Hour)
	if !tags.note(repository, []string{"step-a"}, later) || len(tags.outdated(someTime.Add(stepTagsKept))) != 0 {
		t.Errorf("it is outdated: %v", tags)
	}
	if got := tags.outdated(later.Add(stepTagsKept)); len(got) != 1 {
		t.Errorf("outdated: %v", got)
	}
}

func TestTheListOfTagsIsBounded(t *testing.T) {
	tags := stepTags{}
	for number := range maxStepTags + 10 {
		tags[fmt.Sprintf("r:step-%05d", number)] = metav1.NewTime(someTime.Add(time.Duration(number) * time.Second))
	}
	tags.note(repository, nil, someTime)
	if _, oldest := tags["r:step-00009"]; oldest || len(tags) != maxStepTags {
		t.Errorf("%d tags; the oldest is there: %t", len(tags), oldest)
	}
}

func TestATagThatCannotBeDeletedIsTriedAgain(t *testing.T) {
	w := newWorld(t)
	w.settle()
	w.builderEnds(stepped)
	w.settle()
	w.now = w.now.Add(stepTagsKept)
	w.refuses = func(asked, _ string) error {
		if asked == "untag" {
			return errors.New("connection refused")
		}
		return nil
	}
	if err := w.pruner.prune(t.Context()); err == nil {
		t.Error("no error")
	}
	if tags := w.stepTags(); len(tags) != 2 {
		t.Errorf("listed: %v", tags)
	}
}
