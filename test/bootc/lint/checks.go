package lint

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"
	"unicode/utf8"

	"github.com/BurntSushi/toml"
)

// findVarRun: /var is persistent, so a directory there would outlive the boot
// that /run is for.
func findVarRun(root *os.Root) ([]string, error) {
	info, err := lstat(root, "var/run")
	if info == nil || err != nil || info.Mode()&fs.ModeSymlink != 0 {
		return nil, err
	}
	return []string{"Not a symlink: var/run"}, nil
}

// findUsrEtc: /usr/etc is made by the backend out of /etc at deployment.
func findUsrEtc(root *os.Root) ([]string, error) {
	for _, directory := range []string{"etc", "usr/etc"} {
		info, err := lstat(root, directory)
		if info == nil || err != nil {
			return nil, err
		}
	}
	return []string{"Found /usr/etc - this is a bootc implementation detail and not supported to use in containers"}, nil
}

// kargs is a file in /usr/lib/bootc/kargs.d.
type kargs struct {
	Kargs              []string `toml:"kargs"`
	MatchArchitectures []string `toml:"match-architectures"`
}

// findKargs parses the kernel argument files, in which unknown keys are errors.
func findKargs(root *os.Root) ([]string, error) {
	const directory = "usr/lib/bootc/kargs.d"
	entries, err := fs.ReadDir(root.FS(), directory)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var problems []string
	for _, entry := range entries {
		if path.Ext(entry.Name()) != ".toml" {
			continue
		}
		content, err := root.ReadFile(path.Join(directory, entry.Name()))
		if err != nil {
			return nil, err
		}
		if err := parseKargs(string(content)); err != nil {
			problems = append(problems, fmt.Sprintf("Parsing %s: %v", entry.Name(), err))
		}
	}
	return problems, err
}

func parseKargs(content string) error {
	var file kargs
	metadata, err := toml.Decode(content, &file)
	if err != nil {
		return err
	}
	if unknown := metadata.Undecoded(); len(unknown) > 0 {
		return fmt.Errorf("unknown field `%s`", unknown[0])
	}
	if !metadata.IsDefined("kargs") {
		return errors.New("missing field `kargs`")
	}
	return nil
}

// findKernels: with two kernels it would be left to chance which one boots. A
// container image without one is fine.
func findKernels(root *os.Root) ([]string, error) {
	kernels, err := fs.Glob(root.FS(), "usr/lib/modules/*/vmlinuz")
	if err != nil || len(kernels) < 2 {
		return nil, err
	}
	return []string{fmt.Sprintf("Found multiple kernels: %s", strings.Join(kernels, ", "))}, nil
}

// findNames: the backend keeps names and link targets as UTF-8 text.
func findNames(root *os.Root) ([]string, error) {
	var problems []string
	err := walk(root, ".", func(name string, entry fs.DirEntry) error {
		if !utf8.ValidString(entry.Name()) {
			problems = append(problems, fmt.Sprintf("/%s: Found non-utf8 filename", strings.ToValidUTF8(name, "?")))
			return nil
		}
		if entry.Type()&fs.ModeSymlink == 0 {
			return nil
		}
		target, err := root.Readlink(name)
		if err == nil && !utf8.ValidString(target) {
			problems = append(problems, fmt.Sprintf("/%s: Found non-utf8 symlink target", name))
		}
		return err
	})
	return problems, err
}

// findMissingDirectories: the kernel's file systems need a place to be mounted.
func findMissingDirectories(root *os.Root) ([]string, error) {
	var problems []string
	for _, directory := range []string{"dev", "proc", "sys"} {
		info, err := lstat(root, directory)
		if err != nil {
			return nil, err
		}
		if info == nil {
			problems = append(problems, "Missing API filesystem base directory: /"+directory)
		} else if !info.IsDir() {
			problems = append(problems, "Expected directory for API filesystem base directory: /"+directory)
		}
	}
	return problems, nil
}

// findBaseRoot looks for what only an image made as a bootc base has.
func findBaseRoot(root *os.Root) ([]string, error) {
	info, err := lstat(root, "sysroot")
	if err != nil {
		return nil, err
	}
	if info == nil || !info.IsDir() {
		return []string{"Missing /sysroot"}, nil
	}
	target, err := root.Readlink("ostree")
	if err != nil {
		return []string{"Missing ostree -> sysroot/ostree link"}, nil
	}
	if target != "sysroot/ostree" {
		return []string{fmt.Sprintf("Expected /ostree -> sysroot/ostree, not %s", target)}, nil
	}
	return nil, nil
}

// findLogs: logs of the build would be the first lines of every machine's logs.
func findLogs(root *os.Root) ([]string, error) {
	var problems []string
	err := walk(root, "var/log", func(name string, entry fs.DirEntry) error {
		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			problems = append(problems, "Found non-empty logfile: /"+name)
		}
		return err
	})
	return problems, err
}

// findContent: what is below these directories is hidden on a running machine.
func findContent(directories ...string) func(*os.Root) ([]string, error) {
	return func(root *os.Root) ([]string, error) {
		var problems []string
		for _, directory := range directories {
			err := walk(root, directory, func(name string, entry fs.DirEntry) error {
				if !entry.IsDir() {
					problems = append(problems, fmt.Sprintf("Found non-empty /%s: %s", directory, path.Base(name)))
				}
				return nil
			})
			if err != nil {
				return nil, err
			}
		}
		slices.Sort(problems)
		return problems, nil
	}
}

// lstat answers nil for what does not exist.
func lstat(root *os.Root, name string) (fs.FileInfo, error) {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return info, err
}

// walk visits what is below a directory without entering other file systems:
// what is mounted during a build is no part of the image. Directories that a
// build's reduced root may not read (apt keeps one for its own user) are passed
// over.
func walk(root *os.Root, directory string, visit func(name string, entry fs.DirEntry) error) error {
	device, err := deviceOf(root, ".")
	if err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), directory, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrPermission) && entry != nil {
			return fs.SkipDir
		}
		if err != nil || name == "." {
			return err
		}
		own, err := deviceOf(root, name)
		if err != nil {
			return err
		}
		if own != device {
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		}
		if name == directory {
			return nil
		}
		return visit(name, entry)
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

func deviceOf(root *os.Root, name string) (uint64, error) {
	info, err := root.Lstat(name)
	if err != nil {
		return 0, err
	}
	return info.Sys().(*syscall.Stat_t).Dev, nil
}
