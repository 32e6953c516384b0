package ignition

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/url"
	"syscall"
	"testing"

	"github.com/klauspost/compress/gzip"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// manyFiles is a config of 2,000 files of some 2 KiB of text: half of them
// programs below /usr/local/bin, and the three ways of writing contents in turn.
func manyFiles(b testing.TB) types.Config {
	b.Helper()
	config := empty()
	for i := range 2000 {
		text := script(i)
		file := types.File{Node: types.Node{Path: fmt.Sprintf("/etc/app.d/%04d.conf", i)}}
		if i%2 == 0 {
			mode := 0o755
			file.Path, file.Mode = fmt.Sprintf("/usr/local/bin/app-%04d", i), &mode
		}
		var source string
		switch i % 3 {
		case 0:
			source = "data:," + url.PathEscape(text)
		case 1:
			source = "data:;base64," + base64.StdEncoding.EncodeToString([]byte(text))
		case 2:
			var packed bytes.Buffer
			packer := gzip.NewWriter(&packed)
			if _, err := packer.Write([]byte(text)); err != nil {
				b.Fatal(err)
			}
			if err := packer.Close(); err != nil {
				b.Fatal(err)
			}
			compression := "gzip"
			source, file.Contents.Compression = "data:;base64,"+base64.StdEncoding.EncodeToString(packed.Bytes()), &compression
		}
		file.Contents.Source = &source
		config.Storage.Files = append(config.Storage.Files, file)
	}
	return config
}

// script is text that repeats itself as much as programs do.
func script(i int) string {
	var text bytes.Buffer
	fmt.Fprintf(&text, "#!/bin/bash\nset -euo pipefail\n# application %d\n", i)
	for line := 0; text.Len() < 2200; line++ {
		fmt.Fprintf(&text, "if [[ -f /etc/app.d/%04d-%d ]]; then systemctl restart app-%x.service; fi\n", i*7919%2000, line, i*line*2654435761)
	}
	return text.String()
}

func BenchmarkLayerOf2000Files(b *testing.B) {
	config := manyFiles(b)
	b.ReportAllocs()
	var layer *Layer
	before := processorTime(b)
	for b.Loop() {
		var err error
		if layer, err = NewLayer(config, DefaultBase(), nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(processorTime(b)-before)/float64(b.N), "cpu-ns/op")
	b.ReportMetric(float64(len(layer.Data)), "layer-bytes")
}

// processorTime is what this program has used so far, in ns. On a machine that
// does other things too, it says more than the time that passed.
func processorTime(b *testing.B) int64 {
	b.Helper()
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return usage.Utime.Nano() + usage.Stime.Nano()
}

func BenchmarkParseOf2000Files(b *testing.B) {
	raw, err := json.Marshal(manyFiles(b))
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if _, err := Parse(raw); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(len(raw)), "config-bytes")
}

func BenchmarkForImageOf2000Files(b *testing.B) {
	config := manyFiles(b)
	for b.Loop() {
		if _, err := ForImage(config); err != nil {
			b.Fatal(err)
		}
	}
}
