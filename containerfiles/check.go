package containerfiles

import (
	"errors"
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/moby/buildkit/frontend/dockerfile/parser"
)

// From says what the final stage of a text descends from.
type From string

// What a final stage may descend from.
const (
	// FromNone: the text has no FROM; it continues configs.
	FromNone From = "none"
	// FromConfigs: the final stage starts from the base with the config layer.
	FromConfigs From = "configs"
	// FromBase: the final stage starts from the base alone; the config layer is
	// appended to its result.
	FromBase From = "base"
)

// The named build contexts. A stage of the text may not have one of these
// names: the context would silently take its place.
const (
	ContextBase       = "base"
	ContextConfigs    = "configs"
	ContextExtensions = "extensions"
)

// MaxSize is the size in bytes above which a text is not even parsed. The API
// allows 4096 characters, of up to four bytes each.
const MaxSize = 4 * 4096

// Error is a mistake in a text.
type Error struct {
	// Line of the user's text, from 1; 0 when the mistake is not in one line.
	Line int
	// Message says what is wrong and what to do, without the line.
	Message string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return "Containerfile: " + e.Message
	}
	return fmt.Sprintf("Containerfile line %d: %s", e.Line, e.Message)
}

// Plan is what a text asks for.
type Plan struct {
	// From is what the final stage descends from.
	From From
	// Empty is true when the text adds nothing to what it starts from: no text,
	// comments only, or a lone FROM. No user step is needed then.
	Empty bool
	// UsesBase is true when any stage needs the context base.
	UsesBase bool
	// UsesConfigs is true when any stage needs the context configs.
	UsesConfigs bool
	// UsesExtensions is true when anything refers to the extensions image.
	UsesExtensions bool
	// HasRun is true when any stage runs a program: its result is then not a
	// function of the text alone, and a forced rebuild repeats it.
	HasRun bool
	// Text is what is built: the user's, with a FROM line put in if it had none,
	// and with the defaults of arguments in its FROM lines.
	Text string
	// IsOwn is true for a text that no user wrote: its lines mean nothing to them.
	IsOwn bool
	// fromAt is the line of Text on which a FROM was put in; 0: none was.
	fromAt int
}

// UserLine translates a line of Text into a line of the user's text.
func (p *Plan) UserLine(line int) int {
	if p.fromAt == 0 || line < p.fromAt {
		return line
	}
	return max(line-1, 1)
}

// BuiltLine translates a line of the user's text into a line of Text.
func (p *Plan) BuiltLine(line int) int {
	if p.fromAt == 0 || line < p.fromAt {
		return line
	}
	return line + 1
}

// Check parses a text and says what it asks for. Every error is an *Error.
func Check(text string) (*Plan, error) {
	if len(text) > MaxSize {
		return nil, &Error{Message: fmt.Sprintf("the text has %d bytes, more than the %d allowed", len(text), MaxSize)}
	}
	if i := strings.IndexByte(text, 0); i >= 0 {
		return nil, &Error{Line: 1 + strings.Count(text[:i], "\n"), Message: "a NUL byte is not text"}
	}
	if isBlank(text) {
		return &Plan{From: FromNone, Empty: true, UsesConfigs: true}, nil
	}
	plan, err := withFrom(text)
	if err != nil {
		return nil, err
	}
	stages, arguments, err := parse(plan)
	if err != nil {
		return nil, err
	}
	changed, err := resolveFroms(plan, stages, arguments)
	if err != nil {
		return nil, err
	}
	if changed {
		if stages, _, err = parse(plan); err != nil {
			return nil, err
		}
	}
	if err := checkStages(plan, stages); err != nil {
		return nil, err
	}
	if err := dryRun(plan); err != nil {
		return nil, err
	}
	return plan, nil
}

// UsesExtensions reports whether a text refers to the extensions image. A text
// that does not parse refers to nothing.
func UsesExtensions(text string) bool {
	plan, err := Check(text)
	return err == nil && plan.UsesExtensions
}

// isBlank reports whether a text has only comments and empty lines.
func isBlank(text string) bool {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			return false
		}
	}
	return true
}

// withFrom puts "FROM configs AS final" in front of the first instruction of a
// text that has no FROM. It goes below the leading comments, because a parser
// directive (# escape=`) counts only at the very top.
func withFrom(text string) (*Plan, error) {
	parsed, err := parser.Parse(strings.NewReader(text))
	if err != nil {
		return nil, locate(&Plan{}, err)
	}
	for _, node := range parsed.AST.Children {
		if strings.EqualFold(node.Value, "from") {
			return &Plan{Text: text}, nil
		}
	}
	at := parsed.AST.Children[0].StartLine
	lines := strings.SplitAfter(text, "\n")
	head, tail := strings.Join(lines[:at-1], ""), strings.Join(lines[at-1:], "")
	return &Plan{
		From:   FromNone,
		Text:   head + "FROM " + ContextConfigs + " AS final\n" + tail,
		fromAt: at,
	}, nil
}

// parse reads the stages of plan.Text, and the arguments above them.
func parse(plan *Plan) ([]instructions.Stage, []instructions.ArgCommand, error) {
	parsed, err := parser.Parse(strings.NewReader(plan.Text))
	if err != nil {
		return nil, nil, locate(plan, err)
	}
	for _, node := range parsed.AST.Children {
		// Neither parser minds a RUN without a command; buildah fails on it late.
		if strings.EqualFold(node.Value, "run") && node.Next == nil {
			return nil, nil, &Error{Line: plan.UserLine(node.StartLine), Message: "RUN needs a command"}
		}
	}
	stages, arguments, err := instructions.Parse(parsed.AST, nil)
	if err != nil {
		return nil, nil, locate(plan, err)
	}
	return stages, arguments, nil
}

// locate turns a parser's error into an Error with the user's line.
func locate(plan *Plan, err error) error {
	result := &Error{Message: err.Error()}
	var located *parser.LocationError
	if errors.As(err, &located) {
		if unwrapped := located.Unwrap(); unwrapped != nil {
			result.Message = unwrapped.Error()
		}
		if len(located.Locations) > 0 && len(located.Locations[0]) > 0 {
			result.Line = plan.UserLine(located.Locations[0][0].Start.Line)
		}
	}
	var unknown *instructions.UnknownInstructionError
	if errors.As(err, &unknown) {
		result.Message = fmt.Sprintf("unknown instruction %s", unknown.Instruction)
	}
	return result
}
