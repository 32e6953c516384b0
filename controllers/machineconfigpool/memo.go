package machineconfigpool

import (
	"fmt"
	"strings"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
)

// memo remembers what came of the last render of each pool. A pool is looked at
// with every step of its nodes; its MachineConfigs, of which there may be
// megabytes, change seldom.
type memo struct {
	mutex sync.Mutex
	last  map[string]remembered
}

// remembered is a result, or an error, and what it was made from.
type remembered struct {
	key    string
	wanted *rendered
	err    error
}

// get returns what a pool's key gives, from memory or by rendering it. The result is
// shared, and must not be changed.
func (m *memo) get(pool, key string, render func() (*rendered, error)) (*rendered, error) {
	m.mutex.Lock()
	last, isKnown := m.last[pool]
	m.mutex.Unlock()
	if isKnown && last.key == key {
		return last.wanted, last.err
	}
	wanted, err := render()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.last == nil {
		m.last = map[string]remembered{}
	}
	m.last[pool] = remembered{key, wanted, err}
	return wanted, err
}

func (m *memo) forget(pool string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.last, pool)
}

// renderKey names everything that a render looks at, by the versions of objects.
func (s *scope) renderKey(sources []*mcfgv1.MachineConfig) string {
	var key strings.Builder
	inherited := ""
	if s.inherited != nil {
		inherited = s.inherited.Spec.OSImageStream.Name
	}
	fmt.Fprintf(&key, "%q %q %q\n", s.pool.Spec.OSImageStream.Name, inherited, s.trustBundle)
	if s.streams != nil {
		fmt.Fprintf(&key, "%s %s\n", s.streams.UID, s.streams.ResourceVersion)
	}
	for _, source := range sources {
		fmt.Fprintf(&key, "%s %s %s\n", source.Name, source.UID, source.ResourceVersion)
	}
	return key.String()
}
