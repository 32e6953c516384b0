package source

import (
	"fmt"
	"io"

	digest "github.com/opencontainers/go-digest"
)

// copyVerified copies a blob and fails when its content has another digest.
func copyVerified(out io.Writer, blob io.Reader, expected digest.Digest) error {
	verifier := expected.Verifier()
	if _, err := io.Copy(io.MultiWriter(out, verifier), blob); err != nil {
		return err
	}
	if !verifier.Verified() {
		return fmt.Errorf("the content does not have the digest %s", expected)
	}
	return nil
}
