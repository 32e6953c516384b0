package ignition

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/opencontainers/go-digest"
)

// FilesPath is where the list of delivered files is in the image: JSON, a list
// of DeliveredFile by path. The drift check of the agent reads it.
const FilesPath = "/usr/lib/imagemode/files.json"

// DeliveredFile is one thing that the config puts on a node.
type DeliveredFile struct {
	// Path as the config has it.
	Path string `json:"path"`
	// Mode is octal with four digits; empty for links.
	Mode string `json:"mode,omitempty"`
	UID  int    `json:"uid"`
	GID  int    `json:"gid"`
	// SHA256 of the content, 64 hex; files only.
	SHA256 string `json:"sha256,omitempty"`
	// Target of a link.
	Target string `json:"target,omitempty"`
	// Directory is true for a directory.
	Directory bool `json:"directory,omitempty"`
}

// Layer is one layer of an image.
type Layer struct {
	// Data is a tar, compressed by gzip.
	Data []byte
	// Digest of Data, DiffID of the tar in it.
	Digest digest.Digest
	DiffID digest.Digest
	// Files is what it delivers, by path.
	Files []DeliveredFile
}

// IsEmpty reports whether the layer delivers nothing.
func (l *Layer) IsEmpty() bool { return l.DiffID == "" }

// NewLayer makes the layer of a config and of the kernel arguments of its
// MachineConfig. A config that asks for what no image can hold is a
// *RefusedError; so is content that does not decode. A config that asks for
// nothing gives an empty layer without Data.
func NewLayer(config types.Config, base Base, kernelArguments []string) (*Layer, error) {
	if problems := Refused(config); len(problems) > 0 {
		return nil, &RefusedError{problems}
	}
	b := &layerBuilder{base: base, tree: tree{}}
	for _, add := range []func(types.Config) error{b.addFiles, b.addDirectories, b.addLinks, b.addUnits} {
		if err := add(config); err != nil {
			return nil, err
		}
	}
	if err := b.addKernelArguments(config, kernelArguments); err != nil {
		return nil, err
	}
	return b.finish()
}

// layerBuilder collects what a layer holds.
type layerBuilder struct {
	base Base
	tree tree
	// tmpfiles are lines that put content in /var.
	tmpfiles []string
	files    []DeliveredFile
	total    int
}

func refuse(path string, err error) error {
	return &RefusedError{[]Problem{{path, err.Error()}}}
}

