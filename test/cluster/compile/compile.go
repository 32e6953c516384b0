// Package compile calls the go command in one way for all programs, so that a
// package that several of them share is compiled once: the go command keeps
// separate results for every set of files and flags.
package compile

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// Program says what to compile.
type Program struct {
	// Dir is in the module to compile in, Package a package of it or of one that
	// it requires.
	Dir, Package string
	// Output is the file to write.
	Output string
	// Tags are build tags besides the common ones.
	Tags []string
	// Ldflags are given besides -s -w.
	Ldflags string
	// Cgo is for what needs C. Everything else is compiled without, as Kubernetes is.
	Cgo bool
}

// commonTags keep cgo out of net and os/user even where a program is compiled
// with cgo: with it, everything above them would be compiled a second time.
var commonTags = []string{"netgo", "osusergo"}

// Flags are the arguments of `go build` but for output and package. Without
// paths the result is the same from every checkout.
func (p Program) Flags() []string {
	return []string{
		"-buildvcs=false", "-trimpath",
		"-tags", strings.Join(append(slices.Clone(commonTags), p.Tags...), ","),
		"-ldflags", strings.TrimSpace("-s -w " + p.Ldflags),
	}
}

// ErrNoGo says that there is no go command, and what to do.
var ErrNoGo = errors.New("the go command is not in $PATH: install Go 1.26 or newer and add its bin directory to $PATH")

// Build compiles the program. The error holds the compiler's output.
func Build(ctx context.Context, program Program) error {
	args := append([]string{"build"}, program.Flags()...)
	command := exec.CommandContext(ctx, "go", append(args, "-o", program.Output, program.Package)...)
	command.Dir = program.Dir
	command.Env = append(os.Environ(), environment(program.Cgo)...)
	output, err := command.CombinedOutput()
	if errors.Is(err, exec.ErrNotFound) {
		return ErrNoGo
	}
	if err != nil {
		return fmt.Errorf("%s does not compile: %w\n%s", program.Package, err, output)
	}
	return nil
}

// environment lets the compiler collect its garbage only from 2 GiB upward,
// which saves it a tenth of its time, and shuts out the user's own settings.
func environment(cgo bool) []string {
	enabled := "0"
	if cgo {
		enabled = "1"
	}
	return []string{"GOFLAGS=", "GOWORK=off", "CGO_ENABLED=" + enabled, "GOGC=off", "GOMEMLIMIT=2GiB"}
}
