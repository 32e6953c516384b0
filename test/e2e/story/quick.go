package story

import (
	"context"
	"errors"
	"time"
)

// quickContainerfile is the story's own on base: its package is installed once,
// whatever the MachineConfig says.
const quickContainerfile = `FROM base AS final
RUN --mount=type=bind,from=extensions,target=/run/extensions \
    apt-get update && apt-get install --yes figlet && apt-get clean
`

// ChangeQuickly shows what a changed file costs below a Containerfile FROM base.
func (s *Story) ChangeQuickly() []Phase {
	return []Phase{{"change a file below a Containerfile FROM base", 10 * time.Minute, s.changeQuickly}}
}

// changeQuickly asks for an image for a pool without nodes, and for another after
// a change of a file.
func (s *Story) changeQuickly(ctx context.Context) (err error) {
	asked := Asked{Pool: "quick", Text: s.Text, Containerfile: quickContainerfile}
	defer func() { err = errors.Join(err, s.ForgetImages(context.WithoutCancel(ctx), asked)) }()
	if err := s.AskForImage(ctx, asked); err != nil {
		return err
	}
	s.Log.Line("MachineOSConfig %s, for a pool without nodes: FROM base, RUN apt-get install figlet", asked.Pool)
	first, err := s.imageOf(ctx, asked)
	if err != nil {
		return err
	}
	s.FirstBuild = first.Took
	asked.Text += "and changed\n"
	if err := s.ChangeConfig(ctx, asked); err != nil {
		return err
	}
	changed, err := s.imageOf(ctx, asked)
	if err != nil {
		return err
	}
	s.ChangedBuild = changed.Took
	return nil
}

// imageOf waits for the image of what was asked for and tells of it.
func (s *Story) imageOf(ctx context.Context, asked Asked) (*Built, error) {
	built, err := s.EndOfBuild(ctx, asked)
	if err != nil {
		return nil, err
	}
	if built.Failed != nil {
		return nil, errors.New(built.Failed.Message)
	}
	s.Log.Line("%s after %.1fs", built.Image, built.Took.Seconds())
	if built.Result != nil {
		for _, line := range resultLines(built.Result) {
			s.Log.Line("    %s", line)
		}
	}
	return built, nil
}
