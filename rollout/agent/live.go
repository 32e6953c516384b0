package agent

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/imagemode/imagemode/api/v1alpha1"
	"github.com/imagemode/imagemode/rollout/bootc"
)

// livePath keeps the live content that the node has, so that it can be put right
// without the API server, and what of it to remove later.
const livePath = "/var/lib/imagemode/live.json"

const (
	// liveRetry is when live content that could not be applied is tried again.
	liveRetry = 10 * time.Second
	// trustTimeout bounds the tool that makes the trust store anew.
	trustTimeout = 2 * time.Minute
)

// liveTrees are the only folders that live content may write to.
var liveTrees = []string{
	"/etc/containers/certs.d/", "/etc/docker/certs.d/", "/etc/pki/ca-trust/source/anchors/", "/usr/local/share/ca-certificates/",
}

// trustStores are where authorities are added, by the tool that takes them over:
// the first whose tool the host has is used.
var trustStores = []struct{ tool, bundle string }{
	{"/usr/bin/update-ca-trust", "/etc/pki/ca-trust/source/anchors/imagemode-trust-bundle.crt"},
	{"/usr/sbin/update-ca-certificates", "/usr/local/share/ca-certificates/imagemode-trust-bundle.crt"},
}

// liveRecord is the content of livePath.
type liveRecord struct {
	Hash    string                `json:"hash"`
	Content *v1alpha1.LiveContent `json:"content,omitempty"`
	// Files and Users are what may be ours: written before anything is done.
	Files []string `json:"files,omitempty"`
	Users []string `json:"users,omitempty"`
}

// takeLive brings the node to the live content that its spec names: when that
// changes, after a start, and from time to time, in case somebody changed it.
func (a *Agent) takeLive(ctx context.Context, in *Inputs, reported string, isDue bool) {
	want := in.Spec.LiveHash
	in.LiveHash = reported
	if a.memory.liveHash == want && !isDue {
		return
	}
	before, err := readLive(a.host)
	if err == nil && want == "" && before.isEmpty() {
		in.LiveHash = "" // there never was any
		return
	}
	content := before.Content
	if err == nil && before.Hash != want {
		content, err = a.fetchLive(ctx, in.Spec)
	}
	if err == nil {
		err = a.applyLive(ctx, before, want, content)
	}
	if err != nil {
		log.FromContext(ctx).Error(err, "live content could not be applied")
		in.LiveProblem = bootc.OneLine(strings.ReplaceAll(err.Error(), "\n", "; "))
		return
	}
	a.memory.liveHash, in.LiveHash = want, want
}

// fetchLive reads the content from the rollout; nil for none. The controller may
// have seen a newer one, or an older one: only the one that the spec names counts.
func (a *Agent) fetchLive(ctx context.Context, spec v1alpha1.NodeImageSpec) (*v1alpha1.LiveContent, error) {
	if spec.LiveHash == "" {
		return nil, nil
	}
	rollout := &v1alpha1.ImageRollout{}
	if err := a.live.Get(ctx, client.ObjectKey{Name: spec.Rollout}, rollout); err != nil {
		return nil, fmt.Errorf("live content of ImageRollout %s: %w", spec.Rollout, err)
	}
	hash, err := rollout.Spec.Live.Hash()
	if err == nil && hash != spec.LiveHash {
		err = errors.New("it is not the one that the node was told to take; the controller will say which")
	}
	if err != nil {
		return nil, fmt.Errorf("live content of ImageRollout %s: %w", spec.Rollout, err)
	}
	return rollout.Spec.Live, nil
}

// isEmpty: nothing on the node is or may be ours.
func (r liveRecord) isEmpty() bool { return r.Hash == "" && len(r.Files) == 0 && len(r.Users) == 0 }

func readLive(host Host) (liveRecord, error) {
	var record liveRecord
	content, err := host.ReadFile(livePath)
	if errors.Is(err, fs.ErrNotExist) {
		return record, nil
	}
	if err != nil {
		return record, err
	}
	if err := json.Unmarshal(content, &record); err != nil {
		return record, fmt.Errorf("%s: %w", livePath, err)
	}
	return record, nil
}

func writeLive(host Host, record liveRecord) error {
	content, err := json.Marshal(record)
	if err != nil {
		return err
	}
	if present, err := host.ReadFile(livePath); err == nil && bytes.Equal(present, content) {
		return nil
	}
	return host.WriteFile(livePath, content, 0o600)
}

