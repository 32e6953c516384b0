package ignition

import (
	"testing"
)

func TestForImageGivesOneTextForOneImage(t *testing.T) {
	file := func(path string) string { return `{"path":"` + path + `","contents":{"source":"data:,a"}}` }
	storage := func(files string) string { return config(`"storage":{"files":[` + files + `]}`) }
	tests := map[string]struct {
		a, b string
		same bool
	}{
		"the order of files": {storage(file("/etc/a") + "," + file("/etc/b")), storage(file("/etc/b") + "," + file("/etc/a")), true},
		"the spec":           {storage(file("/etc/a")), `{"ignition":{"version":"3.0.0"},"storage":{"files":[` + file("/etc/a") + `]}}`, true},
		"white space":        {storage(file("/etc/a")), storage(" " + file("/etc/a") + "\n"), true},
		"overwrite":          {storage(file("/etc/a")), storage(`{"path":"/etc/a","overwrite":true,"contents":{"source":"data:,a"}}`), true},
		"a certificate":      {storage(file("/etc/a")), storage(file("/etc/a") + "," + file("/etc/docker/certs.d/a/ca.crt")), true},
		"a trust anchor":     {storage(file("/etc/a")), storage(file("/etc/a") + "," + file("/usr/local/share/ca-certificates/a.crt")), true},
		"the pull secret":    {storage(file("/etc/a")), storage(file("/etc/a") + "," + file("/var/lib/kubelet/config.json")), true},
		"an SSH key":         {storage(file("/etc/a")), config(`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["a"]}]},"storage":{"files":[` + file("/etc/a") + `]}`), true},
		"how it is fetched":  {storage(file("/etc/a")), `{"ignition":{"version":"3.4.0","timeouts":{"httpTotal":7}},"storage":{"files":[` + file("/etc/a") + `]}}`, true},
		"another file":       {storage(file("/etc/a")), storage(file("/etc/a") + "," + file("/etc/docker/certs.da")), false},
		"a group":            {storage(file("/etc/a")), config(`"passwd":{"users":[{"name":"core","groups":["a"]}]},"storage":{"files":[` + file("/etc/a") + `]}`), false},
		"the order of arguments": {config(`"kernelArguments":{"shouldExist":["a","b"]}`),
			config(`"kernelArguments":{"shouldExist":["b","a"]}`), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			a, b := forImage(t, test.a), forImage(t, test.b)
			if (a == b) != test.same {
				t.Errorf("same: want %v\n%s\n%s", test.same, a, b)
			}
			if again := forImage(t, a); again != a {
				t.Errorf("the text of a text is another: %s", again)
			}
		})
	}
}

func forImage(t *testing.T, raw string) string {
	t.Helper()
	parsed, err := Parse([]byte(raw))
	if err != nil {
		t.Fatal(err)
	}
	before := asJSON(t, parsed)
	text, err := ForImage(parsed)
	if err != nil {
		t.Fatal(err)
	}
	if asJSON(t, parsed) != before {
		t.Error("the config was changed")
	}
	return string(text)
}

func TestForImageAndForNodeOfNothing(t *testing.T) {
	for name, raw := range map[string]string{
		"no config":             "",
		"an empty one":          config(`"storage":{"files":[]}`),
		"a user by name alone":  config(`"passwd":{"users":[{"name":"core"}]}`),
		"the pull secret alone": config(`"storage":{"files":[{"path":"/var/lib/kubelet/config.json"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			parsed, err := Parse([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			image, err := ForImage(parsed)
			if image != nil || err != nil {
				t.Errorf("image: %s, %v", image, err)
			}
			live, err := ForNode(parsed)
			if live != nil || err != nil {
				t.Errorf("node: %s, %v", live, err)
			}
		})
	}
}

func TestForNodeHoldsWhatIsLive(t *testing.T) {
	parsed, err := Parse([]byte(config(`"passwd":{"users":[{"name":"core","groups":["a"],"sshAuthorizedKeys":["key"]}]},
		"storage":{"directories":[{"path":"/etc/containers/certs.d/a"}],"files":[{"path":"/etc/containers/certs.d/a/b","contents":{"source":"data:,a"}},
		{"path":"/etc/c","contents":{"source":"data:,a"}}]}`)))
	if err != nil {
		t.Fatal(err)
	}
	got, err := ForNode(parsed)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Parse(got)
	if err != nil {
		t.Fatal(err)
	}
	want := parse(t, `,"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["key"]}]},
		"storage":{"directories":[{"path":"/etc/containers/certs.d/a"}],"files":[{"path":"/etc/containers/certs.d/a/b","contents":{"source":"data:,a"}}]}`)
	if asJSON(t, again) != asJSON(t, want) {
		t.Errorf("got %s", got)
	}
}
