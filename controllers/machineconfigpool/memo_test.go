package machineconfigpool

import (
	"errors"
	"testing"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"

	"github.com/imagemode/imagemode/test/builders"
)

func TestARenderIsRememberedUntilWhatItLooksAtChanges(t *testing.T) {
	config := builders.MachineConfig("50-a", "infra", builders.File("/etc/a", "a"))
	config.ResourceVersion = "1"
	aScope := func() *scope {
		return &scope{
			pool: builders.MachineConfigPool("infra"), inherited: builders.MachineConfigPool("worker"),
			streams: streamsObject(), configs: []mcfgv1.MachineConfig{*config},
		}
	}
	var memory memo
	first, err := aScope().renderWith(&memory)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		change func(*scope)
		isSame bool
	}{
		"nothing changes":                {func(*scope) {}, true},
		"the pool is paused":             {func(s *scope) { s.pool.Spec.Paused = true }, true},
		"the MachineConfig":              {func(s *scope) { s.configs[0].ResourceVersion = "2" }, false},
		"it is made anew":                {func(s *scope) { s.configs[0].UID = "other" }, false},
		"one more":                       {func(s *scope) { s.configs = append(s.configs, *builders.MachineConfig("60-b", "worker")) }, false},
		"none is left":                   {func(s *scope) { s.configs = nil }, false},
		"the streams":                    {func(s *scope) { s.streams.ResourceVersion = "2" }, false},
		"the pool's own stream":          {func(s *scope) { s.pool.Spec.OSImageStream.Name = "debian-13" }, false},
		"the stream that it takes over":  {func(s *scope) { s.inherited.Spec.OSImageStream.Name = "debian-13" }, false},
		"the site's trust bundle":        {func(s *scope) { s.trustBundle = "PEM" }, false},
		"another pool's selector, alike": {func(s *scope) { s.inherited.Spec.MachineConfigSelector = nil }, true},
	} {
		t.Run(name, func(t *testing.T) {
			var memory memo
			if _, err := memory.get("infra", keyOf(t, aScope()), func() (*rendered, error) { return first, nil }); err != nil {
				t.Fatal(err)
			}
			s := aScope()
			test.change(s)
			got, err := s.renderWith(&memory)
			if err != nil {
				t.Fatal(err)
			}
			if (got == first) != test.isSame {
				t.Errorf("remembered: %t, want %t", got == first, test.isSame)
			}
		})
	}
	t.Run("an error is remembered, too", func(t *testing.T) {
		s := aScope()
		s.streams = nil
		_, err := s.renderWith(&memory)
		_, again := s.renderWith(&memory)
		var problem *renderError
		if !errors.As(err, &problem) || !errors.Is(again, err) {
			t.Errorf("%v, then %v", err, again)
		}
	})
}

func keyOf(t *testing.T, s *scope) string {
	t.Helper()
	sources, err := selectConfigs(s.pool, s.inherited, s.configs)
	if err != nil {
		t.Fatal(err)
	}
	return s.renderKey(sources)
}
