package osimagestream

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/imagemode/imagemode/controllers/osimagestream/streams"
	"github.com/imagemode/imagemode/registry/registrytest"
)

func TestTheProxyIsChosenForEachRequest(t *testing.T) {
	settings := &proxySettings{HTTPProxy: "http://plain:1", HTTPSProxy: "http://secure:2", NoProxy: "inside.example.com,.svc,10.0.0.0/8"}
	for target, want := range map[string]string{
		"https://quay.io/v2/":             "http://secure:2",
		"http://quay.io/v2/":              "http://plain:1",
		"https://inside.example.com/v2/":  "",
		"https://a.inside.example.com":    "",
		"https://registry.default.svc:50": "",
		"https://10.1.2.3:5000/v2/":       "",
		"https://11.1.2.3:5000/v2/":       "http://secure:2",
	} {
		parsed, err := url.Parse(target)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if proxy, err := settings.function()(parsed); err != nil {
			t.Error(err)
		} else if proxy != nil {
			got = proxy.String()
		}
		if got != want {
			t.Errorf("%s: proxy %q, want %q", target, got, want)
		}
	}
	if (*proxySettings)(nil).function() != nil {
		t.Error("without settings the environment should decide")
	}
}

// tunnel is a proxy that leads every connection to one address.
type tunnel struct {
	mutex sync.Mutex
	asked []string
	to    string
}

func (p *tunnel) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	p.mutex.Lock()
	p.asked = append(p.asked, request.Method+" "+request.Host)
	p.mutex.Unlock()
	target, err := net.Dial("tcp", p.to)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer target.Close()
	client, _, err := w.(http.Hijacker).Hijack()
	if err != nil {
		return
	}
	defer client.Close()
	_, _ = io.WriteString(client, "HTTP/1.1 200 Connection established\r\n\r\n")
	go func() { _, _ = io.Copy(target, client) }()
	_, _ = io.Copy(client, target)
}

// A registry that only the proxy can reach: its name leads nowhere here.
func TestImagesAreReadThroughAProxyUnlessItsNameIsExempt(t *testing.T) {
	server := registrytest.New(t)
	image := server.Push(t, "os", registrytest.ImageSpec{Labels: map[string]string{streams.LabelStream: "a"}})
	_, port, _ := net.SplitHostPort(server.Host)
	proxy := &tunnel{to: server.Host}
	proxyServer := httptest.NewServer(proxy)
	defer proxyServer.Close()
	ca, err := os.ReadFile(server.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		host, noProxy string
		isProxied     bool
	}{
		// The certificate of a test's server has this name.
		"through the proxy": {"example.com", "other.invalid", true},
		"directly":          {"registry.invalid", "registry.invalid", false},
	} {
		t.Run(name, func(t *testing.T) {
			proxy.asked = nil
			access, cleanUp, err := wayIn{trustBundle: string(ca), proxy: &proxySettings{HTTPSProxy: proxyServer.URL, NoProxy: tc.noProxy}}.open()
			if err != nil {
				t.Fatal(err)
			}
			defer cleanUp()
			_, err = registryImages{access}.Labels(t.Context(), strings.Replace(image, server.Host, tc.host+":"+port, 1))
			if (err == nil) != tc.isProxied || (len(proxy.asked) > 0) != tc.isProxied {
				t.Errorf("error %v, the proxy was asked for %v", err, proxy.asked)
			}
		})
	}
}

func TestImagesAreReadFromAMirror(t *testing.T) {
	mirror := registrytest.New(t)
	image := mirror.Push(t, "mirrored/os", registrytest.ImageSpec{Labels: map[string]string{streams.LabelStream: "a"}})
	_, digest, _ := strings.Cut(image, "@")
	ca, err := os.ReadFile(mirror.CAFile)
	if err != nil {
		t.Fatal(err)
	}
	conf, err := writeRegistriesConf([]mirrorSet{
		{Source: "registry.invalid/release", Mirrors: []string{mirror.Host + "/mirrored"}, Policy: neverContactSource, pull: byDigestOnly},
	})
	if err != nil {
		t.Fatal(err)
	}
	access, cleanUp, err := wayIn{trustBundle: string(ca), registriesConf: conf}.open()
	if err != nil {
		t.Fatal(err)
	}
	defer cleanUp()
	labels, err := registryImages{access}.Labels(t.Context(), "registry.invalid/release/os@"+digest)
	if err != nil || labels[streams.LabelStream] != "a" {
		t.Errorf("labels %v, error %v", labels, err)
	}
}

