package ignition

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
	"github.com/opencontainers/go-digest"
)

// LayerVersion is raised when NewLayer makes another layer of the same input, so
// that what was made before is not taken for it. Golden layers show when.
const LayerVersion = 2

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

// NewLayer makes the layer of a config and of the kernel arguments of its
// MachineConfig, for an image on base. What is live (see Split) is not in it.
//
// A config that asks for what no image can hold is a *RefusedError, and so is
// content that does not decode. ErrBaseUnread says that base is asked what it
// does not know; other errors of base come back as they are. A config that asks
// for nothing has a layer, too: it removes what earlier ones put below /var.
func NewLayer(config types.Config, base Base, kernelArguments []string) (*Layer, error) {
	b, err := assemble(config, base, kernelArguments)
	if err != nil {
		return nil, err
	}
	packed, err := b.tree.pack()
	if err != nil {
		return nil, fmt.Errorf("packing the config layer: %w", err)
	}
	return &Layer{Data: packed.data, Digest: packed.digest, DiffID: packed.diffID, Files: b.files}, nil
}

// Check finds what NewLayer would refuse, as far as it can be told without the base
// image: nobody has to start a build for it. The error is that of NewLayer.
// Kernel arguments of a MachineConfig are left to CheckArguments.
func Check(config types.Config) error {
	_, err := assemble(config, DefaultBase(), nil)
	if errors.Is(err, ErrBaseUnread) {
		// What comes after that question depends on where the links of the image lead.
		return nil
	}
	return err
}

// CheckArguments is Check for the kernel arguments of a MachineConfig.
func CheckArguments(arguments []string) error {
	_, err := kernelArguments(empty(), arguments)
	for _, argument := range arguments {
		if err == nil && (argument == "" || strings.ContainsAny(argument, "\x00\n")) {
			err = fmt.Errorf("kernel argument %q: it is empty or has a line end", argument)
		}
	}
	if err != nil {
		return refuse("kernelArguments", err)
	}
	return nil
}

// assemble collects everything that a layer holds.
func assemble(config types.Config, base Base, kernelArguments []string) (*layerBuilder, error) {
	if problems := Refused(config); len(problems) > 0 {
		return nil, &RefusedError{problems}
	}
	config, _ = Split(config)
	b := &layerBuilder{
		config:   config,
		base:     base,
		accounts: newAccounts(config, base),
		tree:     tree{},
		regular:  map[string]*entry{},
		inVar:    newVarContent(),
	}
	for _, add := range []func() error{
		b.addUnits,
		b.addAccounts,
		b.addFiles,
		b.addDirectories,
		b.addLinks,
		func() error { return b.addKernelArguments(kernelArguments) },
	} {
		if err := add(); err != nil {
			return nil, err
		}
	}
	return b, b.finish()
}

// layerBuilder collects what a layer holds.
type layerBuilder struct {
	config   types.Config
	base     Base
	accounts *accounts
	tree     tree
	// regular are the files of the config by resolved path.
	regular map[string]*entry
	// inVar is what is put in place on the node.
	inVar *varContent
	// takenAway are paths that the base has and the image must not.
	takenAway []string
	files     []DeliveredFile
	total     int
}

func refuse(path string, err error) error {
	return &RefusedError{[]Problem{{path, err.Error()}}}
}

// add puts e where it can live and notes it as delivered.
func (b *layerBuilder) add(at spot, e *entry) error {
	if b.total += len(e.data); b.total > MaxTotalSize {
		return refuse(at.path, fmt.Errorf("all files together have more than %d bytes", MaxTotalSize))
	}
	if at.place != inVar || e.kind != tar.TypeDir || e.given == (given{true, true, true}) {
		// What is not said of a directory below /var is the node's: it cannot drift.
		b.files = append(b.files, e.delivered(at.path))
	}
	if at.place == inVar {
		kept, err := b.inVar.deliver(at, e)
		if err != nil || kept == nil {
			return err
		}
		e = kept
	}
	if e.owner.user != "" || e.owner.group != "" {
		return refuse(at.path, errors.New("its owner is known by name only; use user.id and group.id"))
	}
	if err := b.tree.add(e); err != nil {
		return refuse(at.path, err)
	}
	return nil
}

// addOwn adds what the config did not ask for by its path.
func (b *layerBuilder) addOwn(e *entry) error {
	if err := b.tree.add(e); err != nil {
		return refuse(e.path, errors.New("the path is imagemode's own"))
	}
	return nil
}

// finish adds what belongs to the layer as a whole.
func (b *layerBuilder) finish() error {
	own := append(b.inVar.entries(), b.orderEarlyUnits()...)
	list, err := encodeFiles(b.files)
	if err != nil {
		return err
	}
	for _, e := range append(own, newFile(FilesPath, string(list))) {
		if err := b.addOwn(e); err != nil {
			return err
		}
	}
	for _, path := range b.takenAway {
		b.tree.takeAway(path)
	}
	return b.tree.addParents(b.parent)
}

// ownDirectories are not in any base.
var ownDirectories = []string{ownDir, path.Dir(keptLinked), path.Dir(keptCopied)}

// parent makes the entry of a directory that is not in the config.
func (b *layerBuilder) parent(dir string) (*entry, error) {
	if kept := b.inVar.keep(dir); kept != nil {
		return kept, nil
	}
	e := &entry{path: dir, kind: tar.TypeDir, mode: 0o755}
	for _, own := range ownDirectories {
		if isBelow(dir, own) {
			return e, nil
		}
	}
	silent, err := b.directoryAttributes(spot{dir, dir, inImage})
	e.mode, e.owner = silent.mode, silent.owner
	return e, err
}
