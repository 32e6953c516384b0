package machineosbuild

import (
	"encoding/json"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	keys "github.com/imagemode/imagemode/api/machineconfiguration"
)

// counters is the one record that no input can restore. It stands in an
// annotation of the MachineOSConfig, and as a copy on each of its builds.
type counters struct {
	// Rebuild is the number of rebuilds accepted so far.
	Rebuild int `json:"rebuild,omitempty"`
	// HandledValue is the value of the rebuild annotation that was accepted and
	// is still there; it is forgotten together with the annotation, so that the
	// same value is a new request next time.
	HandledValue *string `json:"handledValue,omitempty"`
	// Attempt tells apart the builds of the same inputs: what ended cannot be
	// started again, so trying again is another object.
	Attempt int `json:"attempt,omitempty"`
	// ForInputs is the identity of the inputs that Attempt counts for.
	ForInputs string `json:"forInputs,omitempty"`
	// NotBefore is when a build that failed is tried again by itself.
	NotBefore *metav1.Time `json:"notBefore,omitempty"`
}

func (c counters) encode() string {
	raw, err := json.Marshal(c)
	if err != nil {
		// A struct of numbers, strings and a time.
		panic(err)
	}
	return string(raw)
}

// readCounters returns the counters of a MachineOSConfig. If the annotation was
// lost or damaged, they are those of its newest build. builds are its own,
// oldest first.
func readCounters(config *mcfgv1.MachineOSConfig, builds []mcfgv1.MachineOSBuild) counters {
	if found, ok := decodeCounters(config.Annotations); ok {
		return found
	}
	for i := len(builds) - 1; i >= 0; i-- {
		if found, ok := decodeCounters(builds[i].Annotations); ok {
			return found
		}
	}
	return counters{}
}

func decodeCounters(annotations map[string]string) (counters, bool) {
	raw, ok := annotations[keys.AnnotationBuildCounters]
	if !ok {
		return counters{}, false
	}
	var found counters
	if err := json.Unmarshal([]byte(raw), &found); err != nil {
		return counters{}, false
	}
	return found, true
}

// acceptRebuild counts a request for a rebuild that was not counted yet. An
// empty value is a request, too.
func (c counters) acceptRebuild(annotations map[string]string) counters {
	value, asked := annotations[keys.AnnotationRebuild]
	switch {
	case !asked:
		c.HandledValue = nil
	case c.HandledValue == nil || *c.HandledValue != value:
		c.Rebuild++
		c.HandledValue = &value
	}
	return c
}

// countAttempt keeps the attempt for the inputs it was counted for. For other
// inputs it is the lowest one whose build does not exist or has not come to a
// bad end.
func (c counters) countAttempt(identity string, isSpent func(attempt int) bool) counters {
	if c.ForInputs == identity {
		return c
	}
	c.ForInputs, c.Attempt, c.NotBefore = identity, 0, nil
	for isSpent(c.Attempt) {
		c.Attempt++
	}
	return c
}
