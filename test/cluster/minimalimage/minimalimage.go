// Package minimalimage makes an OCI image out of one static program: the
// program, the few files a program expects of any system, and nothing else.
package minimalimage

import (
	"archive/tar"
	"bytes"
	"io"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Program is the image's one program.
type Program struct {
	// File is where it is now.
	File string
	// Name is the file name in the image; the entrypoint is /usr/bin/Name.
	Name string
	// Architecture is Go's name for it, as in amd64.
	Architecture string
	// Unit is what a systemd unit Name.service has in it, which starts with the
	// machine: the image can be laid on an OS image then, and so has nothing outside
	// of /usr. Empty: the image is for containers only.
	Unit string
}

// passwd and group name the users that programs look up; without them a static
// program cannot tell its own user's name.
const (
	passwd = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
	group  = "root:x:0:\nnogroup:x:65534:\n"
)

// New returns the image. The same program gives the same digest.
func New(program Program) (v1.Image, error) {
	content, err := layer(program)
	if err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(content)), nil },
		tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(1), // it crosses a bridge on the same host
	)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.AppendLayers(base, layer)
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Architecture, config.OS = program.Architecture, "linux"
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/" + program.Name},
		Env:        []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "USER=root"},
	}
	return mutate.ConfigFile(image, config)
}

// layer is the tar stream of the image's only layer, with fixed times.
func layer(program Program) ([]byte, error) {
	executable, err := os.ReadFile(program.File)
	if err != nil {
		return nil, err
	}
	var content bytes.Buffer
	archive := tar.NewWriter(&content)
	for _, entry := range program.entries(executable) {
		header := &tar.Header{
			Name: entry.name, Mode: entry.mode, Size: int64(len(entry.content)), Linkname: entry.target,
			Typeflag: tar.TypeReg, ModTime: time.Unix(0, 0), Format: tar.FormatPAX,
		}
		switch {
		case entry.target != "":
			header.Typeflag = tar.TypeSymlink
		case entry.content == nil:
			header.Typeflag = tar.TypeDir
		}
		if err := archive.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := archive.Write(entry.content); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return content.Bytes(), nil
}

// entry is one thing in the layer: a file, a link where target is set, or else a
// directory.
type entry struct {
	name    string
	mode    int64
	content []byte
	target  string
}

func (p Program) entries(executable []byte) []entry {
	program := []entry{
		{name: "usr/", mode: 0o755},
		{name: "usr/bin/", mode: 0o755},
		{name: path.Join("usr/bin", p.Name), mode: 0o755, content: executable},
	}
	if p.Unit == "" {
		surroundings := []entry{
			{name: "etc/", mode: 0o755},
			{name: "etc/group", mode: 0o644, content: []byte(group)},
			{name: "etc/passwd", mode: 0o644, content: []byte(passwd)},
			{name: "root/", mode: 0o700},
			{name: "tmp/", mode: 0o1777},
		}
		return append(append(surroundings, program...), entry{name: "var/", mode: 0o755}, entry{name: "var/tmp/", mode: 0o1777})
	}
	const units = "usr/lib/systemd/system/"
	unit := p.Name + ".service"
	return append(program,
		entry{name: "usr/lib/", mode: 0o755},
		entry{name: "usr/lib/systemd/", mode: 0o755},
		entry{name: units, mode: 0o755},
		entry{name: units + unit, mode: 0o644, content: []byte(p.Unit)},
		entry{name: units + "multi-user.target.wants/", mode: 0o755},
		entry{name: units + "multi-user.target.wants/" + unit, mode: 0o777, target: "../" + unit},
	)
}
