//go:build e2e

package e2e

import (
	"context"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"golang.org/x/sync/errgroup"

	"github.com/imagemode/imagemode/builder/request"
	"github.com/imagemode/imagemode/test/builders"
	"github.com/imagemode/imagemode/test/e2e/local"
	"github.com/imagemode/imagemode/test/e2e/story"
	"github.com/imagemode/imagemode/test/faults"
)

const (
	// buildsTimeout bounds all builds together, four attempts of those that fail
	// among them.
	buildsTimeout = 8 * time.Minute
	// outage is how long the registry is out of order: the builder asks again after
	// 1, 2 and 4 seconds.
	outage = 4 * time.Second
	// proxy is one that nothing here needs: it has no address.
	proxy = "http://proxy.imagemode.test:3128"
)

// buildCase is an image that is asked for, and what has to come out.
type buildCase struct {
	asked story.Asked
	check func(t *testing.T, told *story.Story, built *story.Built)
}

// TestBuilds has an image built for each kind of input and for each kind of
// trouble, for pools without nodes: nothing boots them. All are asked for at
// once, and builder pods run as there is room.
func TestBuilds(t *testing.T) {
	told := begin(t)
	ctx, cancel := context.WithTimeout(t.Context(), buildsTimeout)
	t.Cleanup(cancel)
	ways := openWays(t)
	told.ControllerArgs, told.ControllerEnv = []string{"--max-concurrent-builds=32"}, story.Proxy(proxy)
	for _, way := range ways {
		told.AlsoTrusted += string(way.CertificatePEM)
	}
	run(t, told, told.Reset())
	run(t, told, told.Install()[0])
	must(t, told.ProvideSupplies(ctx))
	must(t, told.ProvideCredentialsFor(ctx, "push", "push-through", hosts(ways)...))

	cases := buildCases(t, told, ways)
	t.Cleanup(func() { forget(t, told, cases) })
	askForAll(t, told, cases)
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		t.Run(name, func(t *testing.T) {
			built, err := told.EndOfBuild(ctx, cases[name].asked)
			must(t, err)
			cases[name].check(t, told, built)
		})
	}
	for name, way := range ways {
		if way.Met() == 0 {
			t.Errorf("%s: no request met the fault", name)
		}
	}
	t.Run("a changed file below a Containerfile from base runs no RUN again", func(t *testing.T) {
		testChangedFile(t, told, cases["a Containerfile from base"].asked)
	})
	t.Run("a push secret that is corrected is tried at once", func(t *testing.T) { testCorrectedSecret(t, told) })
	t.Run("the demo's change of a file", func(t *testing.T) { run(t, told, told.ChangeQuickly()...) })
	t.Run("the same inputs once more build nothing", func(t *testing.T) {
		testSameInputs(t, told, cases["a config only"].asked)
	})
}

// buildCases are all cases, by what they show.
func buildCases(t *testing.T, told *story.Story, ways map[string]*faults.Way) map[string]buildCase {
	t.Helper()
	cases := inputCases(told)
	maps.Copy(cases, surroundingCases(told))
	maps.Copy(cases, failingCases())
	maps.Copy(cases, faultCases(t, told, ways))
	for name, one := range cases {
		if one.asked.Text == "" {
			one.asked.Text = told.Text
			cases[name] = one
		}
	}
	return cases
}

// inputCases are one for each kind of input.
func inputCases(told *story.Story) map[string]buildCase {
	const reads = "RUN cp " + story.BuildFile + " /usr/share/imagemode-copy\n"
	installed := []builders.MachineConfigOption{builders.Extensions("tree")}
	return map[string]buildCase{
		"a config only": {
			story.Asked{Pool: "b-config"},
			wants(map[string]string{story.BuildFile: told.Text}),
		},
		"a config only, in another repository": {
			story.Asked{Pool: "b-config-elsewhere"},
			wants(map[string]string{story.BuildFile: told.Text}),
		},
		"a Containerfile from configs": {
			story.Asked{Pool: "b-from-configs", Containerfile: "FROM configs AS final\n" + reads},
			wants(map[string]string{story.BuildFile: told.Text, "/usr/share/imagemode-copy": told.Text}),
		},
		"a Containerfile without FROM": {
			story.Asked{Pool: "b-no-from", Containerfile: reads},
			wants(map[string]string{"/usr/share/imagemode-copy": told.Text}),
		},
		"a Containerfile from base": {
			story.Asked{Pool: "b-from-base", Containerfile: "FROM base AS final\nRUN test ! -e " + story.BuildFile + " && sleep 3 && echo built >/usr/share/imagemode-run\n"},
			wants(map[string]string{story.BuildFile: told.Text, "/usr/share/imagemode-run": "built\n"}),
		},
		"extensions": {
			story.Asked{Pool: "b-extensions", Config: installed},
			wants(map[string]string{story.BuildFile: told.Text, "/usr/bin/tree": ""}),
		},
		"extensions and a Containerfile": {
			story.Asked{Pool: "b-extensions-text", Config: installed, Containerfile: "FROM configs AS final\nRUN tree --version >/usr/share/imagemode-tree\n"},
			wants(map[string]string{story.BuildFile: told.Text, "/usr/bin/tree": "", "/usr/share/imagemode-tree": ""}),
		},
	}
}

