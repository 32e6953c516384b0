package machineconfigpool

import (
	"fmt"

	"github.com/coreos/ignition/v2/config/v3_6/types"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/ignition"
)

// reasonLiveContent is that of RenderDegraded when what is to reach the nodes
// without an image cannot.
const reasonLiveContent = "LiveContentInvalid"

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
