package ignition

import (
	"fmt"
	"strings"
)

// tmpfilesPath sorts behind the base's own files, so that the directories they
// make are there first.
const tmpfilesPath = "/usr/lib/tmpfiles.d/zz-imagemode.conf"

// keptBelow is where content for /var is kept in the image.
const keptBelow = "/usr/libexec/imagemode/var"

// An update of the image does not touch /var. What is to be there is kept in
// the image and put in place at every boot by systemd-tmpfiles: r removes the
// old file, C copies the new one. C alone would leave an existing file at its
// old content. Paths are written as the config has them: the base's own link
// leads them to /var.

func copyLines(e *entry) []string {
	return []string{
		tmpfilesLine("r", e.path, "-", "-", "-", ""),
		tmpfilesLine("C", e.path, fmt.Sprintf("%04o", e.mode), fmt.Sprint(e.uid), fmt.Sprint(e.gid), keptBelow+e.path),
	}
}

func directoryLines(e *entry) []string {
	return []string{tmpfilesLine("d", e.path, fmt.Sprintf("%04o", e.mode), fmt.Sprint(e.uid), fmt.Sprint(e.gid), "")}
}

func linkLines(e *entry) []string {
	return []string{tmpfilesLine("L+", e.path, "-", "-", "-", e.target)}
}

func tmpfilesLine(kind, path, mode, user, group, argument string) string {
	line := fmt.Sprintf("%s %s %s %s %s -", kind, quoteTmpfiles(path), mode, user, group)
	if argument != "" {
		line += " " + quoteArgument(argument)
	}
	return line + "\n"
}

// quoteTmpfiles writes a path as one word: quoted as in C, % doubled because it
// starts a specifier.
func quoteTmpfiles(path string) string {
	escaped := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "%", "%%", "\t", `\t`).Replace(path)
	if escaped == path && !strings.ContainsAny(path, " '#") {
		return path
	}
	return `"` + escaped + `"`
}

// quoteArgument writes the last field, which reaches to the end of the line and
// is not split into words.
func quoteArgument(argument string) string {
	return strings.NewReplacer(`\`, `\\`, "%", "%%", "\t", `\t`).Replace(argument)
}