// surroundingCases are about what a RUN sees besides its image.
func surroundingCases(told *story.Story) map[string]buildCase {
	// A line in the middle of the certificate stands for it.
	line := strings.Split(told.AlsoTrusted, "\n")[2]
	trusts := fmt.Sprintf("RUN grep -qF \"$(printf '%%s%%s' '%s' '%s')\" /etc/ssl/certs/ca-certificates.crt\n", line[:20], line[20:])
	var sees strings.Builder
	for path, content := range story.Supplies {
		fmt.Fprintf(&sees, "RUN echo '%x  %s' | sha256sum --check\n", sha256.Sum256([]byte(content)), path)
	}
	return map[string]buildCase{
		"a trust bundle": {
			story.Asked{Pool: "b-trust", Containerfile: "FROM configs AS final\n" + trusts},
			leavesNothing(line),
		},
		"a proxy": {
			story.Asked{Pool: "b-proxy", Containerfile: "FROM configs AS final\n" +
				`RUN test "$HTTP_PROXY $HTTPS_PROXY" = "$(printf '%s.test:3128 ' http://proxy.imagemode http://proxy.imagemode | sed 's/ $//')"` + "\n"},
			leavesNothing(),
		},
		"package repositories, their keys and an entitlement": {
			story.Asked{Pool: "b-supplies", Containerfile: "FROM configs AS final\n" + sees.String()},
			leavesNothing(slices.Collect(maps.Values(story.Supplies))...),
		},
		"a RUN that looks for credentials": {
			story.Asked{Pool: "b-credentials", Containerfile: searchText},
			leavesNothing(),
		},
	}
}

// searchText looks for credentials in every process, and outside the root: the
// base64 of the names of the registry's users, and the beginning of a token. A
// process of its own has one of them in its environment, so that a search that
// finds nothing is seen to have looked.
const searchText = `FROM configs AS final
RUN <<'SEARCH'
set -u
KNOWN="$(printf 'cHVza%s' DpzZWNyZXQ=)" sleep 60 &
known=$!
sleep 1 # until it is that process
found=""; looked=0
for file in /proc/[0-9]*/environ /proc/[0-9]*/cmdline /proc/[0-9]*/fd/* /proc/[0-9]*/root/run/*/*/*/* \
    /proc/[0-9]*/root/run/imagemode/*/* /proc/[0-9]*/cwd/*/config.json /run/*/*/*/* /run/imagemode/*/*/* /dev/shm/* /var/lib/imagemode/*/*; do
  [ -f "$file" ] || continue
  looked=$((looked + 1))
  if grep -qa -e 'cHVza[D]p' -e 'YmFzZS1wdWxs[O]' -e '[e]yJhbGciOi' "$file" 2>/dev/null; then found="$found $file"; fi
done
kill $known
echo "looked into $looked files, found:$found"
[ "$found" = " /proc/$known/environ" ]
SEARCH
`

// failingCases fail, each with its own class: in all four attempts, or in the first
// where no other could do better.
func failingCases() map[string]buildCase {
	nothing := local.Registry + "/os/debian-12@sha256:" + strings.Repeat("0", 64)
	return map[string]buildCase{
		"a RUN that fails": {
			story.Asked{Pool: "b-failing", Containerfile: "FROM configs AS final\nRUN true\nRUN echo the reason stands here; exit 3\n"},
			fails(request.Containerfile, 4, "line 3", "exit code 3", "the reason stands here"),
		},
		"a base that does not exist": {
			story.Asked{Pool: "b-no-base", Config: []builders.MachineConfigOption{builders.OSImageURL(nothing)}},
			fails(request.Image, 4, nothing),
		},
		"a user who may not push": {
			story.Asked{Pool: "b-unauthorized", Options: []func(*mcfgv1.MachineOSConfig){
				builders.PushTo(local.Registry+"/os/b-unauthorized:latest", "base-pull"),
			}},
			fails(request.Authentication, 1, local.Registry+"/os/b-unauthorized", `in secret "base-pull" (spec.renderedImagePushSecret.name)`),
		},
	}
}

