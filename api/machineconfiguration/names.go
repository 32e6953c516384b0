package machineconfiguration

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// Limits of Kubernetes on the length of names, in bytes.
const (
	// MaxName is the limit of an object's name.
	MaxName = 253
	// MaxLabelValue is the limit of a label's value, and of a Job's name.
	MaxLabelValue = 63
)

// hashLength is the number of hex digits that tell shortened names apart.
const hashLength = 8

// Shorten returns name if it has at most limit bytes. A longer one is cut and
// ends with a hyphen and 8 hex digits of the SHA-256 of the whole name, so that
// two long names with the same beginning stay different. limit must be at least
// 16. A name that is a DNS subdomain stays one, and stays valid as the value of
// a label.
func Shorten(name string, limit int) string {
	if len(name) <= limit {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	cut := strings.TrimRight(name[:limit-hashLength-1], "-.")
	return cut + "-" + hex.EncodeToString(sum[:])[:hashLength]
}

// PoolLabelValue returns the value of LabelNodePool for a pool: its name, or
// the name shortened to what a label holds.
func PoolLabelValue(pool string) string {
	return Shorten(pool, MaxLabelValue)
}
