package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/imagemode/imagemode/test/bench/bases"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
)

// files of the config, in each build with another content.
const files = 60

// bench is the state of a run.
type bench struct {
	settings
	told *story.Story
	// base and program are images by digest: what is built on, and what buildah's
	// pod runs.
	base, program string
}

// prepare makes the base and the first image on it, which brings the base's
// layers into the pool's repository.
func (b *bench) prepare(ctx context.Context) error {
	directory, err := os.MkdirTemp(b.work, "imagemode-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(directory)
	options, err := registryOptions()
	if err != nil {
		return err
	}
	base := bases.Base{Repository: local.Registry + "/os/bench-large", Layers: b.layers, Megabytes: b.megabytes, Program: b.tool}
	if b.base, err = base.Push(directory, options...); err != nil {
		return fmt.Errorf("the base: %w", err)
	}
	b.told.Log.Line("the base is %s", b.base)
	if err := b.makeProgram(ctx); err != nil {
		return err
	}
	asked := b.asked(-1)
	if err := b.told.AskForImage(ctx, asked); err != nil {
		return err
	}
	built, err := b.told.EndOfBuild(ctx, asked)
	if err == nil && built.Failed != nil {
		err = errors.New(built.Failed.Message)
	}
	return err
}

// clear takes away what was asked for.
func (b *bench) clear() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := b.told.ForgetImages(ctx, b.asked(0)); err != nil {
		b.told.Log.Line("clearing up: %v", err)
	}
}

// asked is the image of one run.
func (b *bench) asked(number int) story.Asked {
	config := []builders.MachineConfigOption{builders.OSImageURL(b.base)}
	for i := range files {
		config = append(config, builders.File(fmt.Sprintf("/etc/bench/%d", i), content(number, i)))
	}
	return story.Asked{Pool: "bench", Text: fmt.Sprintf("run %d at %s\n", number, begun), Config: config}
}

// begun keeps the images of one run of this program from being those of another.
var begun = time.Now().Format(time.RFC3339Nano)

func content(number, file int) string {
	return strings.Repeat(fmt.Sprintf("%s run %d file %d\n", begun, number, file), 60)
}

// imagemode changes the MachineConfig and waits for the build.
func (b *bench) imagemode(ctx context.Context, number int) (lines string, took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	events, err := b.watch(ctx)
	if err != nil {
		return "", 0, err
	}
	changed := time.Now()
	if err := b.told.ChangeConfig(ctx, b.asked(number)); err != nil {
		return "", 0, err
	}
	return follow(ctx, events, changed)
}

// registryOptions are those of the user who may push.
func registryOptions() ([]remote.Option, error) {
	authorities, err := os.ReadFile(local.CAFile)
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	raw, err := local.DockerConfig("push")
	if err != nil {
		return nil, err
	}
	var config struct {
		Auths map[string]authn.AuthConfig `json:"auths"`
	}
	if err := json.Unmarshal(raw, &config); err != nil {
		return nil, err
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return []remote.Option{remote.WithTransport(transport), remote.WithAuth(authn.FromConfig(config.Auths[local.Registry]))}, nil
}
