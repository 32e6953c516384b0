package ignition

import (
	"archive/tar"
	"bytes"
	"io"
	"strings"
	"time"
)

// blockSize is the unit of a tar in bytes.
const blockSize = 512

var zeroBlock [blockSize]byte

// archiveWriter writes what archive/tar would, to the byte. That package looks at
// each header as if it were a foreign one, which took as long as compressing what
// follows: a layer has thousands of small files.
type archiveWriter struct {
	to     io.Writer
	header [blockSize]byte
}

func (w *archiveWriter) add(e *entry) error {
	if err := w.addHeader(e); err != nil {
		return err
	}
	if _, err := w.to.Write(e.data); err != nil || len(e.data)%blockSize == 0 {
		return err
	}
	_, err := w.to.Write(zeroBlock[len(e.data)%blockSize:])
	return err
}

// close writes the two blocks of an end.
func (w *archiveWriter) close() error {
	for range 2 {
		if _, err := w.to.Write(zeroBlock[:]); err != nil {
			return err
		}
	}
	return nil
}

func (w *archiveWriter) addHeader(e *entry) error {
	name := e.path[1:]
	if e.kind == tar.TypeDir {
		name += "/"
	}
	if !isPlainHeader(name, e) {
		return w.addOtherHeader(name, e)
	}
	header := &w.header
	clear(header[:])
	copy(header[:nameSize], name)
	putOctal(header[100:108], e.mode)
	putOctal(header[108:116], int64(e.owner.uid))
	putOctal(header[116:124], int64(e.owner.gid))
	putOctal(header[124:136], int64(len(e.data)))
	putOctal(header[136:148], 0) // the time
	header[156] = e.kind
	copy(header[157:157+nameSize], e.target)
	copy(header[257:265], "ustar\x0000")
	putOctal(header[329:337], 0) // numbers of a device
	putOctal(header[337:345], 0)
	putChecksum(header)
	_, err := w.to.Write(header[:])
	return err
}

// addOtherHeader leaves to the library what takes more than one block, or the
// other half of one.
func (w *archiveWriter) addOtherHeader(name string, e *entry) error {
	var blocks bytes.Buffer
	// Without a format tar takes USTAR where it can and PAX for long names.
	err := tar.NewWriter(&blocks).WriteHeader(&tar.Header{
		Typeflag: e.kind,
		Name:     name,
		Linkname: e.target,
		Mode:     e.mode,
		Uid:      e.owner.uid,
		Gid:      e.owner.gid,
		Size:     int64(len(e.data)),
		ModTime:  time.Unix(0, 0),
	})
	if err != nil {
		return err
	}
	_, err = w.to.Write(blocks.Bytes())
	return err
}

// nameSize is what a header has for a name, and for the target of a link, in bytes.
const nameSize = 100

// isPlainHeader reports whether the first form of a header can hold an entry: 7
// octal digits for owners and mode, 11 for the size, ASCII without NUL.
func isPlainHeader(name string, e *entry) bool {
	const seven = 1<<21 - 1
	return len(name) <= nameSize && len(e.target) <= nameSize && isPlain(name) && isPlain(e.target) &&
		e.mode >= 0 && e.mode <= seven && e.owner.uid >= 0 && e.owner.uid <= seven && e.owner.gid >= 0 && e.owner.gid <= seven
}

func isPlain(text string) bool {
	for i := range len(text) {
		if text[i] == 0 || text[i] >= 0x80 {
			return false
		}
	}
	return true
}

// putOctal fills a field with digits, and a NUL behind them.
func putOctal(field []byte, value int64) {
	for i := len(field) - 2; i >= 0; i-- {
		field[i] = byte('0' + value&7)
		value >>= 3
	}
}

// putChecksum counts its own field as spaces.
func putChecksum(header *[blockSize]byte) {
	field := header[148:156]
	copy(field, strings.Repeat(" ", len(field)))
	sum := int64(0)
	for _, c := range header {
		sum += int64(c)
	}
	field[6] = 0
	putOctal(field[:7], sum)
	field[7] = ' '
}
