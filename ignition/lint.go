package ignition

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// Lint applies the checks that bootc container lint calls fatal to a
// gzip-compressed layer, as far as one layer can break them. NewLayer's layers
// pass; it is the second look before one is pushed.
func Lint(layer []byte) ([]Problem, error) {
	unpacker, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return nil, fmt.Errorf("lint: %w", err)
	}
	archive := tar.NewReader(io.LimitReader(unpacker, 2*MaxTotalSize))
	var problems []Problem
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return problems, nil
		}
		if err != nil {
			return nil, fmt.Errorf("lint: %w", err)
		}
		problems = append(problems, lintEntry(header)...)
	}
}

func lintEntry(header *tar.Header) []Problem {
	name := "/" + strings.TrimSuffix(header.Name, "/")
	var problems []Problem
	if path.Clean(name) != name {
		problems = append(problems, problemf(name, "the path leads through . or .."))
	}
	if !isText(header.Name) || !isText(header.Linkname) {
		problems = append(problems, problemf(name, "the name is not UTF-8"))
	}
	switch place, reason := placeOf(name); {
	case place == nowhere:
		problems = append(problems, Problem{name, reason})
	case place == inVar:
		problems = append(problems, problemf(name, "/var is not updated by an image"))
	}
	switch header.Typeflag {
	case tar.TypeReg, tar.TypeDir, tar.TypeSymlink:
	default:
		problems = append(problems, problemf(name, "only files, directories and links belong in a layer"))
	}
	return problems
}
