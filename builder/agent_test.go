package builder

import (
	"archive/tar"
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
	"github.com/imagemode/imagemode/registry/registrytest"
)

var unitLink = &tar.Header{Typeflag: tar.TypeSymlink, Name: agentLink, Linkname: "../imagemode-agent.service", Mode: 0o777}

// agentFiles are those of an agent's image, with the version in the program.
func agentFiles(version string) map[string]string {
	return map[string]string{"/usr/": "", "/" + agentProgram: "agent " + version, "/" + agentUnit: "[Service]\n"}
}

func (w *workplace) pushAgent(spec registrytest.ImageSpec) string {
	return w.registry.Push(w.t, "imagemode/agent", spec)
}

func (w *workplace) goodAgent(version string) string {
	return w.pushAgent(registrytest.ImageSpec{Files: agentFiles(version), Entries: []*tar.Header{unitLink}})
}

// again asks for the same with another inputs hash.
func (w *workplace) again(digit string) {
	w.request.InputsHash = strings.Repeat(digit, 64)
}

func TestTheAgentComesOnTop(t *testing.T) {
	for name, test := range map[string]struct {
		containerfile string
		steps         []string
		layers        int
	}{
		"without a Containerfile": {"", []string{"base", "configs", "agent", "verify", "publish"}, 4},
		"on configs":              {strings.Replace(writesOnBase, "base", "configs", 1), []string{"base", "configs", "user", "agent", "verify", "publish"}, 5},
		"on base":                 {writesOnBase, []string{"base", "user", "configs", "agent", "verify", "publish"}, 5},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, test.containerfile)
			w.options.KeepCredentials = true
			w.request.AgentImage = w.goodAgent("1")
			first, image := w.mustBuild()
			if diff := cmp.Diff(test.steps, stepNames(first)); diff != "" {
				t.Error(diff)
			}
			if len(image.Layers) != test.layers {
				t.Errorf("%d layers, want %d", len(image.Layers), test.layers)
			}
			files := w.files(image, 2)
			if files["/"+agentProgram] != "agent 1" || files["/etc/motd"] != "hello" {
				t.Errorf("the image has %v", files)
			}
			if first.Agent == "" {
				t.Error("the copy of the agent's image is not named")
			}
			w.checkTags(first)
		})
	}
}

// TestAChangedConfigSendsNothingOfTheAgent: its layers are neither read nor
// written, nor looked into again.
func TestAChangedConfigSendsNothingOfTheAgent(t *testing.T) {
	w := newWorkplace(t, "")
	w.options.KeepCredentials = true
	w.request.AgentImage = w.goodAgent("1")
	_, before := w.mustBuild()
	agent := before.Layers[len(before.Layers)-1].Digest
	w.otherConfig()
	w.writeRequest()
	w.registry.Requests()
	if _, err := Build(context.Background(), w.options); err != nil {
		t.Fatal(err)
	}
	for _, request := range w.registry.Requests() {
		if strings.Contains(request, agent.String()) || strings.Contains(request, "/imagemode/agent/") {
			t.Errorf("the agent's layer was touched: %s", request)
		}
	}
	after, err := registry.Inspect(context.Background(), w.access, w.request.PushSpec)
	if err != nil {
		t.Fatal(err)
	}
	if got := after.Layers[len(after.Layers)-1].Digest; got != agent || len(after.Layers) != len(before.Layers) {
		t.Errorf("the last layer is %s, want the agent's, %s", got, agent)
	}
}

func TestAnotherAgentRunsNothingAgain(t *testing.T) {
	w := newWorkplace(t, writesOnBase)
	w.options.KeepCredentials = true
	w.request.AgentImage = w.goodAgent("1")
	w.mustBuild()
	w.again("9")
	w.request.AgentImage = w.goodAgent("2")
	result, image := w.mustBuild()
	if diff := cmp.Diff([]string{"user", "configs"}, reused(result)); diff != "" {
		t.Error(diff)
	}
	if got := w.files(image, 2)["/"+agentProgram]; got != "agent 2" {
		t.Errorf("the program is %q", got)
	}
	w.again("a")
	w.request.AgentImage = ""
	if _, image := w.mustBuild(); w.files(image, 2)["/"+agentProgram] != "" {
		t.Error("without an agent's image there is an agent")
	}
}

