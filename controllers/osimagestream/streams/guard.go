package streams

import (
	"fmt"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// RuntimeGuard keeps a container runtime from becoming the default one on an OS
// image that lacks it: no pod would start there.
type RuntimeGuard struct {
	// Object is OSImageStream cluster; nil: there is none.
	Object *mcfgv1.OSImageStream
	// IsUnlabelled: nobody reads the labels of images here, so that what is known
	// of a stream by its name has to do, and what nothing is known of passes.
	IsUnlabelled bool
}

// RuntimeMissingError says that an OS image lacks the runtime that was chosen.
type RuntimeMissingError struct {
	Choice RuntimeChoice
	// Subject is the stream or the image.
	Subject string
	// Runtimes that it has.
	Runtimes []string
	// Others are the streams that have the runtime.
	Others []string
}

func (e *RuntimeMissingError) Error() string {
	return fmt.Sprintf("%s makes %s the default container runtime, and %s has only %s; "+
		"choose %s there, or a stream with %s (%s)",
		e.Choice.By, e.Choice.Runtime, e.Subject, strings.Join(e.Runtimes, ", "),
		strings.Join(e.Runtimes, " or "), e.Choice.Runtime, choiceOf(e.Others))
}

// RuntimeUnknownError says that it is not known whether an OS image has the runtime
// that was chosen, because its labels have not been read.
type RuntimeUnknownError struct {
	// Choice, where it can be told.
	Choice RuntimeChoice
	// Subject is the stream or the image.
	Subject string
	// Why they could not be read; empty: nobody has tried yet, so that waiting is all
	// there is to do.
	Why string
}

func (e *RuntimeUnknownError) Error() string {
	wish := "a default container runtime is chosen"
	if e.Choice.Runtime != "" {
		wish = fmt.Sprintf("%s makes %s the default container runtime", e.Choice.By, e.Choice.Runtime)
	}
	if e.Why == "" {
		return fmt.Sprintf("%s; whether %s has it is known when the labels of its image have been read", wish, e.Subject)
	}
	return fmt.Sprintf("%s, and whether %s has it is not known: %s; mend that, or choose %s, which every OS image has",
		wish, e.Subject, e.Why, RuntimeCrun)
}

// target is what a container runtime has to be there on.
type target struct {
	// subject names it for the user.
	subject string
	// runtimes that it has; empty: unknown.
	runtimes []string
	// isRead: its image's labels have been looked at, and what they do not say
	// nobody knows.
	isRead bool
	// unread is why they could not be read; empty: nobody has tried.
	unread string
}

// CheckImage returns an error where an OS image lacks the default container
// runtime that an Ignition config sets: a *RuntimeMissingError; a
// *RuntimeUnknownError while the image's labels have not been read; or one that
// names a file of which that cannot be told. What the image has is known of its
// stream, else of its labels. One with every runtime passes whatever the files say,
// and so does one whose labels say nothing.
func (g RuntimeGuard) CheckImage(image string, config types.Config) error {
	return g.checkConfig(g.ofImage(image), config)
}

func (g RuntimeGuard) ofStream(stream string) target {
	traits, isRead := traitsOf(g.Object, stream)
	found := target{subject: `OS image stream "` + stream + `"`, isRead: isRead || g.IsUnlabelled, unread: traits.Unread}
	if found.isRead || found.unread != "" {
		found.runtimes = RuntimesOf(g.Object, stream)
	}
	// What is known of a name has to do where the image does not answer.
	found.isRead = found.isRead || len(found.runtimes) > 0
	return found
}

// ofImage is the stream that an image belongs to, else what its labels tell.
func (g RuntimeGuard) ofImage(image string) target {
	if stream := OfImage(g.Object, image); stream != "" {
		return g.ofStream(stream)
	}
	override := DecodeOverrides(g.Object)[digestOf(image)]
	found := target{
		subject: "OS image " + image, runtimes: override.Runtimes,
		isRead: override.Read || g.IsUnlabelled, unread: override.Unread,
	}
	if len(found.runtimes) == 0 {
		found.runtimes = RuntimesOf(g.Object, override.Stream)
	}
	if g.Object == nil {
		found.unread = "labels are read once there is an OSImageStream cluster; name a stream in ConfigMap imagemode-streams"
	}
	return found
}

func (g RuntimeGuard) checkConfig(target target, config types.Config) error {
	hasAll := slices.Contains(target.runtimes, RuntimeCrun) && slices.Contains(target.runtimes, RuntimeRunc)
	if hasAll || target.isRead && len(target.runtimes) == 0 {
		return nil
	}
	choice, err := DefaultRuntime(config)
	if !target.isRead {
		if err != nil || g.isInDoubt(choice.Runtime) {
			return &RuntimeUnknownError{Choice: choice, Subject: target.subject, Why: target.unread}
		}
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s has only %s, and the default container runtime cannot be told: %w",
			target.subject, strings.Join(target.runtimes, ", "), err)
	}
	return g.checkRuntime(target, choice)
}

// isInDoubt reports whether some OS images have a runtime and others do not. Every
// one has crun, and what no stream has comes with the configuration.
func (g RuntimeGuard) isInDoubt(runtime string) bool {
	return runtime != "" && runtime != RuntimeCrun && (runtime == RuntimeRunc || len(g.streamsWith(runtime)) > 0)
}

// checkRuntime returns a *RuntimeMissingError where the chosen runtime is not
// there.
func (g RuntimeGuard) checkRuntime(target target, choice RuntimeChoice) error {
	isOfStreams := choice.Runtime == RuntimeCrun || g.isInDoubt(choice.Runtime)
	if !isOfStreams || slices.Contains(target.runtimes, choice.Runtime) {
		return nil
	}
	return &RuntimeMissingError{Choice: choice, Subject: target.subject, Runtimes: target.runtimes, Others: g.streamsWith(choice.Runtime)}
}

func (g RuntimeGuard) streamsWith(runtime string) []string {
	if g.Object == nil {
		return nil
	}
	var names []string
	for _, name := range Names(g.Object.Status.AvailableStreams) {
		if slices.Contains(RuntimesOf(g.Object, name), runtime) {
			names = append(names, name)
		}
	}
	return names
}
