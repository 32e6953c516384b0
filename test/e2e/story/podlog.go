package story

import (
	"bufio"
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// outputLines is how many lines of one step's output are shown: enough to see
// that something happens, few enough to see the steps.
const outputLines = 8

// outputPrefix begins the lines of a builder's log that a step's programs
// printed; all others are the builder's own.
const outputPrefix = "  | "

// followLog prints a builder's log line by line until it or the context ends.
func (s *Story) followLog(ctx context.Context, pod *corev1.Pod) {
	options := &corev1.PodLogOptions{Follow: true, Container: pod.Spec.Containers[0].Name}
	stream, err := s.Cluster.Core.CoreV1().Pods(pod.Namespace).GetLogs(pod.Name, options).Stream(ctx)
	if err != nil {
		return // the report at the end tells the same
	}
	defer stream.Close()
	show := &logFilter{}
	for lines := bufio.NewScanner(stream); lines.Scan(); {
		if line, ok := show.next(lines.Text()); ok {
			s.Log.Line("    %s", line)
		}
	}
}

// logFilter shortens the output of each step.
type logFilter struct{ shown int }

// next returns what to show for a line, if anything.
func (f *logFilter) next(line string) (string, bool) {
	if !strings.HasPrefix(line, outputPrefix) {
		f.shown = 0
		return line, true
	}
	f.shown++
	switch {
	case f.shown <= outputLines:
		return line, true
	case f.shown == outputLines+1:
		return outputPrefix + "…", true
	default:
		return "", false
	}
}