// faultCases go through a registry that is out of order for some seconds. One
// without a text has the layers of its base copied through it, one with a text
// finds them there and pushes what its RUN makes.
func faultCases(t *testing.T, told *story.Story, ways map[string]*faults.Way) map[string]buildCase {
	t.Helper()
	base, err := told.BaseImage()
	must(t, err)
	cases := map[string]buildCase{}
	for pool, way := range ways {
		// A repository of an earlier run has the layers already, and nothing meets the
		// fault.
		repository := fmt.Sprintf("%s/os/%s-%d", way.Host, pool, time.Now().Unix())
		asked := story.Asked{Pool: pool, Options: []func(*mcfgv1.MachineOSConfig){builders.PushTo(repository+":latest", "push-through")}}
		if strings.HasSuffix(pool, "text") {
			asked.Containerfile = "FROM configs AS final\nRUN head -c 3000000 /dev/urandom >/usr/share/imagemode-large\n"
			asked.Config = []builders.MachineConfigOption{builders.OSImageURL(strings.Replace(base, local.Registry, way.Host, 1))}
		}
		cases["a registry out of order: "+pool] = buildCase{asked, wants(map[string]string{story.BuildFile: told.Text})}
	}
	return cases
}

// openWays makes the ways to the registry on which it seems out of order, by the
// pool that pushes there.
func openWays(t *testing.T) map[string]*faults.Way {
	t.Helper()
	authorities, err := os.ReadFile(local.CAFile)
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(authorities)
	address, _, _ := strings.Cut(local.Registry, ":")
	ways := map[string]*faults.Way{}
	for pool, fault := range map[string]faults.Fault{
		"b-answers-500":      faults.Outage(http.StatusInternalServerError, outage),
		"b-answers-500-text": faults.Outage(http.StatusInternalServerError, outage),
		"b-stops":            faults.BrokenPush(4<<20, outage),
		"b-stops-text":       faults.BrokenPush(1<<20, outage),
	} {
		way, err := faults.Open(address, local.Registry, roots, fault)
		must(t, err)
		t.Cleanup(func() { _ = way.Close() })
		ways[pool] = way
	}
	return ways
}

func hosts(ways map[string]*faults.Way) []string {
	var hosts []string
	for _, way := range ways {
		hosts = append(hosts, way.Host)
	}
	return hosts
}

// askForAll declares everything, side by side.
func askForAll(t *testing.T, told *story.Story, cases map[string]buildCase) {
	t.Helper()
	group, ctx := errgroup.WithContext(inTime(t))
	for name, one := range cases {
		group.Go(func() error {
			if err := told.AskForImage(ctx, one.asked); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
			return nil
		})
	}
	must(t, group.Wait())
}

func forget(t *testing.T, told *story.Story, cases map[string]buildCase) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var asked []story.Asked
	for _, one := range cases {
		asked = append(asked, one.asked)
	}
	if err := errors.Join(told.ForgetImages(ctx, asked...), told.TakeSuppliesAway(ctx)); err != nil {
		t.Error(err)
	}
}

// succeeds reads the image of a build.
func succeeds(t *testing.T, told *story.Story, built *story.Built) *story.Content {
	t.Helper()
	if built.Failed != nil {
		t.Fatalf("the build failed: %s: %s", built.Failed.Reason, built.Failed.Message)
	}
	content, err := told.ContentOf(t.Context(), built.Image)
	must(t, err)
	told.Log.Line("%s: %d pods, %s", built.Build.Spec.MachineOSConfig.Name, built.Pods, stepsOf(built))
	return content
}

func stepsOf(built *story.Built) string {
	if built.Result == nil {
		return "no report"
	}
	var steps []string
	for _, step := range built.Result.Steps {
		steps = append(steps, fmt.Sprintf("%s %s", step.Name, step.Duration.Duration))
	}
	return strings.Join(steps, ", ")
}

// wants is an image with these files; one without content may have any.
func wants(files map[string]string) func(*testing.T, *story.Story, *story.Built) {
	return func(t *testing.T, told *story.Story, built *story.Built) {
		content := succeeds(t, told, built)
		for path, want := range files {
			if got, found := content.Added[path]; !found || want != "" && got != want {
				t.Errorf("%s holds %q (found: %t), want %q", path, got, found, want)
			}
		}
		checkTraces(t, content)
	}
}

// leavesNothing is an image in which none of the texts is left.
func leavesNothing(texts ...string) func(*testing.T, *story.Story, *story.Built) {
	return func(t *testing.T, told *story.Story, built *story.Built) {
		checkTraces(t, succeeds(t, told, built), texts...)
	}
}

// checkTraces looks for what the cluster gave to the RUNs of an image. Their own
// text, which is in its history, spells it in another way.
func checkTraces(t *testing.T, content *story.Content, texts ...string) {
	t.Helper()
	where := map[string]string{"its configuration": string(content.Config), "its manifest": string(content.Manifest)}
	maps.Copy(where, content.Added)
	for path := range story.Supplies {
		if _, found := content.Added[path]; found {
			t.Errorf("%s was left in the image", path)
		}
	}
	for place, found := range where {
		for _, text := range append(texts, "imagemode.test") {
			if strings.Contains(found, text) {
				t.Errorf("%q was left in %s of the image", text, place)
			}
		}
	}
}

