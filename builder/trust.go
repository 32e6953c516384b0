package builder

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/imagemode/imagemode/registry"
)

// bundlePaths are the files in which the programs of an image find the
// certificates they trust.
var bundlePaths = []string{
	"etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem", // Fedora and its relatives
	"etc/ssl/certs/ca-certificates.crt",                // Debian and its relatives
}

// updatesTrust finds a text that makes those files anew, itself or by the package
// that does. They cannot be replaced while something is mounted on them, so such a
// text works without the bundle.
var updatesTrust = regexp.MustCompile(`(?m)update-ca-(trust|certificates)|trust\s+extract|(^|\s)ca-certificates(\s|$)`)

// maxBundle bounds a file of certificates in bytes; a system's has some 200 KB.
const maxBundle = 16 << 20

// trustMounts gives mounts by which a RUN trusts the cluster's certificates
// besides those of the image. They end with the RUN: a node gets the bundle on
// another way, which needs no new image when it changes.
func (w *workshop) trustMounts(ctx context.Context, base *registry.Image, text string) ([]string, error) {
	if w.job.trustBundle == "" {
		return nil, nil
	}
	if updatesTrust.MatchString(text) {
		w.job.out.printf("  the text updates the trusted certificates itself: a RUN does not get the cluster's")
		return nil, nil
	}
	added, err := os.ReadFile(w.job.trustBundle)
	if err != nil {
		return nil, err
	}
	var mounts []string
	err = w.withFiles(ctx, base.Reference(), func(root *os.Root) error {
		for i, path := range bundlePaths {
			own, err := readIn(root, path, maxBundle)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return err
			}
			combined := filepath.Join(w.scratch, fmt.Sprintf("ca-bundle-%d.pem", i))
			content := strings.TrimSpace(string(own)) + "\n" + string(added)
			if err := os.WriteFile(combined, []byte(content), 0o644); err != nil {
				return err
			}
			mounts = append(mounts, combined+":/"+path+":ro")
		}
		return nil
	})
	return mounts, err
}

// readIn reads a file of an image's root; no link in it leads outside.
func readIn(root *os.Root, path string, limit int64) ([]byte, error) {
	file, err := root.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return nil, errors.Join(err, fs.ErrNotExist)
	}
	content, err := io.ReadAll(io.LimitReader(file, limit+1))
	if err == nil && int64(len(content)) > limit {
		err = fmt.Errorf("/%s in the image has more than %d bytes", path, limit)
	}
	return content, err
}