func TestWriteRegistriesConf(t *testing.T) {
	for name, tc := range map[string]struct {
		sets          []mirrorSet
		want, failure string
	}{
		"none": {},
		"one": {
			sets: []mirrorSet{{Source: "quay.io/a", Mirrors: []string{"m1:5000/a", "m2/a"}, pull: byDigestOnly}},
			want: "[[registry]]\n  location = \"quay.io/a\"\n\n  [[registry.mirror]]\n    location = \"m1:5000/a\"\n    pull-from-mirror = \"digest-only\"\n\n" +
				"  [[registry.mirror]]\n    location = \"m2/a\"\n    pull-from-mirror = \"digest-only\"\n",
		},
		"a wildcard that is never contacted": {
			sets: []mirrorSet{{Source: "*.example.com", Mirrors: []string{"m"}, Policy: neverContactSource, pull: byTagOnly}},
			want: "[[registry]]\n  prefix = \"*.example.com\"\n  blocked = true\n\n  [[registry.mirror]]\n    location = \"m\"\n    pull-from-mirror = \"tag-only\"\n",
		},
		"rules for one source are joined, and none is written twice": {
			sets: []mirrorSet{
				{Source: "q", Mirrors: []string{"m"}, pull: byDigestOnly}, {Source: "q", Mirrors: []string{"m", "q"}, pull: byDigestOnly}, {Source: "q", Mirrors: []string{"m"}, pull: byTagOnly},
			},
			want: "[[registry]]\n  location = \"q\"\n\n  [[registry.mirror]]\n    location = \"m\"\n    pull-from-mirror = \"digest-only\"\n\n" +
				"  [[registry.mirror]]\n    location = \"m\"\n    pull-from-mirror = \"tag-only\"\n",
		},
		"a scheme":         {sets: []mirrorSet{{Source: "https://quay.io", Mirrors: []string{"m"}}}, failure: "is no registry"},
		"an injected line": {sets: []mirrorSet{{Source: "q", Mirrors: []string{"m\"\n[[registry]]"}}}, failure: "is no registry"},
		"no source":        {sets: []mirrorSet{{Mirrors: []string{"m"}}}, failure: "is no registry"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := writeRegistriesConf(tc.sets)
			if (err == nil) != (tc.failure == "") || err != nil && !strings.Contains(err.Error(), tc.failure) {
				t.Fatalf("error %v, want %q", err, tc.failure)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestReadCredentials(t *testing.T) {
	first := dockerSecret("first", []byte(`{"auths":{"a":{"auth":"MQ=="}}}`))
	second := dockerSecret("second", []byte(`{"auths":{"a":{"auth":"Mg=="},"b":{"auth":"Mg=="}}}`))
	legacy := dockerSecret("legacy", nil)
	legacy.Type, legacy.Data = corev1.SecretTypeDockercfg, map[string][]byte{corev1.DockerConfigKey: []byte(`{"c":{"auth":"Mw=="}}`)}
	other := dockerSecret("other", nil)
	other.Type = corev1.SecretTypeOpaque
	broken := dockerSecret("broken", []byte(`{"auths": "hunter2"`))
	got, err := readCredentials([]corev1.Secret{*first, *second, *legacy, *other, *broken})
	want := map[string]string{"a": `{"auth":"MQ=="}`, "b": `{"auth":"Mg=="}`, "c": `{"auth":"Mw=="}`}
	texts := map[string]string{}
	for registry, raw := range got {
		texts[registry] = string(raw)
	}
	if diff := cmp.Diff(want, texts); diff != "" {
		t.Error(diff)
	}
	if err == nil || !strings.Contains(err.Error(), "other") || !strings.Contains(err.Error(), "broken") || strings.Contains(err.Error(), "hunter2") {
		t.Errorf("error %v", err)
	}
}
