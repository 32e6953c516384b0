package osimage

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/klauspost/compress/gzip"
)

func TestSelectRecipes(t *testing.T) {
	tests := map[string]struct {
		names, want []string
		failure     string
	}{
		"the default":            {want: []string{"debian-12", "debian-13"}},
		"in the order asked for": {names: []string{"debian-13", "debian-12"}, want: []string{"debian-13", "debian-12"}},
		"an unknown stream":      {names: []string{"debian-1"}, failure: `OS stream "debian-1" is not known: choose from [debian-12 debian-13]`},
	}
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			selected, err := selectRecipes(test.names)
			if test.failure != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.failure) {
					t.Errorf("error is %v, want %q", err, test.failure)
				}
				return
			}
			var got []string
			for _, recipe := range selected {
				got = append(got, recipe.Name)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("streams (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWriteLayerIsSortedAndAlwaysTheSame(t *testing.T) {
	files := []file{
		{path: "usr/lib/b", mode: 0o644, content: []byte("b")},
		{path: "etc/a", mode: 0o600, content: []byte("a")},
		{path: "usr/bin/c", target: "d"},
	}
	var first, second bytes.Buffer
	if err := writeLayer(&first, append([]file{}, files...)); err != nil {
		t.Fatal(err)
	}
	files[0], files[2] = files[2], files[0]
	if err := writeLayer(&second, files); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(first.Bytes(), second.Bytes()) {
		t.Error("the order of the input changes the layer")
	}
	want := []string{"etc/", "etc/a", "usr/", "usr/bin/", "usr/bin/c -> d", "usr/lib/", "usr/lib/b"}
	if diff := cmp.Diff(want, entries(t, &first)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
}

func entries(t *testing.T, layer io.Reader) []string {
	t.Helper()
	uncompressed, err := gzip.NewReader(layer)
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for archive := tar.NewReader(uncompressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		text := header.Name
		if header.Linkname != "" {
			text += " -> " + header.Linkname
		}
		found = append(found, text)
	}
}

func TestExtensionsAreAnAptRepository(t *testing.T) {
	if _, err := exec.LookPath("dpkg-deb"); err != nil {
		t.Fatal("dpkg-deb is missing: the local cluster runs on Debian only: ", err)
	}
	debs, tree := t.TempDir(), t.TempDir()
	control := "Package: sample\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@example.com>\nDescription: a sample\n"
	if err := os.MkdirAll(filepath.Join(tree, "DEBIAN"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(tree, "DEBIAN", "control"), []byte(control), 0o644); err != nil {
		t.Fatal(err)
	}
	if output, err := exec.Command("dpkg-deb", "--build", tree, filepath.Join(debs, "sample_1.0_all.deb")).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	var layer bytes.Buffer
	if err := writeExtensions(context.Background(), debs, &layer); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"Packages", "extensions.list", "sample_1.0_all.deb"}, entries(t, &layer)); diff != "" {
		t.Errorf("entries (-want +got):\n%s", diff)
	}
	var index bytes.Buffer
	if err := describePackage(context.Background(), &index, filepath.Join(debs, "sample_1.0_all.deb"), []byte("content")); err != nil {
		t.Fatal(err)
	}
	want := control + "Filename: ./sample_1.0_all.deb\nSize: 7\n" +
		"SHA256: ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73\n\n"
	if diff := cmp.Diff(want, index.String()); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
}

func TestAnEmptyExtensionsImageIsRefused(t *testing.T) {
	err := writeExtensions(context.Background(), t.TempDir(), io.Discard)
	if err == nil || !strings.Contains(err.Error(), "no extension package was fetched") {
		t.Errorf("error is %v", err)
	}
}

func TestPublishedImagesAreRecognisedByTheirLabels(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	directory := t.TempDir()
	layers := layerFiles{}
	for _, path := range []*string{&layers.packages, &layers.software, &layers.runtimes, &layers.extensions} {
		*path = filepath.Join(directory, "layer")
	}
	err := writeAtomically(layers.packages, func(out io.Writer) error {
		return writeLayer(out, []file{{path: "etc/a", mode: 0o644, content: []byte("a")}})
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx := context.Background()
	publisher, err := newPublisher(Options{Registry: strings.TrimPrefix(server.URL, "http://")})
	if err != nil {
		t.Fatal(err)
	}
	record := filepath.Join(directory, "record")
	if _, ok := publisher.stillHas(ctx, record); ok {
		t.Error("an image is taken for published that never was")
	}
	stream, err := publisher.publish(ctx, recipe{Name: "sample", Version: "1", Runtimes: []string{"runc", "crun"}}, layers, record)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]map[string]string{
		stream.Image: {
			"containers.bootc": "1", "ostree.bootable": "true", "dev.imagemode.runtimes": "crun,runc",
			"io.openshift.os.streamclass": "sample", "org.opencontainers.image.version": "1",
		},
		stream.ExtensionsImage: {
			"io.openshift.os.extensions": "true", "io.openshift.os.streamclass": "sample", "org.opencontainers.image.version": "1",
		},
	}
	got := map[string]map[string]string{}
	for reference := range want {
		got[reference] = labelsOf(t, reference)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	again, ok := publisher.stillHas(ctx, record)
	if !ok || again != stream {
		t.Errorf("the record gives %+v, %t; want %+v", again, ok, stream)
	}
}

func labelsOf(t *testing.T, reference string) map[string]string {
	t.Helper()
	digest, err := name.NewDigest(reference)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(digest)
	if err != nil {
		t.Fatal(err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.OS != "linux" || config.Architecture != architecture {
		t.Errorf("%s is for %s/%s", reference, config.OS, config.Architecture)
	}
	return config.Config.Labels
}

// Units that are enabled or masked by a link must exist, or be Debian's.
func TestEnabledUnitsAreInTheImage(t *testing.T) {
	files, err := textFiles()
	if err != nil {
		t.Fatal(err)
	}
	present := map[string]int64{}
	for _, file := range files {
		present[file.path] = file.mode
	}
	for _, unit := range append([]string{"bootc-finalize-staged.service"}, enabledUnits...) {
		if _, ok := present["usr/lib/systemd/system/"+unit]; !ok {
			t.Errorf("unit %s is enabled and not in the image", unit)
		}
	}
	for _, program := range []string{"setup", "stop-pods"} {
		if mode := present["usr/libexec/imagemode-node/"+program]; mode != 0o755 {
			t.Errorf("program %s has mode %o", program, mode)
		}
	}
}
