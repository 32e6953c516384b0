package builder

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/ignition"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

// newLookupWorkplace has a base image with things to look up.
func newLookupWorkplace(t *testing.T, containerfile string) *workplace {
	t.Helper()
	w := newWorkplace(t, containerfile)
	w.request.BaseImage = w.registry.Push(t, "os/lookup", registrytest.ImageSpec{
		Files: map[string]string{
			"/bin/tool": toolProgram, "/etc/": "", "/tmp/": "",
			"/etc/motd": "before\n", "/etc/passwd": "app:x:77:78::/:/bin/sh\n",
			"/usr/lib/systemd/system/a.service": "[Install]\nWantedBy=multi-user.target\n",
		},
		Labels: registrytest.Bootable(), Layers: 2,
	})
	return w
}

// buildAgain is mustBuild for a second build, with credentials.
func (w *workplace) buildAgain() (request.Result, *registry.Image) {
	w.t.Helper()
	auth := w.registry.AddUser("user", password)
	w.write(request.FilePullAuth, auth)
	w.write(request.FilePushAuth, auth)
	return w.mustBuild()
}

// fetched counts the layers of an image that were fetched.
func (w *workplace) fetched(image string) int {
	w.t.Helper()
	requests := w.registry.Requests()
	base, err := registry.Inspect(context.Background(), w.access, image)
	if err != nil {
		w.t.Fatal(err)
	}
	count := 0
	for _, request := range requests {
		for _, layer := range base.Layers {
			if strings.HasPrefix(request, "GET") && strings.Contains(request, layer.Digest.String()) {
				count++
			}
		}
	}
	return count
}

func (w *workplace) ignition(body string) {
	w.request.Ignition = json.RawMessage(`{"ignition":{"version":"3.4.0"},` + body + `}`)
}

func TestAConfigThatNeedsTheBaseReadsItOnce(t *testing.T) {
	w := newLookupWorkplace(t, "")
	append := func(text string) {
		sum := sha256.Sum256([]byte(text))
		w.request.InputsHash = hex.EncodeToString(sum[:])
		w.ignition(`"storage":{"files":[{"path":"/etc/motd","append":[{"source":"data:,` + text + `"}],"user":{"name":"app"}}]},
			"systemd":{"units":[{"name":"a.service","enabled":true}]}`)
	}
	append("one")
	result, image := w.mustBuild()
	checkSkeleton(t, w, result)
	if got := w.files(image, 2)["/etc/motd"]; got != "before\none" {
		t.Errorf("/etc/motd holds %q", got)
	}
	first := image.Digest

	append("two")
	result, image = w.buildAgain()
	checkSkeleton(t, w, result)
	if count := w.fetched(w.request.BaseImage); count != 0 {
		t.Errorf("%d layers of the base were fetched again", count)
	}
	files := w.files(image, 2)
	if got := files["/etc/motd"]; got != "before\ntwo" {
		t.Errorf("/etc/motd holds %q", got)
	}
	if _, enabled := files["/etc/systemd/system/multi-user.target.wants/a.service"]; !enabled {
		t.Error("the unit is not enabled")
	}

	append("one")
	if _, image = w.buildAgain(); image.Digest != first {
		t.Errorf("the same inputs gave %s, then %s", first, image.Digest)
	}
}

// checkSkeleton wants the names of the base's files to be named by the result: what
// no result names stays in the registry for ever.
func checkSkeleton(t *testing.T, w *workplace, result request.Result) {
	t.Helper()
	base, err := registry.Inspect(context.Background(), w.access, w.request.BaseImage)
	if err != nil {
		t.Fatal(err)
	}
	tag := request.StepTag(skeletonKey(base))
	if !slices.Contains(result.Tags(), tag) {
		t.Errorf("the result names %v, want %s among them", result.Tags(), tag)
	}
}

func TestAConfigSeesWhatTheContainerfilePutBelowIt(t *testing.T) {
	w := newLookupWorkplace(t, "FROM base AS final\nRUN [\"/bin/tool\", \"write\", \"/etc/motd\", \"from the text \"]\n")
	w.ignition(`"storage":{"files":[{"path":"/etc/motd","append":[{"source":"data:,and%20the%20config"}]}]}`)
	_, image := w.mustBuild()
	if got := w.files(image, 2)["/etc/motd"]; got != "from the text and the config" {
		t.Errorf("/etc/motd holds %q", got)
	}
}

func TestWhatTheBaseDoesNotHaveIsTheConfigsFault(t *testing.T) {
	w := newLookupWorkplace(t, "")
	w.ignition(`"systemd":{"units":[{"name":"b.service","enabled":true}]}`)
	result, err := w.build()
	var refused *ignition.RefusedError
	if !errors.As(err, &refused) || result.Failure.Class != request.Config || !strings.Contains(result.Failure.Message, "b.service") {
		t.Errorf("got %v, %+v", err, result.Failure)
	}
}
