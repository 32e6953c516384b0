package machineconfigpool

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	"pgregory.net/rapid"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/test/builders"
)

const (
	digest    = "@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	baseImage = "registry.example.com/os/debian-12" + digest
	extImage  = "registry.example.com/os/debian-12-extensions" + digest
)

// streamsObject is OSImageStream cluster with debian-12 as default and debian-13.
func streamsObject() *mcfgv1.OSImageStream {
	return &mcfgv1.OSImageStream{
		Spec: mcfgv1.OSImageStreamSpec{DefaultStream: "debian-12"},
		Status: mcfgv1.OSImageStreamStatus{DefaultStream: "debian-12", AvailableStreams: []mcfgv1.OSImageStreamSet{
			{Name: "debian-12", OSImage: baseImage, OSExtensionsImage: extImage},
			{Name: "debian-13", OSImage: "registry.example.com/os/debian-13" + digest, OSExtensionsImage: "registry.example.com/os/debian-13-extensions" + digest},
		}},
	}
}

func configsOf(configs ...*mcfgv1.MachineConfig) []mcfgv1.MachineConfig {
	var list []mcfgv1.MachineConfig
	for _, config := range configs {
		list = append(list, *config)
	}
	return list
}

// spec changes the spec of a MachineConfig.
func spec(change func(*mcfgv1.MachineConfigSpec)) func(*mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
	return func(config *mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
		change(&config.Spec)
		return config
	}
}

func generated(config *mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
	config.Annotations = map[string]string{machineconfiguration.AnnotationGeneratedByControllerVersion: "1"}
	return config
}

func reasonOf(err error) string {
	var problem *renderError
	if errors.As(err, &problem) {
		return problem.reason
	}
	if err != nil {
		return "not a renderError: " + err.Error()
	}
	return ""
}

