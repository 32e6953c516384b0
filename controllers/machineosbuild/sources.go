package machineosbuild

import (
	"context"
	"errors"
	"fmt"
	"strings"

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
type configMistake struct{ message string }

func (m *configMistake) Error() string { return m.message }

// configMistake finds what a builder would refuse, as far as it can be told without
// the base image; nil: nothing. It names the MachineConfigs that it comes from.
func (s *scope) configMistake() error {
	read, _ := readConfig(s.rendered.Spec.Config.Raw)
	err := errors.Join(read.refused, ignition.CheckArguments(s.rendered.Spec.KernelArguments))
	if err == nil {
		return nil
	}
	var lines []string
	for _, found := range ignition.ProblemsIn(err) {
		lines = append(lines, fmt.Sprintf("%s: %s", s.culprits(found), found))
	}
	if lines == nil {
		lines = []string{fmt.Sprintf("MachineConfig %s: %v", s.rendered.Name, err)}
	}
	return &configMistake{"an image cannot hold what is asked for: " + strings.Join(lines, "; ")}
}

// culprits names the MachineConfigs that bring a problem, or the rendered one where
// that cannot be told any more.
func (s *scope) culprits(problem ignition.Problem) string {
	var names []string
	for _, source := range s.sources {
		if brings(source, problem) {
			names = append(names, source.Name)
		}
	}
	switch len(names) {
	case 0:
		return "MachineConfig " + s.rendered.Name
	case 1:
		return "MachineConfig " + names[0]
	default:
		return "MachineConfigs " + strings.Join(names, ", ")
	}
}

func brings(source *mcfgv1.MachineConfig, problem ignition.Problem) bool {
	for _, argument := range source.Spec.KernelArguments {
		if ignition.BringsArgument(argument, problem) {
			return true
		}
	}
	config, err := ignition.Parse(source.Spec.Config.Raw)
	return err == nil && ignition.Brings(config, problem)
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
