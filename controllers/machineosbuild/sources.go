package machineosbuild

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/ignition"
)

// sourcesOf reads the MachineConfigs that a pool's rendered config was made of. What
// is gone since is left out: nothing is decided by them, they are named to the user.
func (g *gatherer) sourcesOf(ctx context.Context, pool *mcfgv1.MachineConfigPool) ([]*mcfgv1.MachineConfig, error) {
	var sources []*mcfgv1.MachineConfig
	for _, source := range pool.Spec.Configuration.Source {
		found := &mcfgv1.MachineConfig{}
		err := g.reader.Get(ctx, client.ObjectKey{Name: source.Name}, found, client.UnsafeDisableDeepCopy)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("read MachineConfig %s: %w", source.Name, err)
		}
		if err == nil {
			sources = append(sources, found)
		}
	}
	return sources, nil
}

// configMistake is what of a rendered config no image can hold.
type configMistake struct{ error }

func (m *configMistake) Unwrap() error { return m.error }

// configMistake finds what a builder would refuse, as far as it can be told without
// the base image; nil: nothing.
func (s *scope) configMistake() error {
	read, _ := readConfig(s.rendered.Spec.Config.Raw)
	err := errors.Join(read.refused, ignition.CheckArguments(s.rendered.Spec.KernelArguments))
	if err == nil {
		return nil
	}
	return &configMistake{err}
}

// maxProblems are told of a config; one for another kind of host may have hundreds.
const maxProblems = 10

// describeMistake tells it with the MachineConfigs that it comes from.
func (s *scope) describeMistake(mistake *configMistake) string {
	problems := ignition.ProblemsIn(mistake.error)
	if len(problems) == 0 {
		return fmt.Sprintf("MachineConfig %s: %v", s.rendered.Name, mistake.error)
	}
	sources := s.readSources()
	var lines []string
	for _, found := range problems[:min(len(problems), maxProblems)] {
		lines = append(lines, fmt.Sprintf("%s: %s", orElse(culprits(sources, found), "MachineConfig "+s.rendered.Name), found))
	}
	if more := len(problems) - len(lines); more > 0 {
		lines = append(lines, fmt.Sprintf("and %d more", more))
	}
	return "an image cannot hold what is asked for: " + strings.Join(lines, "; ")
}

// readSource is a MachineConfig with its Ignition config read.
type readSource struct {
	*mcfgv1.MachineConfig
	config types.Config
}

// readSources leaves out what does not parse: it is in no rendered config.
func (s *scope) readSources() []readSource {
	var sources []readSource
	for _, source := range s.sources {
		if config, err := ignition.Parse(source.Spec.Config.Raw); err == nil {
			sources = append(sources, readSource{source, config})
		}
	}
	return sources
}

// culprits names the MachineConfigs that bring a problem; "": it cannot be told, as
// they may have changed since.
func culprits(sources []readSource, problem ignition.Problem) string {
	var names []string
	for _, source := range sources {
		if source.brings(problem) {
			names = append(names, source.Name)
		}
	}
	switch len(names) {
	case 0:
		return ""
	case 1:
		return "MachineConfig " + names[0]
	default:
		return "MachineConfigs " + strings.Join(names, ", ")
	}
}

func (s readSource) brings(problem ignition.Problem) bool {
	isNamed := func(name string) bool { return strings.Contains(problem.Reason, strconv.Quote(name)) }
	return slices.ContainsFunc(s.Spec.KernelArguments, func(argument string) bool { return ignition.BringsArgument(argument, problem) }) ||
		slices.ContainsFunc(s.Spec.Extensions, isNamed) || s.Spec.KernelType != "" && isNamed(s.Spec.KernelType) ||
		ignition.Brings(s.config, problem)
}

// maxUnknownKeys are named; a config of another tool may have hundreds.
const maxUnknownKeys = 5

// unknownKeys names what of the pool's MachineConfigs no spec of Ignition knows; "":
// nothing. Such keys are passed over and block nothing: they may be a later spec's.
func (s *scope) unknownKeys() string {
	var found []string
	named, more := 0, 0
	for _, source := range s.sources {
		places := unknownKeysOf(source)
		shown := places[:min(len(places), maxUnknownKeys-named)]
		named, more = named+len(shown), more+len(places)-len(shown)
		if len(shown) > 0 {
			found = append(found, fmt.Sprintf("%s of MachineConfig %s", strings.Join(shown, ", "), source.Name))
		}
	}
	if more > 0 {
		found = append(found, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(found, "; ")
}

// readKeys are the unknown keys of configs.
var readKeys = lru.New(memorySize)

func unknownKeysOf(source *mcfgv1.MachineConfig) []string {
	raw := source.Spec.Config.Raw
	places, _ := remember(readKeys, string(raw), func() ([]string, error) { return ignition.UnknownKeys(raw), nil })
	return places
}