func TestRenderMergesTheFieldsOfTheSpec(t *testing.T) {
	kernel := func(kind string) func(*mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
		return spec(func(s *mcfgv1.MachineConfigSpec) { s.KernelType = kind })
	}
	extensions := func(names ...string) func(*mcfgv1.MachineConfig) *mcfgv1.MachineConfig {
		return spec(func(s *mcfgv1.MachineConfigSpec) { s.Extensions = names })
	}
	fips := spec(func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true })
	extensionsImage := spec(func(s *mcfgv1.MachineConfigSpec) {
		s.BaseOSExtensionsContainerImage = "registry.example.com/mine-extensions" + digest
	})
	mine, other := "registry.example.com/mine"+digest, "registry.example.com/other"+digest
	a := func(options ...builders.MachineConfigOption) *mcfgv1.MachineConfig {
		return builders.MachineConfig("10-a", "worker", options...)
	}
	b := func(options ...builders.MachineConfigOption) *mcfgv1.MachineConfig {
		return builders.MachineConfig("20-b", "worker", options...)
	}
	for name, tc := range map[string]struct {
		sources []*mcfgv1.MachineConfig
		want    func(*mcfgv1.MachineConfigSpec)
	}{
		"nothing but the stream":                     {nil, func(*mcfgv1.MachineConfigSpec) {}},
		"the last OS image wins":                     {[]*mcfgv1.MachineConfig{a(builders.OSImageURL(mine)), b(builders.OSImageURL(other))}, func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = other }},
		"an OS image that says nothing changes none": {[]*mcfgv1.MachineConfig{a(builders.OSImageURL(mine)), b()}, func(s *mcfgv1.MachineConfigSpec) { s.OSImageURL = mine }},
		"the extensions image goes for itself": {[]*mcfgv1.MachineConfig{extensionsImage(a())}, func(s *mcfgv1.MachineConfigSpec) {
			s.BaseOSExtensionsContainerImage = "registry.example.com/mine-extensions" + digest
		}},
		"a controller's MachineConfig is no override":    {[]*mcfgv1.MachineConfig{generated(a(builders.OSImageURL(mine)))}, func(*mcfgv1.MachineConfigSpec) {}},
		"the last kernel type that says something wins":  {[]*mcfgv1.MachineConfig{kernel("default")(a()), kernel("realtime")(b()), builders.MachineConfig("30-c", "worker")}, func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "realtime" }},
		"extensions are joined, sorted, none twice":      {[]*mcfgv1.MachineConfig{extensions("usbguard", "kerberos")(a()), extensions("kerberos", "ipsec")(b())}, func(s *mcfgv1.MachineConfigSpec) { s.Extensions = []string{"ipsec", "kerberos", "usbguard"} }},
		"kernel arguments are appended, repetition kept": {[]*mcfgv1.MachineConfig{a(builders.KernelArguments("z=1", "quiet")), b(builders.KernelArguments("a=1", "quiet"))}, func(s *mcfgv1.MachineConfigSpec) { s.KernelArguments = []string{"z=1", "quiet", "a=1", "quiet"} }},
		"one FIPS is enough":                             {[]*mcfgv1.MachineConfig{fips(a()), b()}, func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true }},
	} {
		t.Run(name, func(t *testing.T) {
			stream, err := streams.Resolve(streamsObject(), streams.Request{})
			images, err := chooseImages(tc.sources, "", stream, err)
			if err != nil {
				t.Fatal(err)
			}
			got, err := render("worker", tc.sources, images)
			if err != nil {
				t.Fatal(err)
			}
			want := mcfgv1.MachineConfigSpec{
				OSImageURL: baseImage, BaseOSExtensionsContainerImage: extImage,
				KernelArguments: []string{}, Extensions: []string{},
			}
			want.Config.Raw = []byte(emptyIgnition)
			tc.want(&want)
			if diff := cmp.Diff(want, got.spec); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestWhatNoImageCanHoldIsRefused names the MachineConfig and its field.
func TestWhatNoImageCanHoldIsRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*mcfgv1.MachineConfigSpec)
		reason string
		says   string
	}{
		"FIPS mode":              {func(s *mcfgv1.MachineConfigSpec) { s.FIPS = true }, reasonRefusedConfig, "MachineConfig 20-b: spec.fips"},
		"an unknown kernel type": {func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "bogus" }, reasonInvalidConfig, `MachineConfig 20-b: spec.kernelType: "bogus"`},
		"a known one":            {func(s *mcfgv1.MachineConfigSpec) { s.KernelType = "64k-pages" }, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			culprit := builders.MachineConfig("20-b", "worker")
			tc.change(&culprit.Spec)
			s := &scope{pool: builders.MachineConfigPool("worker"), streams: streamsObject(), configs: configsOf(builders.MachineConfig("10-a", "worker"), culprit)}
			_, err := s.render()
			if reasonOf(err) != tc.reason || (err != nil && !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("error %v, want %s: %s", err, tc.reason, tc.says)
			}
		})
	}
}

// emptyIgnition is the canonical form of a config that says nothing.
const emptyIgnition = `{"ignition":{"config":{"replace":{"verification":{}}},"proxy":{},"security":{"tls":{}},"timeouts":{},"version":"3.6.0"},"kernelArguments":{},"passwd":{},"storage":{},"systemd":{}}`

func TestRenderMergesIgnitionByNameOfMachineConfig(t *testing.T) {
	sources := []*mcfgv1.MachineConfig{
		builders.MachineConfig("10-a", "worker", builders.File("/etc/motd", "old"), builders.File("/etc/a", "a")),
		builders.MachineConfig("20-b", "worker", builders.File("/etc/motd", "new"), builders.Unit("hello.service", "[Service]\nExecStart=/bin/true\n")),
	}
	got, err := render("worker", sources, images{os: baseImage})
	if err != nil {
		t.Fatal(err)
	}
	var config struct {
		Storage struct {
			Files []struct {
				Path     string
				Contents struct{ Source string }
			}
		}
		Systemd struct{ Units []struct{ Name string } }
	}
	if err := json.Unmarshal(got.spec.Config.Raw, &config); err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, file := range config.Storage.Files {
		files[file.Path] = file.Contents.Source
	}
	if len(files) != 2 || !strings.HasSuffix(files["/etc/motd"], "new") && !strings.HasSuffix(files["/etc/motd"], "bmV3") {
		t.Errorf("files = %v", files)
	}
	if len(config.Systemd.Units) != 1 || config.Systemd.Units[0].Name != "hello.service" {
		t.Errorf("units = %v", config.Systemd.Units)
	}
}

