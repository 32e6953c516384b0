package containerfiles

import (
	"fmt"
	"strings"

	"github.com/moby/buildkit/frontend/dockerfile/instructions"
	"github.com/openshift/imagebuilder"
)

// checkStages fills in plan from the stages of its text and refuses what
// parses but cannot give an OS image.
func checkStages(plan *Plan, stages []instructions.Stage) error {
	for _, stage := range stages {
		if err := checkStage(plan, stage); err != nil {
			return err
		}
	}
	final := stages[len(stages)-1]
	root := finalRoot(stages)
	switch {
	case root == ContextConfigs:
		plan.UsesConfigs = true
		if plan.fromAt == 0 {
			plan.From = FromConfigs
		}
	case root == ContextBase:
		plan.From = FromBase
	case strings.Contains(root, "$"):
		return stageError(plan, final, "the final stage comes from %s, which is only known when it is built; "+
			"give the argument a default above the first FROM, or write FROM configs or FROM base", root)
	default:
		return stageError(plan, final, "the final stage comes from %s and would not be this pool's OS; "+
			"it has to come from configs or base, other images can be used with COPY --from", root)
	}
	plan.Empty = len(stages) == 1 && len(final.Commands) == 0
	return nil
}

// checkStage notes what one stage uses.
func checkStage(plan *Plan, stage instructions.Stage) error {
	if isContext(stage.Name) {
		return stageError(plan, stage, "a stage cannot be named %s, the image of that name is given; choose another name", stage.Name)
	}
	plan.uses(stage.BaseName)
	for _, command := range stage.Commands {
		if err := checkCommand(plan, command); err != nil {
			return err
		}
	}
	return nil
}

// checkCommand notes what one instruction uses.
func checkCommand(plan *Plan, command instructions.Command) error {
	switch c := command.(type) {
	case *instructions.RunCommand:
		plan.HasRun = true
		for _, mount := range instructions.GetMounts(c) {
			plan.uses(mount.From)
		}
	case *instructions.CopyCommand:
		plan.uses(c.From)
		if c.From == "" && len(c.SourcePaths) > 0 {
			return commandError(plan, c, "there is no build context to copy %s from; "+
				"use COPY --from=<stage or image>, or a heredoc", c.SourcePaths[0])
		}
	case *instructions.AddCommand:
		for _, source := range c.SourcePaths {
			if !strings.Contains(source, "://") && !strings.HasPrefix(source, "git@") && !strings.Contains(source, "$") {
				return commandError(plan, c, "there is no build context to add %s from; use a URL or a heredoc", source)
			}
		}
	}
	return nil
}

// uses notes a reference to one of the named contexts.
func (p *Plan) uses(image string) {
	switch {
	case image == ContextBase:
		p.UsesBase = true
	case image == ContextConfigs:
		p.UsesConfigs = true
	case image == ContextExtensions:
		p.UsesExtensions = true
	case strings.Contains(image, "$"):
		// Only known when it is built: rather one input too many than a stale image.
		p.UsesExtensions = true
	}
}

// finalRoot follows the FROM of the last stage back to an image.
func finalRoot(stages []instructions.Stage) string {
	root := stages[len(stages)-1].BaseName
	for i := len(stages) - 2; i >= 0; i-- {
		if stages[i].Name != "" && strings.EqualFold(stages[i].Name, root) {
			root = stages[i].BaseName
		}
	}
	return root
}

func isContext(name string) bool {
	switch strings.ToLower(name) {
	case ContextBase, ContextConfigs, ContextExtensions:
		return true
	}
	return false
}

func stageError(plan *Plan, stage instructions.Stage, format string, args ...any) error {
	line := 0
	if len(stage.Location) > 0 {
		line = plan.UserLine(stage.Location[0].Start.Line)
	}
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

func commandError(plan *Plan, command instructions.Command, format string, args ...any) error {
	line := 0
	if at := command.Location(); len(at) > 0 {
		line = plan.UserLine(at[0].Start.Line)
	}
	return &Error{Line: line, Message: fmt.Sprintf(format, args...)}
}

// dryRun lets the library that will build the text go through it without
// doing anything: it is stricter than the parser in places (an ENV of one
// word) and is the one that counts.
func dryRun(plan *Plan) error {
	node, err := imagebuilder.ParseDockerfile(strings.NewReader(plan.Text))
	if err != nil {
		return &Error{Message: err.Error()}
	}
	stages, err := imagebuilder.NewStages(node, imagebuilder.NewBuilder(nil))
	if err != nil {
		return &Error{Message: err.Error()}
	}
	for _, stage := range stages {
		for _, child := range stage.Node.Children {
			step := stage.Builder.Step()
			if err := step.Resolve(child); err != nil {
				return &Error{Line: plan.UserLine(child.StartLine), Message: err.Error()}
			}
			if err := stage.Builder.Run(step, imagebuilder.NoopExecutor, false); err != nil {
				return &Error{Line: plan.UserLine(child.StartLine), Message: err.Error()}
			}
		}
	}
	return nil
}
