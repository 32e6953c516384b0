package ignition

import (
	"archive/tar"
	"cmp"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
)

// Where imagemode has its own files in an image, and what it keeps there for
// /var: keptLinked is what links lead to, in the tree that SELinux policies
// label as programs, keptCopied what is copied, which only root has to read.
const (
	ownDir     = "/usr/lib/imagemode"
	keptLinked = "/usr/libexec/imagemode/var"
	keptCopied = "/usr/share/imagemode/var"
)

// An update of the image does not touch /var. At every boot varUnit has
// systemd-tmpfiles put in place what varLines says. At the first boot of another
// image changeUnit has it remove before what the list of the image before says,
// and keeps the new list in its stead: the intent is written before the act, so
// a crash in between is made good at the next boot.
const (
	varUnit    = "imagemode-var.service"
	changeUnit = "imagemode-var-change.service"

	// varLines are the tmpfiles.d lines that put things in place, varList those
	// that remove them again, varTakeList those that copy varList to keptList.
	varLines    = ownDir + "/var.conf"
	varList     = ownDir + "/var-list.conf"
	varTakeList = ownDir + "/var-take-list.conf"
	keptList    = "/var/lib/imagemode/var.conf"
	// keptMark and the hash of a list say on a node that its list is that one.
	keptMark = "/var/lib/imagemode/var-"

	// baseUnitDir is where an image has its own units.
	baseUnitDir = "/usr/lib/systemd/system"
)

//go:embed node/imagemode-var.service
var varUnitText string

//go:embed node/imagemode-var-change.service
var changeUnitText string

// linkedTrees hold programs and what belongs to them. A link to what the image
// keeps is better there than a copy: from the second boot on it is there before
// anything runs, and it follows the image by itself. What lies beside a program
// does so behind the link, too. Elsewhere programs may want to write a file, or
// to find it with the SELinux label of its place.
var linkedTrees = []string{"/opt", "/usr/local", "/var/opt", "/var/usrlocal"}

// varContent collects what is put in place below /var.
type varContent struct {
	// lines of tmpfiles.d by the path they are about.
	lines map[string][]string
	// directories of the config by their path in it.
	directories map[string]*entry
	// removed are the paths that go when they leave the config.
	removed []string
}

func newVarContent() *varContent {
	return &varContent{lines: map[string][]string{}, directories: map[string]*entry{}}
}

func (v *varContent) add(name string, lines ...string) error {
	if _, twice := v.lines[name]; twice {
		return refuse(name, fmt.Errorf("%s is delivered twice, by two spellings of the path", name))
	}
	v.lines[name] = lines
	return nil
}

// deliver has e put in place on the node. What it returns has to be kept in the
// image; nil: nothing.
func (v *varContent) deliver(at spot, e *entry) (*entry, error) {
	switch e.kind {
	case tar.TypeDir:
		v.directories[at.path] = e
		return nil, v.add(e.path, tmpfilesLine("d", e.path, e.asGiven(), ""))
	case tar.TypeSymlink:
		v.removed = append(v.removed, e.path)
		return nil, v.add(e.path, tmpfilesLine("L+", e.path, nil, e.target))
	}
	v.removed = append(v.removed, e.path)
	kept := *e
	if isLinked(at) && e.owner.user == "" && e.owner.group == "" {
		kept.path = keptLinked + at.path
		return &kept, v.add(e.path, tmpfilesLine("L+", e.path, nil, kept.path))
	}
	// The copy gets its owner and mode by its line; the kept one is root's.
	kept.path = keptCopied + at.path
	kept.owner, kept.mode = owner{}, e.mode&0o755
	// C leaves a file that exists at its old content.
	return &kept, v.add(e.path, tmpfilesLine("r", e.path, nil, ""), tmpfilesLine("C", e.path, e.fields(), kept.path))
}

func isLinked(at spot) bool {
	return slices.ContainsFunc(linkedTrees, func(tree string) bool {
		return isBelow(at.path, tree) || isBelow(at.resolved, tree)
	})
}

// keep gives the directory in which something is kept as closed as the one of
// the config is; nil: it is none, or the config says nothing of it.
func (v *varContent) keep(dir string) *entry {
	if dir == keptCopied {
		return &entry{path: dir, kind: tar.TypeDir, mode: 0o700}
	}
	name, isKept := strings.CutPrefix(dir, keptLinked)
	asked := v.directories[name]
	if !isKept || asked == nil {
		return nil
	}
	kept := &entry{path: dir, kind: tar.TypeDir, mode: asked.mode, owner: asked.owner}
	if asked.owner.user != "" || asked.owner.group != "" {
		kept.mode, kept.owner = asked.mode&0o755, owner{} // their numbers are not known
	}
	return kept
}

// touch has a file made if there is none, and its owner and mode set.
func (v *varContent) touch(e *entry) error {
	return v.add(e.path, tmpfilesLine("f", e.path, e.asGiven(), ""))
}