func TestAnAgentsImageThatIsNoneIsRefused(t *testing.T) {
	without := func(name string) map[string]string {
		files := agentFiles("1")
		delete(files, "/"+name)
		return files
	}
	with := func(entries ...*tar.Header) registrytest.ImageSpec {
		return registrytest.ImageSpec{Files: agentFiles("1"), Entries: append([]*tar.Header{unitLink}, entries...)}
	}
	for name, test := range map[string]struct {
		spec registrytest.ImageSpec
		says string
	}{
		"without the program": {registrytest.ImageSpec{Files: without(agentProgram), Entries: []*tar.Header{unitLink}}, "/usr/bin/imagemode-agent has to be an executable file"},
		"whose program nobody may run": {registrytest.ImageSpec{Files: without(agentProgram), Entries: []*tar.Header{
			unitLink, {Typeflag: tar.TypeReg, Name: agentProgram, Mode: 0o644},
		}}, "/usr/bin/imagemode-agent has to be an executable file"},
		"without the unit":             {registrytest.ImageSpec{Files: without(agentUnit), Entries: []*tar.Header{unitLink}}, "/usr/lib/systemd/system/imagemode-agent.service has to be"},
		"that is not started":          {registrytest.ImageSpec{Files: agentFiles("1")}, "multi-user.target.wants/imagemode-agent.service has to be a link to the unit"},
		"with files of its own system": {with(&tar.Header{Typeflag: tar.TypeReg, Name: "etc/passwd", Mode: 0o644}), "has /etc/passwd, and only what is below /usr"},
		"that leads out of /usr":       {with(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/../etc/shadow", Mode: 0o644}), "has /etc/shadow, and only what is below /usr"},
		"that removes files":           {with(&tar.Header{Typeflag: tar.TypeReg, Name: "usr/bin/.wh.bootc", Mode: 0o644}), "which would remove a file of the OS"},
		"that closes a directory":      {with(&tar.Header{Typeflag: tar.TypeDir, Name: "usr/lib/", Mode: 0o700}), "a directory with mode 0700"},
		"with a device":                {with(&tar.Header{Typeflag: tar.TypeChar, Name: "usr/null", Mode: 0o666}), "no file, directory or symbolic link"},
		"of another architecture":      {registrytest.ImageSpec{Files: agentFiles("1"), Entries: []*tar.Header{unitLink}, Architecture: "arm64"}, "is for the architecture arm64, the nodes have amd64"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorkplace(t, "")
			w.request.AgentImage = w.pushAgent(test.spec)
			w.expectFailure(request.Image, test.says)
		})
	}
	t.Run("that does not exist", func(t *testing.T) {
		w := newWorkplace(t, "")
		w.request.AgentImage = w.registry.Host + "/imagemode/agent@sha256:" + strings.Repeat("0", 64)
		w.expectFailure(request.Image, "the agent's image: image "+w.request.AgentImage)
	})
}

func (w *workplace) expectFailure(class request.FailureClass, says string) {
	w.t.Helper()
	result, err := w.build()
	if err == nil || result.Failure == nil {
		w.t.Fatal("it was built")
	}
	if failure := result.Failure; failure.Class != class || failure.Step != "agent" || !strings.Contains(failure.Message, says) {
		w.t.Errorf("failure %+v, want %s: %s", failure, class, says)
	}
}

func TestTheAgentInAnotherRegistryIsSentOnce(t *testing.T) {
	w := newWorkplace(t, "")
	w.options.KeepCredentials = true
	w.request.AgentImage = w.goodAgent("1")
	// A layout is another place than any registry.
	w.options.Output = "oci:" + t.TempDir()
	for _, digit := range []string{"b", "c"} {
		w.again(digit)
		if digit == "c" {
			w.request.Ignition = nil
		}
		if _, err := w.build(); err != nil {
			t.Fatal(err)
		}
		sent := strings.Contains(w.shown, "1 copied")
		if sent != (digit == "b") {
			t.Errorf("build %s: the agent was sent: %t; %s", digit, sent, w.shown)
		}
	}
}
