package baseimage

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"sort"
	"strconv"
	"strings"

	"github.com/imagemode/imagemode/ignition"
)

// namesOwner marks the entry of a skeleton that holds the names of all files
// that are there without content. They are most of an image, and as entries of a
// tar they would take five times as long to read.
const namesOwner = "imagemode-names"

// maxNames bounds a list of names in bytes.
const maxNames = 512 << 20

// names are lines "NAME\x00MODE UID GID\n", sorted: octal mode, decimal owners.
type names []byte

// notInLines are the characters that part lines and their fields.
const notInLines = "\x00\n"

// fits reports whether an entry can be a line.
func fits(name string, e *entry) bool {
	return e.Kind == tar.TypeReg && !e.isKept && !strings.ContainsAny(name, notInLines)
}

// appendName adds the line of an entry that fits, in order.
func (n names) appendName(name string, e *entry) names {
	return fmt.Appendf(n, "%s\x00%o %d %d\n", name, e.Mode, e.UID, e.GID)
}

// find gives the file of a name; nil: it is none of these.
func (n names) find(name string) *entry {
	line, _, _ := bytes.Cut(n[n.search(name+"\x00"):], []byte("\n"))
	found, attributes, isLine := bytes.Cut(line, []byte{0})
	if !isLine || string(found) != name {
		return nil
	}
	words := strings.Fields(string(attributes))
	if len(words) != 3 {
		return nil
	}
	mode, _ := strconv.ParseInt(words[0], 8, 64) // written by appendName
	uid, _ := strconv.Atoi(words[1])
	gid, _ := strconv.Atoi(words[2])
	return &entry{Found: ignition.Found{Kind: tar.TypeReg, Mode: mode, UID: uid, GID: gid}}
}

// in gives the names directly in a directory.
func (n names) in(directory string) []string {
	if strings.ContainsAny(directory, notInLines) {
		return nil
	}
	prefix := strings.TrimSuffix(directory, "/") + "/"
	var found []string
	for rest := n[n.search(prefix):]; bytes.HasPrefix(rest, []byte(prefix)); {
		line, after, _ := bytes.Cut(rest, []byte("\n"))
		name, _, _ := bytes.Cut(line[len(prefix):], []byte{0})
		if !bytes.ContainsRune(name, '/') {
			found = append(found, string(name))
		}
		rest = after
	}
	return found
}

// search gives the offset of the first line that is not before text.
func (n names) search(text string) int {
	offset := sort.Search(len(n), func(i int) bool {
		line := n[n.startOf(i):]
		return string(line[:min(len(line), len(text))]) >= text
	})
	return n.startOf(offset)
}

// startOf gives the start of the line that offset is in; len(n): there is none.
func (n names) startOf(offset int) int {
	if offset >= len(n) {
		return len(n)
	}
	return bytes.LastIndexByte(n[:offset], '\n') + 1
}

// readNames reads the list of a skeleton.
func (s *scan) readNames(body io.Reader) error {
	list, err := io.ReadAll(io.LimitReader(body, maxNames+1))
	if err == nil && len(list) > maxNames {
		err = fmt.Errorf("the list of names has more than %d bytes", maxNames)
	}
	s.names = list
	return err
}

// entry gives what the layer has at a name; nil: nothing.
func (s *scan) entry(name string) *entry {
	if e, has := s.entries[name]; has {
		return e
	}
	return s.names.find(name)
}
