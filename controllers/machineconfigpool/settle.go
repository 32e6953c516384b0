package machineconfigpool

import (
	"sync"
	"time"

	"k8s.io/utils/clock"
)

// DefaultSettle is how long a pool's next config has to stay the same before it is
// taken, when it has another OS image: a stream and the payload with its images,
// which are looked up in a registry first, then cost one build and one reboot.
const DefaultSettle = 500 * time.Millisecond

// settleFraction of that is what a config on the same image waits: a client that
// writes several MachineConfigs one after the other takes less for each.
const settleFraction = 3

// longestSettle, times the longer wait, is how long changes that never end can put a
// config off.
const longestSettle = 5

// settler holds a pool's next config back until it has stayed the same for a
// while. It forgets everything with a restart, which only begins the wait again.
type settler struct {
	wait  time.Duration
	clock clock.PassiveClock

	mutex sync.Mutex
	seen  map[string]sighting
}

// sighting is the config that a pool is to get next.
type sighting struct {
	config string
	// since is when it was seen first, began when the pool left its present config.
	since, began time.Time
}

// remaining says how long to wait before a pool goes from one config to another, on
// the same OS image or not; zero: not at all. A pool's first config, and a way back
// to the present one, wait for nothing.
func (s *settler) remaining(pool, from, to string, isSameImage bool) time.Duration {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	if from == to || from == "" || s.wait == 0 {
		delete(s.seen, pool)
		return 0
	}
	now := s.clock.Now()
	next, isKnown := s.seen[pool]
	if !isKnown {
		next.began = now
	}
	if next.config != to {
		next.config, next.since = to, now
	}
	if s.seen == nil {
		s.seen = map[string]sighting{}
	}
	s.seen[pool] = next
	wait := s.wait
	if isSameImage {
		wait /= settleFraction
	}
	return max(0, min(wait-now.Sub(next.since), longestSettle*s.wait-now.Sub(next.began)))
}
