package machineconfigpool

import (
	"fmt"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/ignition"
)

// reasonLiveContent is that of RenderDegraded when what is to reach the nodes
// without an image cannot, and of NodeDegraded when the rollout refuses it.
const reasonLiveContent = "LiveContentInvalid"

// rolloutRefusesLive is the rollout's word for live content that makes no sense.
const rolloutRefusesLive = "LiveInvalid"

// liveProblem is what the pool's rollout says about keys and certificates that it
// brings to no node; the image goes to them all the same. Empty: it brings them.
func (o observation) liveProblem() string {
	if o.rollout == nil {
		return ""
	}
	found := meta.FindStatusCondition(o.rollout.Status.Conditions, v1alpha1.ConditionDegraded)
	if found == nil || found.Status != "True" || found.Reason != rolloutRefusesLive && !strings.Contains(found.Message, rolloutRefusesLive) {
		return ""
	}
	return fmt.Sprintf("ImageRollout %s is reporting %s: %q", o.pool.Name, found.Reason, streams.Truncate(found.Message, maxQuoted))
}

// liveOf is what of a rendered config reaches its nodes without an image: SSH
// authorized keys and certificates, and the site's trust bundle; nil: there is
// nothing of it. Its errors are *renderError.
func liveOf(wanted *rendered, trustBundle string) (*v1alpha1.LiveContent, error) {
	refused := func(err error) error {
		return &renderError{reason: reasonLiveContent, message: fmt.Sprintf("SSH keys and certificates for the nodes: %v", err)}
	}
	files, err := ignition.LiveFiles(wanted.ignition)
	if err != nil {
		return nil, refused(err)
	}
	content := &v1alpha1.LiveContent{SSHAuthorizedKeys: keysOf(wanted.ignition), TrustBundle: trustBundle}
	for _, file := range files {
		live := v1alpha1.LiveFile{Path: file.Path, Content: file.Content}
		if file.Mode != nil {
			mode := int32(*file.Mode)
			live.Mode = &mode
		}
		content.Files = append(content.Files, live)
	}
	if len(content.Files)+len(content.SSHAuthorizedKeys)+len(trustBundle) == 0 {
		return nil, nil
	}
	if _, err := content.Hash(); err != nil {
		return nil, refused(err)
	}
	return content, nil
}

func keysOf(config types.Config) []v1alpha1.AuthorizedKeys {
	var users []v1alpha1.AuthorizedKeys
	_, live := ignition.Split(config)
	for _, user := range live.Passwd.Users {
		keys := v1alpha1.AuthorizedKeys{User: user.Name}
		for _, key := range user.SSHAuthorizedKeys {
			keys.Keys = append(keys.Keys, string(key))
		}
		users = append(users, keys)
	}
	return users
}
