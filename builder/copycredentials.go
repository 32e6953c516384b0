package builder

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/imagemode/imagemode/builder/request"
)

// CopyCredentials copies credentials from mounted Secrets below from, where no
// container can remove them, to the files of a build directory below to. A
// Secret of the old type kubernetes.io/dockercfg is written in the new format.
func CopyCredentials(from, to string) error {
	for _, file := range []string{request.FilePullAuth, request.FilePushAuth} {
		content, err := readSecret(filepath.Join(from, filepath.Dir(file)))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		target := filepath.Join(to, file)
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(target, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// readSecret gives the credentials of a Secret mounted at directory, in docker
// config.json format. The error of one without any is fs.ErrNotExist.
func readSecret(directory string) ([]byte, error) {
	for _, key := range []string{"config.json", ".dockerconfigjson"} {
		content, err := os.ReadFile(filepath.Join(directory, key))
		if !errors.Is(err, fs.ErrNotExist) {
			return content, err
		}
	}
	old, err := os.ReadFile(filepath.Join(directory, ".dockercfg"))
	if err != nil {
		return nil, err
	}
	if !json.Valid(old) {
		return nil, fmt.Errorf("%s/.dockercfg is not JSON", directory)
	}
	return json.Marshal(map[string]json.RawMessage{"auths": old})
}