// fails is a build that failed in four attempts, with a class and words.
func fails(class request.FailureClass, pods int, words ...string) func(*testing.T, *story.Story, *story.Built) {
	return func(t *testing.T, _ *story.Story, built *story.Built) {
		if built.Failed == nil {
			t.Fatalf("the build gave %s, want it to fail", built.Image)
		}
		if built.Failed.Reason != string(class) {
			t.Errorf("the class is %s, want %s: %s", built.Failed.Reason, class, built.Failed.Message)
		}
		for _, word := range words {
			if !strings.Contains(built.Failed.Message, word) {
				t.Errorf("the message does not say %q: %s", word, built.Failed.Message)
			}
		}
		if built.Pods != pods {
			t.Errorf("%d pods were at work, want %d", built.Pods, pods)
		}
	}
}

// testChangedFile changes a file of the MachineConfig: the image of the
// Containerfile is taken as it is, and the config layer put on it.
func testChangedFile(t *testing.T, told *story.Story, asked story.Asked) {
	ctx := inTime(t)
	asked.Text = told.Text + "and changed\n"
	must(t, told.ChangeConfig(ctx, asked))
	built, err := told.EndOfBuild(ctx, asked)
	must(t, err)
	content := succeeds(t, told, built)
	if content.Added[story.BuildFile] != asked.Text || content.Added["/usr/share/imagemode-run"] != "built\n" {
		t.Errorf("the image has %q and %q", content.Added[story.BuildFile], content.Added["/usr/share/imagemode-run"])
	}
	if reused := built.Reused(); !reused["user"] || reused["configs"] {
		t.Errorf("reused %v, want user and not configs", reused)
	}
	told.Log.Line("a changed file below a Containerfile from base: %s from the MachineConfig to the image", built.Took.Round(10*time.Millisecond))
}

// testCorrectedSecret pushes with a user who may only pull, until its Secret has one
// who may push.
func testCorrectedSecret(t *testing.T, told *story.Story) {
	ctx := inTime(t)
	const secret = "push-corrected"
	asked := story.Asked{Pool: "b-corrected", Text: told.Text, Options: []func(*mcfgv1.MachineOSConfig){
		builders.PushTo(local.Registry+"/os/b-corrected:latest", secret),
	}}
	t.Cleanup(func() { forget(t, told, map[string]buildCase{"": {asked: asked}}) })
	must(t, told.ProvideCredentialsFor(ctx, "base-pull", secret))
	must(t, told.AskForImage(ctx, asked))
	refused, err := told.EndOfBuild(ctx, asked)
	must(t, err)
	fails(request.Authentication, 1, local.Registry+" in secret \""+secret+"\" (spec.renderedImagePushSecret.name)")(t, told, refused)

	must(t, told.ProvideCredentialsFor(ctx, "push", secret))
	begun, built := time.Now(), refused
	for built.Build.Name == refused.Build.Name {
		time.Sleep(100 * time.Millisecond)
		if built, err = told.EndOfBuild(ctx, asked); err != nil {
			t.Fatalf("after the correction: %v", err)
		}
	}
	succeeds(t, told, built)
	told.Log.Line("a push secret that was corrected: %s to the image", time.Since(begun).Round(10*time.Millisecond))
}

// testSameInputs asks for an image that exists, for another pool and into the same
// repository, and compares it with the one built into another repository.
func testSameInputs(t *testing.T, told *story.Story, first story.Asked) {
	ctx := inTime(t)
	again := first
	again.Pool = "b-config-again"
	again.Options = []func(*mcfgv1.MachineOSConfig){builders.PushTo(local.Registry+"/os/"+first.Pool+":latest", "push")}
	t.Cleanup(func() { forget(t, told, map[string]buildCase{"": {asked: again}}) })
	must(t, told.AskForImage(ctx, again))
	digests := map[string]string{}
	for _, asked := range []story.Asked{first, {Pool: "b-config-elsewhere", Text: first.Text}, again} {
		built, err := told.EndOfBuild(ctx, asked)
		must(t, err)
		_, digests[asked.Pool], _ = strings.Cut(built.Image, "@")
		if asked.Pool == again.Pool && built.Pods != 0 {
			t.Errorf("%d pods were at work for an image that existed", built.Pods)
		}
	}
	if digests[first.Pool] == "" || digests[first.Pool] != digests["b-config-elsewhere"] || digests[first.Pool] != digests[again.Pool] {
		t.Errorf("the same inputs gave %v", digests)
	}
}
