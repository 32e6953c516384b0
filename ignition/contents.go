package ignition

import (
	"bytes"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
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
	data, err := readAfter(before, "contents", file.Contents)
	for i := range file.Append {
		if err == nil {
			data, err = readAfter(data, fmt.Sprintf("append[%d]", i), file.Append[i])
		}
	}
	return data, err
}

func readAfter(before []byte, field string, resource types.Resource) ([]byte, error) {
	part, err := readContents(field, resource)
	if err != nil {
		return nil, err
	}
	if len(before)+len(part) > MaxFileSize {
		return nil, fmt.Errorf("%s: the file has more than %d bytes", field, MaxFileSize)
	}
	if len(before) == 0 {
		return part, nil
	}
	return slices.Concat(before, part), nil
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
		} else if data, ok := unescape(payload); ok {
			return data, nil
		}
	}
	decoded, err := dataurl.DecodeString(source)
	if err != nil {
		return nil, err
	}
	return decoded.Data, nil
}

// unescape replaces %XX; ok is false where one is not well-formed.
func unescape(text string) (data []byte, ok bool) {
	data = make([]byte, 0, len(text))
	for {
		at := strings.IndexByte(text, '%')
		if at < 0 {
			return append(data, text...), true
		}
		data = append(data, text[:at]...)
		text = text[at:]
		if len(text) < 3 {
			return nil, false
		}
		high, low := hexDigits[text[1]], hexDigits[text[2]]
		if high == noDigit || low == noDigit {
			return nil, false
		}
		data = append(data, high<<4|low)
		text = text[3:]
	}
}

const noDigit = 0xff

// hexDigits are the values of the bytes that are digits.
var hexDigits = func() (values [256]byte) {
	for i := range values {
		values[i] = noDigit
	}
	for i := range byte(16) {
		values["0123456789abcdef"[i]], values["0123456789ABCDEF"[i]] = i, i
	}
	return values
}()

// unpackers are kept for the next file: each has tables of some 40 KiB.
var unpackers = sync.Pool{New: func() any { return new(gzip.Reader) }}

func gunzip(packed []byte) ([]byte, error) {
	unpacker := unpackers.Get().(*gzip.Reader)
	defer unpackers.Put(unpacker)
	if err := unpacker.Reset(bytes.NewReader(packed)); err != nil {
		return nil, err
	}
	var data bytes.Buffer
	data.Grow(unpackedSize(packed) + bytes.MinRead)
	if _, err := data.ReadFrom(io.LimitReader(unpacker, MaxFileSize+1)); err != nil {
		return nil, err
	}
	if data.Len() > MaxFileSize {
		return nil, fmt.Errorf("it unpacks to more than %d bytes", MaxFileSize)
	}
	return data.Bytes(), nil
}

// unpackedSize is what the end of a gzip stream claims, as far as that can be true
// of the usual text.
func unpackedSize(packed []byte) int {
	claimed := binary.LittleEndian.Uint32(packed[len(packed)-4:])
	return int(min(int64(claimed), 32*int64(len(packed)), 1<<20))
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