// home has a user's home made if there is none. A colon is: only then.
func (v *varContent) home(name, user, group string) {
	if _, own := v.lines[name]; !own {
		v.lines[name] = []string{tmpfilesLine("d", name, &attributeFields{":0700", ":" + user, ":" + group}, "")}
	}
}

// entries are what the image has for putting things in place.
func (v *varContent) entries() []*entry {
	list := v.list()
	sum := sha256.Sum256([]byte(list))
	hash := hex.EncodeToString(sum[:8])
	mark := &attributeFields{"0600", "0", "0"}
	lines := strings.Join(v.sortedLines(), "") + tmpfilesLine("f", keptMark+hash, mark, "")
	list += tmpfilesLine("r", keptMark+hash, nil, "")
	takeList := tmpfilesLine("r", keptList, nil, "") + tmpfilesLine("C", keptList, mark, varList)
	entries := []*entry{
		newFile(varLines, lines),
		newFile(varList, list),
		newFile(varTakeList, takeList),
		newFile(baseUnitDir+"/"+varUnit, strings.ReplaceAll(varUnitText, "@MOUNTS@", v.mounts())),
		newFile(baseUnitDir+"/"+changeUnit, strings.ReplaceAll(changeUnitText, "@LIST@", hash)),
		newLink(baseUnitDir+"/sysinit.target.wants/"+varUnit, "../"+varUnit),
	}
	return entries
}

// list removes everything that is put in place, but for directories and for
// files whose content is the node's own.
func (v *varContent) list() string {
	slices.Sort(v.removed)
	var list strings.Builder
	for _, name := range v.removed {
		list.WriteString(tmpfilesLine("r", name, nil, ""))
	}
	return list.String()
}

func (v *varContent) sortedLines() []string {
	var lines []string
	for _, name := range v.names() {
		lines = append(lines, v.lines[name]...)
	}
	return lines
}

func (v *varContent) names() []string {
	names := make([]string, 0, len(v.lines))
	for name := range v.lines {
		names = append(names, name)
	}
	slices.SortFunc(names, cmp.Compare)
	return names
}

// mounts are the directories that have to be there, each as a word of a unit:
// any of them may be a file system of its own.
func (v *varContent) mounts() string {
	var words []string
	for name, lines := range v.lines {
		if !strings.HasPrefix(lines[0], "d ") {
			words = append(words, " "+quoteWord(path.Dir(name)))
		}
	}
	slices.Sort(words)
	return strings.Join(slices.Compact(words), "")
}

// attributeFields are mode, user and group in a line of tmpfiles.d; a dash
// leaves to what is there as it is.
type attributeFields struct{ mode, user, group string }

// fields gives all attributes of e.
func (e *entry) fields() *attributeFields {
	return &attributeFields{
		mode:  octal(e.mode),
		user:  cmp.Or(e.owner.user, strconv.Itoa(e.owner.uid)),
		group: cmp.Or(e.owner.group, strconv.Itoa(e.owner.gid)),
	}
}

// asGiven gives the attributes that the config says something about.
func (e *entry) asGiven() *attributeFields {
	fields := e.fields()
	for field, isGiven := range map[*string]bool{&fields.mode: e.given.mode, &fields.user: e.given.user, &fields.group: e.given.group} {
		if !isGiven {
			*field = "-"
		}
	}
	return fields
}

// tmpfilesLine writes a line of tmpfiles.d(5); without fields nothing is said of
// mode and owner.
func tmpfilesLine(kind, name string, fields *attributeFields, argument string) string {
	if fields == nil {
		fields = &attributeFields{"-", "-", "-"}
	}
	if kind == "r" {
		name = withoutGlobs(name)
	}
	if argument != "" {
		argument = " " + quoteArgument(argument)
	}
	return kind + " " + quoteWord(name) + " " + fields.mode + " " + fields.user + " " + fields.group + " -" + argument + "\n"
}

// Texts of tmpfiles.d and of units are quoted as in C, with % doubled because it
// starts a specifier.
var (
	wordQuotes     = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\t", `\t`, "\r", `\r`)
	argumentQuotes = strings.NewReplacer(`\`, `\\`, "%", "%%", "\t", `\t`, "\r", `\r`)
	globQuotes     = strings.NewReplacer("*", "[*]", "?", "[?]", "[", "[[]")
)

// quoteWord writes a path as one word.
func quoteWord(name string) string {
	escaped := wordQuotes.Replace(name)
	if escaped == name && name != "-" && !strings.ContainsAny(name, " '#;*?[]") {
		return name
	}
	return `"` + escaped + `"`
}

// withoutGlobs writes a path so that it matches itself only: r takes patterns.
func withoutGlobs(name string) string { return globQuotes.Replace(name) }

// quoteArgument writes the last field, which reaches to the end of the line and
// is not split into words. A dash alone would be no argument, and a space at
// the end would be cut off.
func quoteArgument(argument string) string {
	if argument == "-" {
		return `\x2d`
	}
	escaped := argumentQuotes.Replace(argument)
	if cut, found := strings.CutSuffix(escaped, " "); found {
		return cut + `\x20`
	}
	return escaped
}
