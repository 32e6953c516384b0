package ignition

import (
	"strings"
	"testing"
)

func TestRefusedNamesWhatAndWhy(t *testing.T) {
	file := func(path string) string {
		return `"storage":{"files":[{"path":"` + path + `","contents":{"source":"data:,"}}]}`
	}
	tests := map[string]struct {
		body string
		want []string
	}{
		"what an image holds is not refused":   {file("/etc/a"), nil},
		"a file in /var is not refused":        {file("/var/lib/a"), nil},
		"a file in /home is not refused":       {file("/home/core/a"), nil},
		"disks":                                {`"storage":{"disks":[{"device":"/dev/sda"}]}`, []string{"storage.disks: an image cannot"}},
		"raid":                                 {`"storage":{"raid":[{"name":"a","level":"raid1","devices":["/dev/a"]}]}`, []string{"storage.raid"}},
		"luks":                                 {`"storage":{"luks":[{"name":"a","device":"/dev/a"}]}`, []string{"storage.luks"}},
		"filesystems":                          {`"storage":{"filesystems":[{"device":"/dev/a","format":"ext4"}]}`, []string{"storage.filesystems"}},
		"/run":                                 {file("/run/a"), []string{"/run/a: /run is empty at every boot"}},
		"a directory that is a link there":     {`"storage":{"directories":[{"path":"/media"}]}`, []string{"/media: /run is empty"}},
		"/var/run leads to /run":               {file("/var/run/a"), []string{"/var/run/a: /run is empty"}},
		"a file below a file":                  {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"}},{"path":"/etc/a/b/c","contents":{"source":"data:,"}}]}`, []string{"/etc/a/b/c: it is below /etc/a, which is a file in the same config"}},
		"a directory below a file":             {`"storage":{"files":[{"path":"/opt/a","contents":{"source":"data:,"}}],"directories":[{"path":"/opt/a/b"}]}`, []string{"/opt/a/b: it is below /opt/a"}},
		"a file whose name begins alike":       {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"}},{"path":"/etc/ab","contents":{"source":"data:,"}}]}`, nil},
		"a kernel argument with an open quote": {`"kernelArguments":{"shouldExist":["a=\"b"]}`, []string{`kernelArguments: kernel argument "a=\"b": a double quote`}},
		"/tmp":                                 {file("/tmp/a"), []string{"/tmp/a: /tmp"}},
		"/proc":                                {file("/proc/a"), []string{"/proc/a: /proc"}},
		"/sys":                                 {file("/sys/a"), []string{"/sys/a: /sys"}},
		"/boot":                                {file("/boot/a"), []string{"/boot/a: /boot"}},
		"/usr/etc":                             {file("/usr/etc/a"), []string{"/usr/etc/a: /usr/etc"}},
		"a remote source":                      {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"https://example.com/a"}}]}`, []string{"/etc/a: contents.source is fetched by https"}},
		"an owner that is no name":             {`"storage":{"files":[{"path":"/etc/a","user":{"name":"a b"},"contents":{"source":"data:,"}}]}`, []string{"/etc/a: \"a b\" is not the name"}},
		"an owner below zero":                  {`"storage":{"files":[{"path":"/etc/a","user":{"id":-1},"contents":{"source":"data:,"}}]}`, []string{"/etc/a: -1 is not"}},
		"a name that takes files away":         {file("/etc/.wh.a"), []string{"/etc/.wh.a: names that begin with .wh."}},
		"an append that is fetched":            {`"storage":{"files":[{"path":"/etc/a","append":[{"source":"https://example.com/a"}]}]}`, []string{"/etc/a: append[0].source is fetched"}},
		"a live file without contents":         {`"storage":{"files":[{"path":"/etc/containers/certs.d/a/ca.crt"}]}`, []string{"need the whole file"}},
		"a password":                           {`"passwd":{"users":[{"name":"core","passwordHash":"x"}]}`, []string{"passwd.users[core]: passwordHash"}},
		"SSH keys are live":                    {`"passwd":{"users":[{"name":"core","sshAuthorizedKeys":["ssh-ed25519 AAAA"]}]}`, nil},
		"a user with a number":                 {`"passwd":{"users":[{"name":"a","uid":5000}]}`, nil},
		"a user without one":                   {`"passwd":{"users":[{"name":"a","shell":"/bin/sh"}]}`, []string{"passwd.users[a]: uid is missing"}},
		"a user that is to go":                 {`"passwd":{"users":[{"name":"a","shouldExist":false}]}`, []string{"passwd.users[a]: shouldExist"}},
		"a comment with a colon":               {`"passwd":{"users":[{"name":"a","uid":5000,"gecos":"a:b"}]}`, []string{"passwd.users[a]: gecos"}},
		"a group without a number":             {`"passwd":{"groups":[{"name":"a"}]}`, []string{"passwd.groups[a]: gid is missing"}},
		"a config that is fetched":             {`"ignition":{"version":"3.4.0","config":{"merge":[{"source":"https://example.com"}]}}`, []string{"ignition.config.merge"}},
		"enabling a unit of the base is fine":  {`"systemd":{"units":[{"name":"a.service","enabled":true}]}`, nil},
		"a unit that hides another":            {`"systemd":{"units":[{"name":".wh.a.service","contents":"[Unit]"}]}`, []string{"is not the name of a unit"}},
		"a drop-in alone is fine":              {`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"a.conf","contents":"[Unit]"}]}]}`, nil},
		"a unit that climbs out":               {`"systemd":{"units":[{"name":"../a.service","contents":"[Unit]"}]}`, []string{"../a.service"}},
		"a drop-in that climbs out":            {`"systemd":{"units":[{"name":"a.service","dropins":[{"name":"../a.conf","contents":"[Unit]"}]}]}`, []string{"drop-in"}},
		"a target that climbs out":             {`"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=../a.target"}]}`, []string{"a.service: WantedBy"}},
		"everything is named at once":          {`"storage":{"disks":[{"device":"/dev/sda"}],"files":[{"path":"/run/a","contents":{"source":"data:,"}}]}`, []string{"storage.disks", "/run/a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			raw := config(test.body)
			if strings.HasPrefix(test.body, `"ignition"`) {
				raw = "{" + test.body + "}"
			}
			parsed, err := Parse([]byte(raw))
			if err != nil {
				t.Fatal(err)
			}
			got := Refused(parsed)
			if len(got) != len(test.want) {
				t.Fatalf("got %v, want %d problems", got, len(test.want))
			}
			for i, want := range test.want {
				if !strings.Contains(got[i].String(), want) {
					t.Errorf("got %q, want %q", got[i], want)
				}
			}
		})
	}
}

func TestInstallLinks(t *testing.T) {
	tests := map[string]struct {
		name, text string
		want       string
		fails      string
	}{
		"all kinds of pulling in": {
			name: "a.service", text: "[Install]\nWantedBy=b.target c.target\nRequiredBy=d.service\nUpheldBy=e.service\n",
			want: "b.target.wants/a.service c.target.wants/a.service d.service.requires/a.service e.service.upholds/a.service",
		},
		"an empty assignment takes back": {
			name: "a.service", text: "[Install]\nWantedBy=b.target\nWantedBy=\nWantedBy=c.target\n",
			want: "c.target.wants/a.service",
		},
		"a template by its default instance": {
			name: "a@.service", text: "[Install]\nWantedBy=b.target\nDefaultInstance=x\n",
			want: "b.target.wants/a@x.service",
		},
		"an instance": {
			name: "a@y.service", text: "[Install]\nWantedBy=b@%i.target\nAlias=z-%i.service\n",
			want: "z-y.service b@y.target.wants/a@y.service",
		},
		"what is enabled with it": {
			name: "a-b@y.service", text: "[Install]\nAlso=%p.socket c@%j.service\n",
			want: "also a-b.socket also c@b.service",
		},
		"an alias of another kind":       {name: "a.service", text: "[Install]\nAlias=a.socket\n", fails: "an alias ends with .service"},
		"a template without [Install]":   {name: "a@.service", text: "[Service]\n"},
		"a template without an instance": {name: "a@.service", text: "[Install]\nWantedBy=b.target\n", fails: "DefaultInstance"},
		"a specifier of the machine":     {name: "a.service", text: "[Install]\nWantedBy=%H.target\n", fails: "only known on the machine"},
		"no section, no links":           {name: "a.service", text: "[Service]\nExecStart=/bin/true\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			asked, err := (&unitFile{test.name, unitDir, test.text}).installation()
			if test.fails != "" {
				if err == nil || !strings.Contains(err.Error(), test.fails) {
					t.Fatalf("got %v, want an error with %q", err, test.fails)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, link := range asked.links {
				got = append(got, strings.TrimPrefix(link.path, unitDir+"/"))
			}
			for _, other := range asked.also {
				got = append(got, "also "+other)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}
