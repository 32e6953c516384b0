package builder

import (
	"archive/tar"
	"context"
	"fmt"
	"path"
	"strings"

	"github.com/imagemode/imagemode/builder/baseimage"
	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/registry"
)

// What an image of the agent has to bring: the program, its unit, and the link
// that starts it with the machine. The link is in /usr, where the image decides
// and not what a node has in /etc.
const (
	agentProgram = "usr/bin/imagemode-agent"
	agentUnit    = "usr/lib/systemd/system/imagemode-agent.service"
	agentLink    = "usr/lib/systemd/system/multi-user.target.wants/imagemode-agent.service"
)

// maxAgentSize is what an agent's image may have in bytes, compressed: it comes
// with every OS image, so that a large one is a mistake.
const maxAgentSize = 512 << 20

// labelAgent says on the copy of an agent's image which one it is a copy of.
const labelAgent = "dev.imagemode.agent"

func agentInputs(job *job) any {
	return struct {
		Agent string `json:"agent"`
	}{digestOf(job.request.AgentImage)}
}

// runAgent puts the layers of the agent's image on top. They are in the push
// repository by then, so that nothing but a manifest is sent.
func runAgent(ctx context.Context, job *job, from *registry.Image) (*registry.Image, error) {
	agent, err := agentImage(ctx, job)
	if err != nil {
		return nil, fmt.Errorf("the agent's image: %w", err)
	}
	image, _, err := registry.Derive(ctx, job.source(from), job.target(), agentChange(agent))
	return image, err
}

func agentChange(agent *registry.Image) registry.Change {
	var change registry.Change
	for i, layer := range agent.Layers {
		change.Layers = append(change.Layers, registry.NewLayer{
			Digest: layer.Digest, Size: layer.Size, DiffID: agent.Parsed.RootFS.DiffIDs[i], CreatedBy: "imagemode: agent",
		})
	}
	return change
}

// agentImage gives the copy of the agent's image in the push repository. That it
// is there says that its layers are, and that they were looked into.
func agentImage(ctx context.Context, job *job) (*registry.Image, error) {
	key := agentKey(job.request)
	digest := digestOf(job.request.AgentImage)
	copied := lookUp(ctx, job, request.StepTag(key))
	if copied != nil && copied.Parsed.Config.Labels[labelAgent] == digest {
		job.agent = key
		return copied, nil
	}
	agent, err := checkedAgent(ctx, job)
	if err != nil {
		return nil, err
	}
	copied, transfer, err := registry.Derive(ctx, job.source(agent), job.target(request.StepTag(key)), registry.Change{Labels: map[string]string{labelAgent: digest}})
	if err != nil {
		return nil, err
	}
	job.out.printf("  %s: %s", agent.Reference(), transfer)
	job.agent = key
	return copied, nil
}

// agentKey says where the copy is kept: among the results of steps. A digest may
// be that of several architectures.
func agentKey(r *request.Request) string {
	return hashOf([]string{"agent 1", digestOf(r.AgentImage), r.Architecture})
}

// checkedAgent reads the agent's image once: a node whose image lacks the agent
// would never be updated again, and what else is in there would hide files of the
// OS.
func checkedAgent(ctx context.Context, job *job) (*registry.Image, error) {
	repository, err := registry.Repository(job.request.AgentImage)
	if err != nil {
		return nil, err
	}
	var agent *registry.Image
	err = registry.Retry(ctx, func() error {
		source, found, err := registry.Open(ctx, job.access(repository), job.request.AgentImage)
		if err != nil {
			return err
		}
		defer source.Close()
		agent = found
		if err := checkAgentManifest(job, agent); err != nil {
			return err
		}
		return checkAgentFiles(agent, layersOf(ctx, source, agent))
	})
	return agent, err
}

func checkAgentManifest(job *job, agent *registry.Image) error {
	if got, want := agent.Parsed.Architecture, job.request.Architecture; got != want {
		return imageErrorf("image %s is for the architecture %s, the nodes have %s", agent.Reference(), got, want)
	}
	if size := agent.Size(); size > maxAgentSize {
		return imageErrorf("image %s has %d bytes, more than the %d that an agent may have", agent.Reference(), size, maxAgentSize)
	}
	if len(agent.Parsed.RootFS.DiffIDs) != len(agent.Layers) {
		return imageErrorf("image %s has %d layers, and its config knows %d", agent.Reference(), len(agent.Layers), len(agent.Parsed.RootFS.DiffIDs))
	}
	for _, layer := range agent.Layers {
		if !strings.HasSuffix(layer.MediaType, "gzip") {
			return imageErrorf("image %s has a layer of type %s; layers that go into an OS image have to be compressed by gzip", agent.Reference(), layer.MediaType)
		}
	}
	return nil
}

func checkAgentFiles(agent *registry.Image, layers []baseimage.Layer) error {
	found := map[string]*tar.Header{}
	for _, layer := range layers {
		err := baseimage.Walk(layer, func(header *tar.Header) error {
			name := strings.TrimPrefix(path.Clean("/"+header.Name), "/")
			if why := whyNotInAgent(name, header); why != "" {
				return imageErrorf("image %s has /%s, %s", agent.Reference(), name, why)
			}
			found[name] = header
			return nil
		})
		if err != nil {
			return err
		}
	}
	for _, wanted := range []struct {
		name  string
		kind  byte
		bits  int64
		wants string
	}{
		{agentProgram, tar.TypeReg, 0o111, "an executable file"},
		{agentUnit, tar.TypeReg, 0o444, "a readable file"},
		{agentLink, tar.TypeSymlink, 0, "a link to the unit"},
	} {
		header := found[wanted.name]
		if header == nil || header.Typeflag != wanted.kind || header.Mode&wanted.bits != wanted.bits {
			return imageErrorf("image %s does not bring the agent as a service of the host: /%s has to be %s", agent.Reference(), wanted.name, wanted.wants)
		}
	}
	return nil
}

// whyNotInAgent says what is wrong with an entry; empty: nothing.
func whyNotInAgent(name string, header *tar.Header) string {
	isBelowUsr := name == "" || name == "usr" || strings.HasPrefix(name, "usr/")
	switch {
	case header.Typeflag == tar.TypeXGlobalHeader:
		return "" // of the archive, not of a file
	case strings.HasPrefix(path.Base(name), ".wh."):
		return "which would remove a file of the OS"
	case !isBelowUsr:
		return "and only what is below /usr may come into an OS image with the agent"
	case header.Typeflag == tar.TypeDir && header.Mode&0o7777 != 0o755:
		return fmt.Sprintf("a directory with mode %04o, which that of the OS would have then: it has to be 0755", header.Mode&0o7777)
	case header.Typeflag == tar.TypeReg, header.Typeflag == tar.TypeDir, header.Typeflag == tar.TypeSymlink:
		return ""
	}
	return "which is no file, directory or symbolic link"
}