// applyLive makes the node's files and keys those of the content. What it may
// write is recorded first; what is right already is left alone.
func (a *Agent) applyLive(ctx context.Context, before liveRecord, hash string, content *v1alpha1.LiveContent) error {
	tool, files := a.liveFiles(content)
	if err := checkLive(files); err != nil {
		return err
	}
	keys := liveKeys(content)
	after := liveRecord{Hash: hash, Content: content, Files: namesOf(files), Users: slices.Sorted(maps.Keys(keys))}
	both := liveRecord{Files: union(before.Files, after.Files), Users: union(before.Users, after.Users)}
	isAgain := before.Hash == hash // all of it was there once
	if !isAgain {
		if err := writeLive(a.host, both); err != nil {
			return err
		}
	}
	isTrustChanged, err := a.writeLiveFiles(files, both.Files)
	for _, user := range both.Users {
		err = errors.Join(err, a.host.SetAuthorizedKeys(user, keys[user]))
	}
	isTrustChanged = isTrustChanged || (!isAgain && slices.ContainsFunc(both.Files, isOfTrust))
	if isTrustChanged && tool != "" {
		err = errors.Join(err, a.refreshTrust(ctx, tool))
	}
	if err != nil {
		return err
	}
	return writeLive(a.host, after)
}

// liveFiles are the files of the content, with the trust bundle where this host
// looks for one, and the tool that takes it over.
func (a *Agent) liveFiles(content *v1alpha1.LiveContent) (tool string, files []v1alpha1.LiveFile) {
	bundle := ""
	for _, store := range trustStores {
		if _, err := a.host.Inspect(store.tool, true); err == nil {
			tool, bundle = store.tool, store.bundle
			break
		}
	}
	if content == nil {
		return tool, nil
	}
	files = slices.Clone(content.Files)
	if content.TrustBundle != "" && bundle != "" {
		files = append(files, v1alpha1.LiveFile{Path: bundle, Content: []byte(content.TrustBundle)})
	}
	return tool, files
}

func liveKeys(content *v1alpha1.LiveContent) map[string][]string {
	keys := map[string][]string{}
	if content == nil {
		return keys
	}
	for _, entry := range content.SSHAuthorizedKeys {
		keys[entry.User] = entry.Keys
	}
	return keys
}

// checkLive refuses paths outside of the folders: the API does, too, but this
// writes as root.
func checkLive(files []v1alpha1.LiveFile) error {
	for _, file := range files {
		isBelow := slices.ContainsFunc(liveTrees, func(tree string) bool { return strings.HasPrefix(file.Path, tree) })
		if !isBelow || path.Clean(file.Path) != file.Path {
			return fmt.Errorf("spec.live.files: %q is in none of the folders for live content", file.Path)
		}
	}
	return nil
}

// writeLiveFiles writes what differs and removes what is ours no longer. It
// returns whether the trust store has to be made anew.
func (a *Agent) writeLiveFiles(files []v1alpha1.LiveFile, before []string) (isTrustChanged bool, err error) {
	for _, file := range files {
		mode := uint32(0o644)
		if file.Mode != nil {
			mode = uint32(*file.Mode)
		}
		want := FileState{Mode: mode, SHA256: sumOf(file.Content)}
		if state, inspectErr := a.host.Inspect(file.Path, false); inspectErr == nil && state == want {
			continue
		}
		isTrustChanged = isTrustChanged || isOfTrust(file.Path)
		err = errors.Join(err, a.host.PutBack(file.Path, file.Content, want))
	}
	for _, name := range before {
		if slices.Contains(namesOf(files), name) {
			continue
		}
		isTrustChanged = isTrustChanged || isOfTrust(name)
		err = errors.Join(err, a.host.RemoveFile(name))
	}
	return isTrustChanged, err
}

func isOfTrust(name string) bool {
	return slices.ContainsFunc(trustStores[:], func(store struct{ tool, bundle string }) bool {
		return strings.HasPrefix(name, path.Dir(store.bundle)+"/")
	})
}

// refreshTrust runs the host's own tool.
func (a *Agent) refreshTrust(ctx context.Context, tool string) error {
	arguments := []string{tool, "extract"}
	if path.Base(tool) == "update-ca-certificates" {
		arguments = []string{tool, "--fresh"}
	}
	output, err := a.host.Run(ctx, unitTrust, arguments, trustTimeout)
	if err != nil {
		return err
	}
	if !output.Succeeded() {
		return fmt.Errorf("%s failed: %s", tool, bootc.OneLine(output.Stderr))
	}
	return nil
}

func namesOf(files []v1alpha1.LiveFile) []string {
	var names []string
	for _, file := range files {
		names = append(names, file.Path)
	}
	return names
}

// union is sorted.
func union(a, b []string) []string {
	both := slices.Concat(a, b)
	slices.Sort(both)
	return slices.Compact(both)
}
