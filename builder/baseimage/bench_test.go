package baseimage

import (
	"bytes"
	"fmt"
	"io"
	"runtime"
	"testing"
)

// largeImage has the number of files and layers of an OS image, and little in
// them: 60 layers, 100,000 files, 10,000 directories.
func largeImage(b *testing.B) *Image {
	b.Helper()
	var data [][]byte
	for layer := range 60 {
		var lines []string
		for directory := range 167 {
			name := fmt.Sprintf("usr/share/application-%02d/directory-%03d", layer, directory)
			lines = append(lines, "dir "+name)
			for file := range 10 {
				lines = append(lines, fmt.Sprintf("file %s/some-file-%d.txt content-%d", name, file, directory*file))
			}
		}
		data = append(data, gzipped(b, archive(b, lines...)))
	}
	image, _ := imageOf(data...)
	return image
}

func BenchmarkReadingALargeImage(b *testing.B) {
	image := largeImage(b)
	b.ReportAllocs()
	for b.Loop() {
		clear(image.scans)
		if _, err := image.Find("/nowhere"); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkAnsweringFromASkeleton(b *testing.B) {
	image := largeImage(b)
	if _, err := image.Find("/nowhere"); err != nil {
		b.Fatal(err)
	}
	skeleton, err := image.Skeleton()
	if err != nil {
		b.Fatal(err)
	}
	layer := Layer{Digest: skeleton.Digest, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(skeleton.Data)), nil
	}}
	b.ReportAllocs()
	held := make([]*Over, 1)
	for b.Loop() {
		held[0] = image.Over(layer)
		if found, err := held[0].Find("/usr/share/application-07/directory-100/some-file-3.txt"); err != nil || found == nil {
			b.Fatal(found, err)
		}
	}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	clear(held)
	runtime.GC()
	runtime.ReadMemStats(&after)
	runtime.KeepAlive(held)
	b.ReportMetric(float64(before.HeapAlloc-after.HeapAlloc), "held-bytes")
	b.ReportMetric(float64(len(skeleton.Data)), "skeleton-bytes")
}
