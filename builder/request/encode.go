package request

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// MaxRequestSize is the size in bytes of an unpacked request above which it is
// not read on: a Secret or ConfigMap holds 1 MiB, and a MachineConfig of etcd's
// largest object packs about ten to one. It keeps a decompression bomb out.
const MaxRequestSize = 64 << 20

// Encode gives the content of FileRequest: JSON in gzip. The same Request gives
// the same bytes. An invalid Request is an error.
func Encode(r *Request) ([]byte, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	var buffer bytes.Buffer
	packer := gzip.NewWriter(&buffer)
	if err := json.NewEncoder(packer).Encode(r); err != nil {
		return nil, fmt.Errorf("encoding the build request %s: %w", r.Name, err)
	}
	if err := packer.Close(); err != nil {
		return nil, fmt.Errorf("packing the build request %s: %w", r.Name, err)
	}
	return buffer.Bytes(), nil
}

// Decode reads a Request written by Encode, or the same JSON unpacked, as a
// person writes it on a workstation. It is validated again.
func Decode(source io.Reader) (*Request, error) {
	r, err := read(source)
	if err == nil {
		err = r.Validate()
	}
	if err != nil {
		return nil, err
	}
	return r, nil
}

// DecodeLocal reads a Request whose image no cluster takes, as Decode does, and
// fills in what only a cluster could know: an inputsHash that is left out is made
// of the rest. Where isPushed is false, the image goes to no repository, and
// pushSpec may stay empty.
func DecodeLocal(source io.Reader, isPushed bool) (*Request, error) {
	r, err := read(source)
	if err != nil {
		return nil, err
	}
	if r.InputsHash == "" {
		if r.InputsHash, err = r.localHash(); err != nil {
			return nil, err
		}
	}
	validate := r.Validate
	if !isPushed && r.PushSpec == "" {
		validate = r.validateInputs
	}
	if err := validate(); err != nil {
		return nil, err
	}
	return r, nil
}

// localHash is the same for the same inputs, whatever the image is called.
func (r *Request) localHash() (string, error) {
	inputs := *r
	inputs.Name, inputs.PushSpec = "", ""
	encoded, err := json.Marshal(inputs)
	if err != nil {
		return "", fmt.Errorf("the build request's inputsHash: %w", err)
	}
	sum := sha256.Sum256(encoded)
	return hex.EncodeToString(sum[:]), nil
}

// read decodes a Request, and does not validate it.
func read(source io.Reader) (*Request, error) {
	raw, err := readBounded(source, MaxRequestSize)
	if err != nil {
		return nil, fmt.Errorf("reading the build request: %w", err)
	}
	if bytes.HasPrefix(raw, []byte{0x1f, 0x8b}) {
		if raw, err = unpack(raw); err != nil {
			return nil, fmt.Errorf("unpacking the build request: %w", err)
		}
	}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	// A newer controller may ask for something this builder does not know:
	// better no image than one without it.
	decoder.DisallowUnknownFields()
	var r Request
	if err := decoder.Decode(&r); err != nil {
		return nil, fmt.Errorf("decoding the build request: %w", err)
	}
	return &r, nil
}

func unpack(packed []byte) ([]byte, error) {
	unpacker, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return readBounded(unpacker, MaxRequestSize)
}

// readBounded reads all of source, or fails when it has more than limit bytes.
func readBounded(source io.Reader, limit int64) ([]byte, error) {
	raw, err := io.ReadAll(io.LimitReader(source, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(raw)) > limit {
		return nil, fmt.Errorf("more than %d bytes", limit)
	}
	return raw, nil
}

// Bounds on what a Result carries, before it is fitted into MaxResultSize.
const (
	// maxLineSize is in bytes: a single line of a progress bar must not push
	// out all others.
	maxLineSize = 400
	maxLines    = 40
	maxSteps    = 40
	maxLayers   = 60
)

// Encode gives the termination message: JSON of at most MaxResultSize bytes.
// What does not fit is cut, the least telling first: the oldest of the last
// lines, then the end of the message, then the tags of layers, then the steps.
func (r Result) Encode() []byte {
	result := r
	result.Steps = slices.Clone(r.Steps[:min(len(r.Steps), maxSteps)])
	result.LayerTags = r.LayerTags[:min(len(r.LayerTags), maxLayers)]
	if r.Failure != nil {
		failure := *r.Failure
		failure.LastLines = cutLines(r.Failure.LastLines)
		result.Failure = &failure
	}
	for {
		encoded, err := json.Marshal(result)
		if err == nil && len(encoded) <= MaxResultSize {
			return encoded
		}
		if err != nil || !result.shrink(len(encoded)-MaxResultSize) {
			return []byte(`{"failure":{"class":"Internal","message":"the result does not fit into a termination message"}}`)
		}
	}
}

// minMessageSize is what stays of a message while there are steps to drop.
const minMessageSize = 256

// ellipsis marks a cut.
const ellipsis = "…"

// shrink drops something of about over bytes; false: nothing is left to drop.
func (r *Result) shrink(over int) bool {
	failure := r.Failure
	switch {
	case failure != nil && len(failure.LastLines) > 0:
		failure.LastLines = failure.LastLines[1:]
	case failure != nil && len(failure.Message) > minMessageSize:
		failure.Message = cut(failure.Message, max(len(failure.Message)-over, minMessageSize-len(ellipsis)))
	case len(r.LayerTags) > 0:
		r.LayerTags = r.LayerTags[:len(r.LayerTags)-1]
	case len(r.Steps) > 0:
		r.Steps = r.Steps[:len(r.Steps)-1]
	default:
		return false
	}
	return true
}

func cutLines(lines []string) []string {
	var short []string
	for _, line := range lines[max(len(lines)-maxLines, 0):] {
		short = append(short, cut(line, maxLineSize))
	}
	return short
}

// cut shortens text to about size bytes at the start of a character.
func cut(text string, size int) string {
	if len(text) <= size {
		return text
	}
	for size > 0 && text[size]&0xc0 == 0x80 {
		size--
	}
	return text[:size] + ellipsis
}

// DecodeResult reads a termination message. The kubelet puts the end of the
// log there when a container wrote none (FallbackToLogsOnError), so anything
// that is not a Result is an error and no Result.
func DecodeResult(message []byte) (*Result, error) {
	if len(message) > MaxResultSize {
		return nil, fmt.Errorf("the termination message has %d bytes, more than %d", len(message), MaxResultSize)
	}
	decoder := json.NewDecoder(bytes.NewReader(message))
	decoder.DisallowUnknownFields()
	var result Result
	if err := decoder.Decode(&result); err != nil {
		return nil, fmt.Errorf("the termination message is no build result: %w", err)
	}
	if decoder.More() {
		return nil, errors.New("the termination message is no build result: text follows it")
	}
	if (result.Digest == "") == (result.Failure == nil) {
		return nil, errors.New("the termination message is no build result: it needs either a digest or a failure")
	}
	if result.Digest != "" && !isDigest(result.Digest) {
		return nil, fmt.Errorf("the build result's digest %q is not sha256:<64 hex>", result.Digest)
	}
	if err := result.validateTags(); err != nil {
		return nil, err
	}
	return &result, nil
}