func TestRenderErrorsNameMachineConfigPathAndReason(t *testing.T) {
	ok := builders.MachineConfig("10-ok", "worker", builders.File("/etc/ok", "ok"))
	conflict := `{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/systemd/system/a.service","contents":{"source":"data:,x"}}]}}`
	for name, tc := range map[string]struct {
		sources []*mcfgv1.MachineConfig
		reason  string
		want    []string
	}{
		"a config that does not parse": {
			[]*mcfgv1.MachineConfig{ok, builders.MachineConfig("50-broken", "worker", builders.Ignition(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"etc/motd"}]}}`))},
			reasonInvalidConfig, []string{"MachineConfig 50-broken", "$.storage.files.0.path", "path not absolute"},
		},
		"a spec that is too old": {
			[]*mcfgv1.MachineConfig{builders.MachineConfig("50-old", "worker", builders.Ignition(`{"ignition":{"version":"2.2.0"}}`))},
			reasonInvalidConfig, []string{"MachineConfig 50-old", `"2.2.0"`, "3.0.0"},
		},
		"what an image cannot hold": {
			[]*mcfgv1.MachineConfig{ok, builders.MachineConfig("50-disk", "worker", builders.Ignition(`{"ignition":{"version":"3.4.0"},"storage":{"disks":[{"device":"/dev/sda"}]}}`))},
			reasonRefusedConfig, []string{"MachineConfig 50-disk", "storage.disks", "installation"},
		},
		"two that do not go together": {
			[]*mcfgv1.MachineConfig{builders.MachineConfig("10-unit", "worker", builders.Unit("a.service", "[Service]")), builders.MachineConfig("20-file", "worker", builders.Ignition(conflict))},
			reasonInvalidConfig, []string{"10-unit, 20-file together", "files.0.path"},
		},
		"a file below a file, beside others": {
			[]*mcfgv1.MachineConfig{ok, builders.MachineConfig("20-file", "worker", builders.File("/etc/a", "a")), builders.MachineConfig("30-below", "worker", builders.File("/etc/a/b", "b"))},
			reasonRefusedConfig, []string{"MachineConfigs 20-file, 30-below together", "/etc/a/b"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := render("worker", tc.sources, images{os: baseImage})
			if reason := reasonOf(err); reason != tc.reason {
				t.Fatalf("reason = %q (%v), want %q", reason, err, tc.reason)
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
		})
	}
}

func TestRefusedContentThatIsReplacedDoesNoHarm(t *testing.T) {
	sources := []*mcfgv1.MachineConfig{
		builders.MachineConfig("10-fetched", "worker", builders.Ignition(`{"ignition":{"version":"3.4.0"},"storage":{"files":[{"path":"/etc/a","contents":{"source":"https://example.com/a"}}]}}`)),
		builders.MachineConfig("20-written", "worker", builders.File("/etc/a", "a")),
	}
	if _, err := render("worker", sources, images{os: baseImage}); err != nil {
		t.Error(err)
	}
}

func TestRenderedNames(t *testing.T) {
	for name, tc := range map[string]struct {
		pool     string
		fullName bool
	}{
		"an ordinary pool":         {"worker", false},
		"a name of 63 bytes":       {strings.Repeat("p", 63), false},
		"a name of 253 bytes":      {strings.Repeat("p", 253), true},
		"a name cut behind a dot":  {strings.Repeat("p", 201) + "." + strings.Repeat("q", 51), true},
		"a name that fits exactly": {strings.Repeat("p", 211), false},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := render(tc.pool, nil, images{os: baseImage})
			if err != nil {
				t.Fatal(err)
			}
			if len(got.name) > 253 || !regexp.MustCompile(`^rendered-[a-z0-9.-]+-[0-9a-f]{32}$`).MatchString(got.name) {
				t.Errorf("name = %q with %d bytes", got.name, len(got.name))
			}
			if (got.fullName != "") != tc.fullName {
				t.Errorf("full name = %q", got.fullName)
			}
		})
	}
}

// TestRenderedNameStaysTheSame guards against a change that would rename, and
// so rebuild, every pool of every cluster.
func TestRenderedNameStaysTheSame(t *testing.T) {
	got, err := render("worker", []*mcfgv1.MachineConfig{builders.MachineConfig("10-a", "worker", builders.File("/etc/a", "a"))}, images{os: baseImage, extensions: extImage})
	if err != nil {
		t.Fatal(err)
	}
	if want := "rendered-worker-95b8c43301678a236812bb3886055941"; got.name != want {
		t.Errorf("name = %s, want %s", got.name, want)
	}
}

func TestRenderDoesNotDependOnTheOrderOfListing(t *testing.T) {
	pool, workers := builders.MachineConfigPool("infra"), builders.MachineConfigPool("worker")
	rapid.Check(t, func(t *rapid.T) {
		configs := rapid.SliceOfNDistinct(anyConfig(), 0, 12, func(c *mcfgv1.MachineConfig) string { return c.Name }).Draw(t, "configs")
		one := renderAll(t, pool, workers, configs)
		other := renderAll(t, pool, workers, rapid.Permutation(configs).Draw(t, "shuffled"))
		if diff := cmp.Diff(one.spec, other.spec); diff != "" || one.name != other.name {
			t.Fatalf("%s and %s: %s", one.name, other.name, diff)
		}
	})
}

func TestRenderingARenderedConfigChangesNothing(t *testing.T) {
	pool := builders.MachineConfigPool("worker")
	rapid.Check(t, func(t *rapid.T) {
		configs := rapid.SliceOfNDistinct(anyConfig(), 0, 12, func(c *mcfgv1.MachineConfig) string { return c.Name }).Draw(t, "configs")
		once := renderAll(t, pool, nil, configs)
		again, err := render("worker", []*mcfgv1.MachineConfig{once.machineConfig("1")}, images{os: once.spec.OSImageURL, extensions: once.spec.BaseOSExtensionsContainerImage})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(once.spec, again.spec); diff != "" || once.name != again.name {
			t.Fatalf("%s became %s: %s", once.name, again.name, diff)
		}
	})
}

// anyConfig draws MachineConfigs that meet each other in paths and fields.
func anyConfig() *rapid.Generator[*mcfgv1.MachineConfig] {
	return rapid.Custom(func(t *rapid.T) *mcfgv1.MachineConfig {
		config := builders.MachineConfig(
			rapid.StringMatching(`[0-9]{2}-[a-c]`).Draw(t, "name"),
			rapid.SampledFrom([]string{"worker", "infra", "master"}).Draw(t, "role"),
			builders.File(rapid.SampledFrom([]string{"/etc/a", "/etc/b", "/etc/c"}).Draw(t, "path"), rapid.StringN(0, 20, 40).Draw(t, "text")),
			builders.Unit(rapid.SampledFrom([]string{"a.service", "b.service"}).Draw(t, "unit"), "[Unit]\nDescription="+rapid.StringMatching(`[a-z]{0,8}`).Draw(t, "description")+"\n"),
			builders.KernelArguments(rapid.SliceOfN(rapid.StringMatching(`[a-z]=[0-9]`), 0, 3).Draw(t, "arguments")...),
		)
		config.Spec.KernelType = rapid.SampledFrom([]string{"", "default", "realtime"}).Draw(t, "kernel")
		config.Spec.Extensions = rapid.SliceOfN(rapid.SampledFrom([]string{"usbguard", "kerberos"}), 0, 2).Draw(t, "extensions")
		config.Spec.FIPS = rapid.Bool().Draw(t, "fips")
		return config
	})
}

func renderAll(t *rapid.T, pool, inherited *mcfgv1.MachineConfigPool, configs []*mcfgv1.MachineConfig) *rendered {
	sources, err := selectConfigs(pool, inherited, configsOf(configs...))
	if err != nil {
		t.Fatal(err)
	}
	result, err := render(pool.Name, sources, images{os: baseImage, extensions: extImage})
	if err != nil {
		t.Fatal(err)
	}
	return result
}
