// Command tool is all that the base image of the builder's tests holds: what a
// RUN would do with a shell, in one static program.
package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

func main() {
	if len(os.Args) < 2 {
		os.Exit(64)
	}
	arguments := os.Args[2:]
	switch os.Args[1] {
	case "write": // PATH TEXT
		check(os.MkdirAll(filepath.Dir(arguments[0]), 0o755))
		check(os.WriteFile(arguments[0], []byte(arguments[1]), 0o644))
	case "expect": // PATH TEXT
		content, err := os.ReadFile(arguments[0])
		check(err)
		if string(content) != arguments[1] {
			check(fmt.Errorf("%s holds %q", arguments[0], content))
		}
	case "environment": // NAME END
		if got := os.Getenv(arguments[0]); !strings.HasSuffix(got, arguments[1]) {
			check(fmt.Errorf("%s is %q", arguments[0], got))
		}
	case "fail": // CODE LINE...
		for _, line := range arguments[1:] {
			fmt.Println(line)
		}
		code, err := strconv.Atoi(arguments[0])
		check(err)
		os.Exit(code)
	case "chown": // PATH UID
		uid, err := strconv.Atoi(arguments[1])
		check(err)
		check(os.Chown(arguments[0], uid, uid))
	case "search": // TEXT
		search(arguments[0])
	case "container": // lint, as /usr/bin/bootc
		if _, err := os.Lstat("/usr/etc"); err == nil {
			fmt.Println("Failed lint: etc-usretc")
			os.Exit(1)
		}
		fmt.Println("Checks passed: 1")
	default:
		check(fmt.Errorf("unknown command %s", os.Args[1]))
	}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "tool:", err)
		os.Exit(1)
	}
}

// search looks for text wherever a RUN might find a builder's secrets: in the
// environment and the open files of every process, and outside its root. It
// fails when it finds it.
func search(text string) {
	// The command line of this process holds the text backwards, so that it does
	// not find itself.
	wanted := []byte(reverse(text))
	processes, err := filepath.Glob("/proc/[0-9]*")
	check(err)
	found := false
	looked := 0
	for _, process := range processes {
		paths := []string{process + "/environ", process + "/cmdline"}
		descriptors, _ := filepath.Glob(process + "/fd/*")
		paths = append(paths, descriptors...)
		for _, below := range []string{"/pull/config.json", "/push/config.json"} {
			outside, _ := filepath.Glob(process + "/root" + os.Getenv("BUILD_DIRECTORY") + below)
			paths = append(paths, outside...)
		}
		for _, path := range paths {
			info, err := os.Stat(path)
			if err != nil || !info.Mode().IsRegular() {
				continue
			}
			looked++
			if content, err := os.ReadFile(path); err == nil && bytes.Contains(content, wanted) {
				fmt.Println("found in", path)
				found = true
			}
		}
	}
	fmt.Printf("looked into %d files of %d processes\n", looked, len(processes))
	if len(processes) < 2 || looked == 0 {
		check(fmt.Errorf("no process to look into: %s", strings.Join(processes, " ")))
	}
	if found {
		os.Exit(3)
	}
}

func reverse(text string) string {
	reversed := []byte(text)
	for i, j := 0, len(reversed)-1; i < j; i, j = i+1, j-1 {
		reversed[i], reversed[j] = reversed[j], reversed[i]
	}
	return string(reversed)
}
