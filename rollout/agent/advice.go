package agent

import (
	"unicode/utf8"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// adviceOf is what an administrator can do about a failure of a class.
var adviceOf = map[v1alpha1.FailureClass]string{
	v1alpha1.FailureRegistry:          "see that the node reaches the registry, and that it answers",
	v1alpha1.FailureAuthentication:    "see to the Secret that spec.pullSecretRef of the rollout names",
	v1alpha1.FailureImageGone:         "push the image again, or set another one",
	v1alpha1.FailureImageInvalid:      "set an image that bootc can boot",
	v1alpha1.FailureSignature:         "sign the image, or see to /etc/containers/policy.json of the node",
	v1alpha1.FailureWrongArchitecture: "set an image of the node's architecture, or an index that has one",
	v1alpha1.FailureDiskFull:          "make room in /sysroot and /boot of the node",
	v1alpha1.FailureHostDrift:         "undo what was changed on the node, with rpm-ostree reset say",
	v1alpha1.FailureEnvironment:       "see that the node was booted by bootc, and the agent's own rights",
	v1alpha1.FailureFinalizeFailed:    "see that journal, and make room in /boot",
	v1alpha1.FailureRolledBack:        "mend the image, or what its gates look at",
	v1alpha1.FailureInternal:          "see the journal of " + unitBootc + " on the node",
}

// maxCause is how much of what bootc said stands before the advice: all of it is
// in status.lastAttempt.
const maxCause = 600

// cause is bootc's message, short enough for something to follow.
func cause(attempt *v1alpha1.Attempt) string {
	return cutTo(attempt.Message, maxCause)
}

// cutTo cuts between characters.
func cutTo(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for !utf8.RuneStart(text[limit]) {
		limit--
	}
	return text[:limit] + "…"
}
