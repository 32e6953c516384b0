package ignition

import (
	"archive/tar"
	"errors"
	"fmt"
	"path"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// attributes are what a node of the config has where the config is silent.
type attributes struct {
	mode  int64
	owner owner
}

// newEntry makes the entry of a file, directory or link.
func (b *layerBuilder) newEntry(at spot, kind byte, node types.Node, mode *int, silent attributes) (*entry, error) {
	e := &entry{path: at.resolved, kind: kind, mode: silent.mode}
	if mode != nil {
		e.mode = int64(*mode) & 0o7777
	}
	e.given = given{
		mode:  mode != nil,
		user:  node.User.ID != nil || textOf(node.User.Name) != "",
		group: node.Group.ID != nil || textOf(node.Group.Name) != "",
	}
	var err error
	e.owner, err = b.accounts.ownerOf(node, silent.owner, at.place)
	return e, err
}

func (b *layerBuilder) addFiles() error {
	for _, file := range b.config.Storage.Files {
		at, err := locate(b.base, file.Path, tar.TypeReg)
		if err != nil {
			return err
		}
		switch {
		case file.Contents.Source != nil:
			err = b.addFile(at, file, nil, attributes{mode: 0o644})
		case at.place == inVar:
			err = b.touchInVar(at, file)
		default:
			err = b.changeFile(at, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addFile delivers a file that holds before and what the config adds to it.
func (b *layerBuilder) addFile(at spot, file types.File, before []byte, silent attributes) error {
	data, err := readFile(before, file)
	if err != nil {
		return refuse(file.Path, err)
	}
	e, err := b.newEntry(at, tar.TypeReg, file.Node, file.Mode, silent)
	if err != nil {
		return err
	}
	e.data = data
	b.regular[at.resolved] = e
	return b.add(at, e)
}

// changeFile delivers a file without contents: it keeps those of the base
// image, with what is appended, and what the config says of mode and owner.
// Where the base has no such file it begins empty.
func (b *layerBuilder) changeFile(at spot, file types.File) error {
	found, err := b.base.Find(at.resolved)
	switch {
	case err != nil:
		return fmt.Errorf("%s: contents.source is missing, which keeps what is there: %w", file.Path, err)
	case found == nil:
		return b.addFile(at, file, nil, attributes{mode: 0o644})
	case !found.isFile():
		return refuse(file.Path, errors.New("contents.source is missing, which keeps what is there, and the base image has something else than a file there"))
	}
	before, err := b.base.Read(at.resolved)
	if err != nil {
		return fmt.Errorf("%s: %w", file.Path, err)
	}
	return b.addFile(at, file, before, attributes{found.Mode, owner{uid: found.UID, gid: found.GID}})
}

// touchInVar has a file made on the node unless it is there, and mode and owner
// set. Its content is the node's own: nothing can be appended in an image.
func (b *layerBuilder) touchInVar(at spot, file types.File) error {
	if len(file.Append) > 0 {
		return refuse(file.Path, fmt.Errorf("append: %s is below /var, where the content is the node's own; write the whole file with contents", at.resolved))
	}
	e, err := b.newEntry(at, tar.TypeReg, file.Node, file.Mode, attributes{mode: 0o644})
	if err != nil {
		return err
	}
	return b.inVar.touch(e)
}

func (b *layerBuilder) addDirectories() error {
	for _, directory := range b.config.Storage.Directories {
		at, err := locate(b.base, directory.Path, tar.TypeDir)
		if err != nil {
			return err
		}
		silent, err := b.directoryAttributes(at)
		if err != nil {
			return err
		}
		e, err := b.newEntry(at, tar.TypeDir, directory.Node, directory.Mode, silent)
		if err == nil {
			err = b.add(at, e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// directoryAttributes are those that the base has, as far as it is known:
// naming a directory must not open it.
func (b *layerBuilder) directoryAttributes(at spot) (attributes, error) {
	silent := attributes{mode: 0o755}
	if at.place != inImage {
		return silent, nil
	}
	found, err := findDirectory(b.base, at.resolved)
	if err != nil {
		return silent, fmt.Errorf("mode and owner of %s: %w", at.resolved, err)
	}
	if found != nil && found.Kind == tar.TypeDir {
		silent = attributes{found.Mode, owner{uid: found.UID, gid: found.GID}}
	}
	return silent, nil
}

func (b *layerBuilder) addLinks() error {
	for _, link := range b.config.Storage.Links {
		at, err := locate(b.base, link.Path, tar.TypeSymlink)
		if err != nil {
			return err
		}
		if isTrue(link.Hard) {
			err = b.addHardLink(at, link)
		} else {
			err = b.addSymbolicLink(at, link)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) addSymbolicLink(at spot, link types.Link) error {
	e, err := b.newEntry(at, tar.TypeSymlink, link.Node, nil, attributes{mode: 0o777})
	if err != nil {
		return err
	}
	e.target = *link.Target
	return b.add(at, e)
}

// addHardLink delivers the file that the link leads to a second time: on a
// bootc host files of the image are not linked to each other in any way that a
// program could rely on, and a copy in /etc is merged by itself.
func (b *layerBuilder) addHardLink(at spot, link types.Link) error {
	target, err := resolve(b.base, path.Clean("/"+*link.Target))
	if err != nil {
		return err
	}
	e, err := b.targetOf(target)
	if err != nil {
		return fmt.Errorf("%s: target %s: %w", link.Path, *link.Target, err)
	}
	if e == nil {
		return refuse(link.Path, fmt.Errorf("target: neither the config nor the base image has a file %s for a hard link", *link.Target))
	}
	e.path = at.resolved
	return b.add(at, e)
}

// targetOf gives a copy of a file of the config or of the base; nil: there is
// none that an image holds.
func (b *layerBuilder) targetOf(resolved string) (*entry, error) {
	if e, own := b.regular[resolved]; own {
		copied := *e
		return &copied, nil
	}
	if place, _ := placeOf(resolved); place != inImage {
		return nil, nil
	}
	found, err := b.base.Find(resolved)
	if err != nil || !found.isFile() {
		return nil, err
	}
	data, err := b.base.Read(resolved)
	return &entry{kind: tar.TypeReg, mode: found.Mode, owner: owner{uid: found.UID, gid: found.GID}, data: data}, err
}
