package ignition

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/klauspost/compress/gzip"
	"github.com/vincent-petithory/dataurl"
)

// MaxFileSize and MaxTotalSize bound unpacked content in bytes: a kilobyte of
// gzip in a MachineConfig can hold gigabytes of zeros.
const (
	MaxFileSize  = 64 << 20
	MaxTotalSize = 256 << 20
)

// readFile gives what a file holds: what was there before, then its contents,
// then every appended fragment. Errors begin with the field.
func readFile(before []byte, file types.File) ([]byte, error) {
	data := before
	fields := []string{"contents"}
	resources := append([]types.Resource{file.Contents}, file.Append...)
	for i := range file.Append {
		fields = append(fields, fmt.Sprintf("append[%d]", i))
	}
	for i, resource := range resources {
		part, err := readContents(fields[i], resource)
		if err != nil {
			return nil, err
		}
		if len(data)+len(part) > MaxFileSize {
			return nil, fmt.Errorf("%s: the file has more than %d bytes", fields[i], MaxFileSize)
		}
		if data = slices.Concat(data, part); len(data) == len(part) {
			data = part
		}
	}
	return data, nil
}

// readContents gives the bytes that a resource stands for: the data of its URL,
// unpacked, and checked against its verification hash, which in Ignition is
// that of the unpacked bytes.
func readContents(field string, resource types.Resource) ([]byte, error) {
	if resource.Source == nil {
		return nil, nil
	}
	data, err := decodeSource(*resource.Source)
	if err != nil {
		return nil, fmt.Errorf("%s.source is no data: URL: %w", field, err)
	}
	if resource.Compression != nil && *resource.Compression == "gzip" {
		if data, err = gunzip(data); err != nil {
			return nil, fmt.Errorf("%s.compression: %w", field, err)
		}
	}
	if hash := resource.Verification.Hash; hash != nil && *hash != "" {
		if err := verify(data, *hash); err != nil {
			return nil, fmt.Errorf("%s.verification.hash %w", field, err)
		}
	}
	return data, nil
}

// decodeSource gives the data of a data: URL. Parse has checked it. The two forms
// that configs are full of are decoded at once, without the library's look at
// every rune; what is not clearly one of them is left to the library.
func decodeSource(source string) ([]byte, error) {
	if source == "" {
		return nil, nil
	}
	header, payload, found := strings.Cut(source, ",")
	if found && !strings.ContainsAny(header, `"%`) {
		if strings.HasSuffix(header, ";base64") {
			if data, err := base64.StdEncoding.DecodeString(payload); err == nil {
				return data, nil
			}
		} else if text, err := url.PathUnescape(payload); err == nil {
			return []byte(text), nil
		}
	}
	decoded, err := dataurl.DecodeString(source)
	if err != nil {
		return nil, err
	}
	return decoded.Data, nil
}

// unpackers are kept for the next file: each has tables of some 40 KiB.
var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

func gunzip(packed []byte) ([]byte, error) {
	unpacker := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(unpacker)
	if err := unpacker.Reset(bytes.NewReader(packed)); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	data.Grow(min(4*len(packed), 1<<20))
	if _, err := io.Copy(&data, io.LimitReader(unpacker, MaxFileSize+1)); err != nil {
		return nil, err
	}
	if data.Len() > MaxFileSize {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", MaxFileSize)
	}
	return data.Bytes(), nil
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
		return fmt.Errorf("begins with %q, and only sha512- and sha256- are known", function)
	}
	if !strings.EqualFold(hex.EncodeToString(sum), want) {
		return errors.New("does not match")
	}
	return nil
}
