package machineosbuild

import (
	"crypto/sha256"

	"k8s.io/utils/lru"

	"github.com/imagemode/imagemode/containerfiles"
)

// memorySize is how many answers are remembered of each kind. A rendered config
// and a Containerfile are read in every reconcile of a build, and do not change.
const memorySize = 1000

var (
	readConfigs = lru.New(memorySize)
	readTexts   = lru.New(memorySize)
)

// remembered is an answer with its error.
type remembered[T any] struct {
	value T
	err   error
}

// remember gives the answer that read, which is a function of content alone, gave
// to the same content before.
func remember[T any](memory *lru.Cache, content string, read func() (T, error)) (T, error) {
	key := sha256.Sum256([]byte(content))
	if found, known := memory.Get(key); known {
		answer := found.(remembered[T])
		return answer.value, answer.err
	}
	value, err := read()
	memory.Add(key, remembered[T]{value, err})
	return value, err
}

// checkText reads a Containerfile. The plan must not be changed.
func checkText(text string) (*containerfiles.Plan, error) {
	return remember(readTexts, text, func() (*containerfiles.Plan, error) { return containerfiles.Check(text) })
}
