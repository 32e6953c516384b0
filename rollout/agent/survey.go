package agent

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// surveyInterval is how often the host is looked over: file by file, so that it
// is not done at every pass.
const surveyInterval = 10 * time.Minute

const (
	// lowSysroot and lowBoot are the free bytes below which an image may not fit:
	// some layers, and a kernel with its initramfs.
	lowSysroot = 2 << 30
	lowBoot    = 150 << 20
	// maxNamed is how many files a condition names.
	maxNamed = 10
)

// rivalUnits are other updaters: what they do to a node they do without a drain.
var rivalUnits = []string{
	"bootc-fetch-apply-updates.timer", "rpm-ostreed-automatic.timer", "zincati.service",
}

// survey is what was seen of the host beside bootc.
type survey struct {
	// drifted are files that are not as the image delivers them, with how.
	drifted []string
	rivals  []string
	// freeSpace is nil while nothing is known.
	freeSpace *v1alpha1.FreeSpace
	// isLow is set from a low mark on until there is clearly more.
	isLow bool
}

// isSurveyDue: after a start, a boot, from time to time, and at once when files
// are to be put right from now on.
func (a *Agent) isSurveyDue(in Inputs) bool {
	since := in.Now.Sub(a.memory.surveyed)
	isNewlyWanted := in.Spec.CorrectDrift && !a.memory.hasCorrected && len(a.memory.survey.drifted) > 0
	return a.memory.surveyed.IsZero() || since < 0 || since >= surveyInterval || isNewlyWanted
}

// look makes a survey. What cannot be seen is logged and counts as nothing: it
// says nothing about the image.
func (a *Agent) look(ctx context.Context, in Inputs) {
	a.memory.surveyed, a.memory.hasCorrected = in.Now, in.Spec.CorrectDrift
	a.memory.survey = survey{
		drifted:   a.findDrift(ctx, in),
		rivals:    a.findRivals(ctx),
		freeSpace: a.measure(ctx),
		isLow:     a.memory.survey.isLow,
	}
	a.memory.survey.isLow = isLow(a.memory.survey)
	driftedFiles.Set(float64(len(a.memory.survey.drifted)))
}

func (a *Agent) findDrift(ctx context.Context, in Inputs) []string {
	drifted, err := checkDrift(a.host, in.Spec.CorrectDrift)
	if err != nil {
		log.FromContext(ctx).Error(err, "files of the image could not be compared")
	}
	return drifted
}

func (a *Agent) findRivals(ctx context.Context) []string {
	var rivals []string
	for _, unit := range rivalUnits {
		isActive, err := a.host.IsActive(ctx, unit)
		if err != nil {
			log.FromContext(ctx).Error(err, "state of a unit is not known", "unit", unit)
		}
		if isActive {
			rivals = append(rivals, unit)
		}
	}
	return rivals
}

// measure leaves 0 for what does not exist: not every host has a /boot.
func (a *Agent) measure(ctx context.Context) *v1alpha1.FreeSpace {
	sysroot, err := a.host.FreeBytes("/sysroot")
	if err != nil {
		log.FromContext(ctx).Error(err, "free space is not known")
		return nil
	}
	boot, err := a.host.FreeBytes("/boot")
	if err != nil {
		boot = 0
	}
	return &v1alpha1.FreeSpace{SysrootMiB: sysroot >> 20, BootMiB: boot >> 20}
}

// isLow has a gap between its two marks, so that the condition does not flap.
func isLow(s survey) bool {
	if s.freeSpace == nil {
		return false
	}
	factor := int64(10)
	if s.isLow {
		factor = 12
	}
	isBelow := func(free, mark int64) bool { return free > 0 && free<<20 < mark/10*factor }
	return isBelow(s.freeSpace.SysrootMiB, lowSysroot) || isBelow(s.freeSpace.BootMiB, lowBoot)
}

// setSurvey sets the conditions that are there only while something is wrong.
func setSurvey(set func(kind string, isTrue bool, reason, message string), conditions *[]metav1.Condition, s survey) {
	low := ""
	if s.isLow {
		low = fmt.Sprintf("an image may not fit: below %d MiB are free in /sysroot, or below %d MiB in /boot; see status.freeSpace", lowSysroot>>20, lowBoot>>20)
	}
	rivals := ""
	if len(s.rivals) > 0 {
		rivals = strings.Join(s.rivals, ", ") + " may update or reboot the node at any time: disable and mask it"
	}
	for _, finding := range []struct{ kind, reason, message string }{
		{v1alpha1.ConditionDrifted, "FilesChanged", named(s.drifted)},
		{v1alpha1.ConditionRivalUpdater, "UnitActive", rivals},
		{v1alpha1.ConditionLowDiskSpace, "LowDiskSpace", low},
	} {
		if finding.message == "" {
			meta.RemoveStatusCondition(conditions, finding.kind)
			continue
		}
		set(finding.kind, true, finding.reason, finding.message)
	}
}

func named(items []string) string {
	if len(items) <= maxNamed {
		return strings.Join(items, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(items[:maxNamed], ", "), len(items)-maxNamed)
}
