package ignition

import (
	"archive/tar"
	"errors"
	"path"
	"slices"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// baseUnitDirs are where a base image has units, the first wins.
var baseUnitDirs = []string{unitDir, baseUnitDir}

// ownUnitDirs are where the files of a config can be units.
var ownUnitDirs = []string{unitDir, baseUnitDir, "/lib/systemd/system"}

// unitSet finds units by name in the config and in the base image.
type unitSet struct {
	base Base
	// texts of the units of the config, with their drop-ins; dropins of all units.
	texts, dropins map[string]string
	files          []types.File
	// unmasked are those that the config says are not masked.
	unmasked map[string]bool
}

func newUnitSet(config types.Config, base Base) *unitSet {
	set := &unitSet{base: base, files: config.Storage.Files, texts: map[string]string{}, dropins: map[string]string{}, unmasked: map[string]bool{}}
	for _, u := range config.Systemd.Units {
		for _, dropin := range u.Dropins {
			if hasText(dropin.Contents) {
				set.dropins[u.Name] += "\n" + *dropin.Contents
			}
		}
		if hasText(u.Contents) {
			set.texts[u.Name] = *u.Contents + set.dropins[u.Name]
		}
		set.unmasked[u.Name] = u.Mask != nil && !*u.Mask
	}
	return set
}

// own finds a unit, or the template that it is an instance of, in the config;
// nil: it has none.
func (s *unitSet) own(name string) *unitFile {
	for _, candidate := range []string{name, templateOf(name)} {
		if text, known := s.texts[candidate]; known {
			return &unitFile{name: name, directory: unitDir, text: text}
		}
	}
	return nil
}

// ownFile finds a unit that the config has as a file below storage.files; nil:
// it has none.
func (s *unitSet) ownFile(name string) (*unitFile, error) {
	for _, file := range s.files {
		directory, base := path.Split(file.Path)
		directory = path.Clean(directory)
		if base != name && base != templateOf(name) || !slices.Contains(ownUnitDirs, directory) || file.Contents.Source == nil {
			continue
		}
		content, err := readFile(nil, file)
		if err != nil {
			return nil, refuse(file.Path, err)
		}
		return &unitFile{name: name, directory: directory, text: string(content) + s.dropins[base]}, nil
	}
	return nil, nil
}

// find finds a unit in the config, else in the base image; nil: neither has it.
// A unit of the base comes with the drop-ins of the config.
func (s *unitSet) find(name string) (*unitFile, error) {
	if own := s.own(name); own != nil {
		return own, nil
	}
	if own, err := s.ownFile(name); own != nil || err != nil {
		return own, err
	}
	for _, candidate := range []string{name, templateOf(name)} {
		if candidate == "" {
			continue
		}
		found, err := s.findInBase(candidate)
		if err != nil {
			return nil, err
		}
		if found == nil {
			continue
		}
		found.text += s.dropins[candidate]
		if _, instance, _ := splitUnitName(name); candidate != name {
			prefix, _, suffix := splitUnitName(found.name)
			found.name = prefix + "@" + instance + suffix
		}
		return found, nil
	}
	return nil, nil
}

var errMasked = errors.New("the base image masks it; set mask: false, too")

// findInBase follows the links by which a unit has other names.
func (s *unitSet) findInBase(name string) (*unitFile, error) {
	for range maxLinks {
		at, found, err := s.lookUp(name)
		if err != nil || found == nil {
			return nil, err
		}
		switch target := path.Base(found.Target); {
		case found.isLinkTo("/dev/null"):
			return nil, errMasked
		case found.Kind == tar.TypeSymlink && target != name && unitName.MatchString(target):
			name = target
			continue
		}
		text, err := readIfThere(s.base, at)
		if err != nil || text == nil {
			return nil, err
		}
		return &unitFile{name: name, directory: path.Dir(at), text: string(text)}, nil
	}
	return nil, nil
}

// lookUp finds the file or link of a unit.
func (s *unitSet) lookUp(name string) (at string, found *Found, err error) {
	for _, directory := range baseUnitDirs {
		if at, err = resolve(s.base, directory+"/"+name); err != nil {
			return "", nil, err
		}
		if found, err = s.base.Find(at); err != nil {
			return "", nil, err
		}
		if found == nil || found.isLinkTo("/dev/null") && directory == unitDir && s.unmasked[name] {
			continue
		}
		return at, found, nil
	}
	return "", nil, nil
}

// orderEarlyUnits has the services that start before everything else wait for
// what is put in place below /var; others do so by their default dependencies.
func (b *layerBuilder) orderEarlyUnits() []*entry {
	if len(b.inVar.removed) == 0 {
		return nil
	}
	set := newUnitSet(b.config, b.base)
	var entries []*entry
	for _, u := range b.config.Systemd.Units {
		text := set.dropins[u.Name]
		if hasText(u.Contents) {
			text = set.texts[u.Name]
		}
		if path.Ext(u.Name) == ".service" && !isTrue(u.Mask) && isEarly(text) {
			entries = append(entries, newFile(baseUnitDir+"/"+u.Name+".d/50-"+strings.TrimSuffix(varUnit, ".service")+".conf",
				"[Unit]\nAfter="+varUnit+"\n"))
		}
	}
	return entries
}

// isEarly reports whether a unit may start before /var is complete. One that
// has to run before file systems are mounted finds nothing below /var, and
// would wait for itself.
func isEarly(text string) bool {
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return false // it has been refused, or systemd ignores it
	}
	early := false
	for _, option := range options {
		switch {
		case option.Section != "Unit":
		case option.Name == "DefaultDependencies":
			early = isNo(option.Value)
		case option.Name == "Before" && strings.Contains(option.Value, "local-fs"):
			return false
		}
	}
	return early
}

// isNo knows how systemd.syntax(7) writes false.
func isNo(value string) bool {
	switch strings.ToLower(strings.TrimSpace(value)) {
	case "no", "false", "off", "0", "n", "f":
		return true
	}
	return false
}
