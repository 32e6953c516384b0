package ignition

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/vincent-petithory/dataurl"
)

// MaxFileSize and MaxTotalSize bound unpacked content in bytes: a kilobyte of
// gzip in a MachineConfig can hold gigabytes of zeros.
const (
	MaxFileSize  = 64 << 20
	MaxTotalSize = 256 << 20
)

// readContents gives the bytes that a resource stands for: the data of its URL,
// unpacked, and checked against its verification hash, which in Ignition is
// that of the unpacked bytes.
func readContents(resource types.Resource) ([]byte, error) {
	data, err := readSource(resource)
	if err != nil {
		return nil, err
	}
	if resource.Compression != nil && *resource.Compression == "gzip" {
		if data, err = gunzip(data); err != nil {
			return nil, fmt.Errorf("contents.compression: %w", err)
		}
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("contents: more than %d bytes", MaxFileSize)
	}
	if hash := resource.Verification.Hash; hash != nil && *hash != "" {
		return data, verify(data, *hash)
	}
	return data, nil
}

func readSource(resource types.Resource) ([]byte, error) {
	if resource.Source == nil || *resource.Source == "" {
		return nil, nil
	}
	decoded, err := dataurl.DecodeString(*resource.Source)
	if err != nil {
		return nil, fmt.Errorf("contents.source is no data: URL: %w", err)
	}
	return decoded.Data, nil
}

func gunzip(packed []byte) ([]byte, error) {
	unpacker, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	data, err := io.ReadAll(io.LimitReader(unpacker, MaxFileSize+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileSize {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", MaxFileSize)
	}
	return data, nil
}

// verify checks data against <function>-<hex>.
func verify(data []byte, hash string) error {
	function, want, _ := strings.Cut(hash, "-")
	var sum []byte
	switch function {
	case "sha256":
		s := sha256.Sum256(data)
		sum = s[:]
	case "sha512":
		s := sha512.Sum512(data)
		sum = s[:]
	default:
		return fmt.Errorf("contents.verification.hash: %q is not known, sha512 and sha256 are", function)
	}
	if subtle.ConstantTimeCompare([]byte(hex.EncodeToString(sum)), []byte(strings.ToLower(want))) != 1 {
		return errors.New("contents.verification.hash does not match the contents")
	}
	return nil
}
