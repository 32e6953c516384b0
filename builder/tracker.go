package builder

import (
	"fmt"
	"strings"

	"github.com/openshift/imagebuilder"

	"github.com/imagemode/imagemode/containerfiles"
)

// lineTracker follows which line of the user's text runs. buildah's errors do
// not say it, and what it prints can be printed by a RUN as well; its log hook
// is called with each instruction before it runs, stage after stage.
type lineTracker struct {
	plan  *containerfiles.Plan
	out   *progress
	nodes []trackedNode
	next  int

	// line and instruction that ran last; 0 before the first.
	line        int
	instruction string
}

type trackedNode struct {
	line     int
	original string
	isFrom   bool
	// stage name after AS, of a FROM.
	stage string
}

func newLineTracker(plan *containerfiles.Plan, out *progress) *lineTracker {
	tracker := &lineTracker{plan: plan, out: out}
	parsed, err := imagebuilder.ParseDockerfile(strings.NewReader(plan.Text))
	if err != nil {
		return tracker // the build fails with the same error, without a line
	}
	for _, node := range parsed.Children {
		tracked := trackedNode{line: node.StartLine, original: strings.TrimSpace(node.Original), isFrom: strings.EqualFold(node.Value, "from")}
		if words := strings.Fields(node.Original); tracked.isFrom && len(words) >= 4 && strings.EqualFold(words[len(words)-2], "as") {
			tracked.stage = words[len(words)-1]
		}
		tracker.nodes = append(tracker.nodes, tracked)
	}
	return tracker
}

// rewind follows the text from its start again.
func (t *lineTracker) rewind() { t.next, t.line, t.instruction = 0, 0, "" }

// log is buildah's hook: a message is an instruction as the user wrote it, with
// a summary of its heredocs behind.
func (t *lineTracker) log(format string, args ...any) {
	if t.plan.IsOwn {
		return
	}
	message := strings.TrimSpace(fmt.Sprintf(format, args...))
	if strings.HasPrefix(message, "COMMIT") {
		return
	}
	for i := t.next; i < len(t.nodes); i++ {
		if !t.nodes[i].matches(message) {
			continue
		}
		t.next = i + 1
		t.line = t.plan.UserLine(t.nodes[i].line)
		t.instruction = t.nodes[i].original
		t.out.printf("  line %d: %s", t.line, clean(t.instruction))
		return
	}
	t.out.printf("  %s", clean(message))
}

func (n trackedNode) matches(message string) bool {
	if !n.isFrom {
		return strings.HasPrefix(message, n.original)
	}
	if !strings.HasPrefix(message, "FROM ") {
		return false
	}
	_, stage, named := strings.Cut(message, " AS ")
	return named && stage == n.stage || !named && n.stage == ""
}