func (b *layerBuilder) addFiles(config types.Config) error {
	for _, file := range config.Storage.Files {
		if path.Clean(file.Path) == nodePullConfig {
			continue
		}
		data, err := readContents(file.Contents)
		if err != nil {
			return refuse(file.Path, err)
		}
		e := newEntry(file.Node, tar.TypeReg, file.Mode, 0o644)
		e.data = data
		if err := b.add(e); err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) addDirectories(config types.Config) error {
	for _, directory := range config.Storage.Directories {
		if err := b.add(newEntry(directory.Node, tar.TypeDir, directory.Mode, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) addLinks(config types.Config) error {
	for _, link := range config.Storage.Links {
		e := newEntry(link.Node, tar.TypeSymlink, nil, 0o777)
		e.target = *link.Target
		if err := b.add(e); err != nil {
			return err
		}
	}
	return nil
}

// newEntry makes an entry of what files, directories and links have in common.
// Names of owners other than root were refused.
func newEntry(node types.Node, kind byte, mode *int, defaultMode int64) *entry {
	e := &entry{path: path.Clean(node.Path), kind: kind, mode: defaultMode}
	if mode != nil {
		e.mode = int64(*mode) & 0o7777
	}
	if node.User.ID != nil {
		e.uid = *node.User.ID
	}
	if node.Group.ID != nil {
		e.gid = *node.Group.ID
	}
	return e
}

func (b *layerBuilder) addUnits(config types.Config) error {
	texts := unitTexts(config)
	for _, u := range config.Systemd.Units {
		if err := b.addUnit(u, texts); err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) addUnit(u types.Unit, texts map[string]string) error {
	file := unitDir + "/" + u.Name
	switch {
	case isTrue(u.Mask):
		if err := b.add(&entry{path: file, kind: tar.TypeSymlink, mode: 0o777, target: "/dev/null"}); err != nil {
			return err
		}
	case u.Contents != nil && *u.Contents != "":
		if err := b.add(&entry{path: file, kind: tar.TypeReg, mode: 0o644, data: []byte(*u.Contents)}); err != nil {
			return err
		}
	}
	for _, dropin := range u.Dropins {
		if dropin.Contents == nil || *dropin.Contents == "" {
			continue
		}
		e := &entry{path: file + ".d/" + dropin.Name, kind: tar.TypeReg, mode: 0o644, data: []byte(*dropin.Contents)}
		if err := b.add(e); err != nil {
			return err
		}
	}
	if !isTrue(u.Enabled) || isTrue(u.Mask) {
		return nil
	}
	return b.addInstallLinks(u.Name, texts)
}

func (b *layerBuilder) addInstallLinks(name string, texts map[string]string) error {
	text, _ := installText(name, texts)
	links, err := installLinks(name, text)
	if err != nil {
		return refuse(name, err)
	}
	for _, link := range links {
		e := &entry{path: link.path, kind: tar.TypeSymlink, mode: 0o777, target: link.target}
		if old, exists := b.tree[e.path]; exists && old.target == e.target {
			continue // WantedBy= names one target twice
		}
		if err := b.add(e); err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) addKernelArguments(config types.Config, more []string) error {
	arguments, err := kernelArguments(config, more)
	if err != nil {
		return refuse("kernelArguments", err)
	}
	if len(arguments) == 0 {
		return nil
	}
	return b.tree.add(&entry{path: kargsPath, kind: tar.TypeReg, mode: 0o644, data: kargsFile(arguments)})
}

// add puts e where it can live and notes it as delivered.
func (b *layerBuilder) add(e *entry) error {
	if b.total += len(e.data); b.total > MaxTotalSize {
		return refuse(e.path, fmt.Errorf("all files together have more than %d bytes", MaxTotalSize))
	}
	b.files = append(b.files, e.delivered())
	resolved := b.base.resolve(e.path)
	if e.kind == tar.TypeDir {
		// A directory that is a link in the base stays one.
		resolved = path.Dir(b.base.resolve(e.path + "/x"))
	}
	switch place, reason := placeOf(resolved); place {
	case nowhere:
		return &RefusedError{[]Problem{{e.path, reason}}}
	case inVar:
		return b.addVar(e)
	}
	moved := *e
	moved.path = resolved
	if err := b.tree.add(&moved); err != nil {
		return refuse(e.path, err)
	}
	return nil
}

// addVar keeps the content of e in the image and has it put in place at boot.
func (b *layerBuilder) addVar(e *entry) error {
	switch e.kind {
	case tar.TypeDir:
		b.tmpfiles = append(b.tmpfiles, directoryLines(e)...)
		return nil
	case tar.TypeSymlink:
		b.tmpfiles = append(b.tmpfiles, linkLines(e)...)
		return nil
	}
	b.tmpfiles = append(b.tmpfiles, copyLines(e)...)
	kept := *e
	kept.path = keptBelow + e.path
	// The copy gets its owner and mode by its line; the kept one is root's,
	// and as closed as it will be, for it may be a secret.
	kept.uid, kept.gid, kept.mode = 0, 0, e.mode&0o755
	if err := b.tree.add(&kept); err != nil {
		return refuse(e.path, err)
	}
	return nil
}

func (e *entry) delivered() DeliveredFile {
	file := DeliveredFile{Path: e.path, UID: e.uid, GID: e.gid, Target: e.target, Directory: e.kind == tar.TypeDir}
	if e.kind != tar.TypeSymlink {
		file.Mode = fmt.Sprintf("%04o", e.mode)
	}
	if e.kind == tar.TypeReg {
		sum := sha256.Sum256(e.data)
		file.SHA256 = hex.EncodeToString(sum[:])
	}
	return file
}

// finish adds what belongs to the layer as a whole and packs it.
func (b *layerBuilder) finish() (*Layer, error) {
	if len(b.tree) == 0 && len(b.tmpfiles) == 0 {
		return &Layer{}, nil
	}
	if len(b.tmpfiles) > 0 {
		lines := &entry{path: tmpfilesPath, kind: tar.TypeReg, mode: 0o644, data: []byte(strings.Join(b.tmpfiles, ""))}
		if err := b.tree.add(lines); err != nil {
			return nil, refuse(tmpfilesPath, err)
		}
	}
	sortFiles(b.files)
	list, err := json.MarshalIndent(b.files, "", " ")
	if err != nil {
		return nil, fmt.Errorf("listing the delivered files: %w", err)
	}
	if err := b.tree.add(&entry{path: FilesPath, kind: tar.TypeReg, mode: 0o644, data: append(list, '\n')}); err != nil {
		return nil, refuse(FilesPath, err)
	}
	if err := b.tree.addParents(b.base); err != nil {
		return nil, refuse("storage", err)
	}
	packed, err := b.tree.pack()
	if err != nil {
		return nil, fmt.Errorf("packing the config layer: %w", err)
	}
	return &Layer{Data: packed.data, Digest: packed.digest, DiffID: packed.diffID, Files: b.files}, nil
}

func sortFiles(files []DeliveredFile) {
	slices.SortFunc(files, func(a, b DeliveredFile) int { return cmp.Compare(a.Path, b.Path) })
}
