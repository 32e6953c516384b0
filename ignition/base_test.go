package ignition

import (
	"archive/tar"
	"errors"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// image is a base image as a test writes it: files, links and directories by
// path. What is not in it is not there.
type image map[string]imageEntry

type imageEntry struct {
	Found
	content string
}

func (i image) Find(name string) (*Found, error) {
	e, there := i[name]
	if !there {
		return nil, nil
	}
	return &e.Found, nil
}

func (i image) Read(name string) ([]byte, error) { return []byte(i[name].content), nil }

func (i image) List(name string) ([]string, error) {
	var names []string
	for entry := range i {
		if path.Dir(entry) == name {
			names = append(names, path.Base(entry))
		}
	}
	slices.Sort(names)
	return names, nil
}

func fileIn(content string) imageEntry {
	return imageEntry{Found: Found{Kind: tar.TypeReg, Mode: 0o644}, content: content}
}

func linkIn(target string) imageEntry {
	return imageEntry{Found: Found{Kind: tar.TypeSymlink, Mode: 0o777, Target: target}}
}

func ownedIn(kind byte, mode int64, uid, gid int, content string) imageEntry {
	return imageEntry{Found: Found{Kind: kind, Mode: mode, UID: uid, GID: gid}, content: content}
}

// system is a base image with a little of everything.
func system() image {
	return image{
		"/etc/passwd":                         fileIn("root:x:0:0::/root:/bin/sh\nnot a line\nchrony:x:994:992::/:/sbin/nologin\n"),
		"/etc/group":                          fileIn("root:x:0:\nchrony:x:992:\n"),
		"/usr/lib/passwd":                     fileIn("chrony:x:1:1::/:/\naltuser:x:77:78::/:/\n"),
		"/usr/lib/group":                      fileIn("altgroup:x:78:\n"),
		"/etc/motd":                           ownedIn(tar.TypeReg, 0o600, 3, 4, "before\n"),
		"/etc/polkit-1/rules.d":               ownedIn(tar.TypeDir, 0o750, 0, 114, ""),
		"/usr/lib/bootc/kargs.d/10-base.toml": fileIn("kargs = [\"quiet\", \"rhgb\", \"console=tty0\"]\nmatch-architectures = [\"x86_64\"]\n"),
		"/usr/lib/bootc/kargs.d/20-base.toml": fileIn("kargs = [\"quiet\"]\n"),
		"/usr/lib/bootc/kargs.d/30-base.toml": fileIn("kargs = [\"other\"]\n"),
		"/usr/lib/bootc/kargs.d/README":       fileIn("not TOML"),
		"/lib":                                linkIn("usr/lib"),
		"/srv":                                linkIn("var/srv"),
		"/etc/ssl/certs":                      linkIn("../pki/certs"),
		"/etc/loop":                           linkIn("loop/x"),

		"/usr/lib/systemd/system/a.service":                         fileIn("[Install]\nWantedBy=multi-user.target\nAlso=a.socket\nAlias=z.service\n"),
		"/usr/lib/systemd/system/a.socket":                          fileIn("[Install]\nWantedBy=sockets.target\n"),
		"/usr/lib/systemd/system/t@.service":                        fileIn("[Install]\nWantedBy=multi-user.target\nDefaultInstance=one\n"),
		"/usr/lib/systemd/system/alias.service":                     linkIn("a.socket"),
		"/usr/lib/systemd/system/static.service":                    fileIn("[Service]\n"),
		"/usr/lib/systemd/system/hidden.service":                    fileIn("[Install]\nWantedBy=multi-user.target\n"),
		"/etc/systemd/system/hidden.service":                        linkIn("/dev/null"),
		"/etc/systemd/system/multi-user.target.wants/a.service":     linkIn("/usr/lib/systemd/system/a.service"),
		"/etc/systemd/system/multi-user.target.wants/own.service":   linkIn("/usr/lib/systemd/system/own.service"),
		"/usr/lib/systemd/system/multi-user.target.wants/v.service": linkIn("../v.service"),
	}
}

func TestLayerOnABaseThatIsRead(t *testing.T) {
	files := func(files string) string { return config(`"storage":{"files":[` + files + `]}`) }
	units := func(units string) string { return config(`"systemd":{"units":[` + units + `]}`) }
	preset := "\n5 0755 0:0 usr/lib/systemd/system-preset/\n0 0644 0:0 usr/lib/systemd/system-preset/20-imagemode.preset"
	const unitDirs = "5 0755 0:0 etc/\n5 0755 0:0 etc/systemd/\n5 0755 0:0 etc/systemd/system/\n"
	tests := map[string]struct {
		config string
		want   string
		path   string
		holds  string
	}{
		"an append keeps content, mode and owner": {
			config: files(`{"path":"/etc/motd","append":[{"source":"data:,one%0A"},{"source":"data:,two%0A"}]}`),
			want:   "5 0755 0:0 etc/\n0 0600 3:4 etc/motd",
			path:   "/etc/motd", holds: "before\none\ntwo\n",
		},
		"an append to new contents does not look at the old": {
			config: files(`{"path":"/etc/motd","contents":{"source":"data:,new"},"append":[{"source":"data:,one"}]}`),
			want:   "5 0755 0:0 etc/\n0 0644 0:0 etc/motd",
			path:   "/etc/motd", holds: "newone",
		},
		"an append to what is not there": {
			config: files(`{"path":"/etc/new","append":[{"source":"data:,one"}]}`),
			want:   "5 0755 0:0 etc/\n0 0644 0:0 etc/new",
			path:   "/etc/new", holds: "one",
		},
		"no contents, only a mode": {
			config: files(`{"path":"/etc/motd","mode":420}`),
			want:   "5 0755 0:0 etc/\n0 0644 3:4 etc/motd",
			path:   "/etc/motd", holds: "before\n",
		},
		"owners by name": {
			config: files(`{"path":"/etc/a","user":{"name":"chrony"},"group":{"name":"chrony"},"contents":{"source":"data:,"}},
				{"path":"/etc/b","user":{"name":"altuser"},"group":{"name":"altgroup"},"contents":{"source":"data:,"}}`),
			want: "5 0755 0:0 etc/\n0 0644 994:992 etc/a\n0 0644 77:78 etc/b",
		},
		"owners by name below /var are known on the node": {
			config: files(`{"path":"/srv/a","user":{"name":"core"},"contents":{"source":"data:,"}}`),
			want: "5 0755 0:0 usr/share/\n5 0755 0:0 usr/share/imagemode/\n5 0700 0:0 usr/share/imagemode/var/\n" +
				"5 0755 0:0 usr/share/imagemode/var/srv/\n0 0644 0:0 usr/share/imagemode/var/srv/a",
		},
		"a directory of the base keeps mode and owner": {
			config: files(`{"path":"/etc/polkit-1/rules.d/a","contents":{"source":"data:,"}}`),
			want:   "5 0755 0:0 etc/\n5 0755 0:0 etc/polkit-1/\n5 0750 0:114 etc/polkit-1/rules.d/\n0 0644 0:0 etc/polkit-1/rules.d/a",
		},
		"links of the base lead where they lead": {
			config: files(`{"path":"/etc/ssl/certs/a","contents":{"source":"data:,"}},{"path":"/opt/b","contents":{"source":"data:,"}}`),
			want:   "5 0755 0:0 etc/\n5 0755 0:0 etc/pki/\n5 0755 0:0 etc/pki/certs/\n0 0644 0:0 etc/pki/certs/a\n5 0755 0:0 opt/\n0 0644 0:0 opt/b",
		},
		"kernel arguments that the base sets are taken away": {
			config: config(`"kernelArguments":{"shouldNotExist":["quiet","rhgb"]}`),
			want:   "5 0755 0:0 usr/lib/bootc/\n5 0755 0:0 usr/lib/bootc/kargs.d/\n0 0644 0:0 usr/lib/bootc/kargs.d/10-base.toml\n0 0644 0:0 usr/lib/bootc/kargs.d/20-base.toml",
			path:   "/usr/lib/bootc/kargs.d/10-base.toml", holds: "kargs = [\"console=tty0\"]\nmatch-architectures = [\"x86_64\"]\n",
		},
		"a hard link to a file of the base": {
			config: config(`"storage":{"links":[{"path":"/etc/a","target":"/etc/motd","hard":true}]}`),
			want:   "5 0755 0:0 etc/\n0 0600 3:4 etc/a",
			path:   "/etc/a", holds: "before\n",
		},
		"a unit of the base is enabled with what goes with it": {
			config: units(`{"name":"a.service","enabled":true}`),
			want: unitDirs + `5 0755 0:0 etc/systemd/system/multi-user.target.wants/
2 0777 0:0 etc/systemd/system/multi-user.target.wants/a.service -> /usr/lib/systemd/system/a.service
5 0755 0:0 etc/systemd/system/sockets.target.wants/
2 0777 0:0 etc/systemd/system/sockets.target.wants/a.socket -> /usr/lib/systemd/system/a.socket
2 0777 0:0 etc/systemd/system/z.service -> /usr/lib/systemd/system/a.service` + preset,
		},
		"a unit of the base by its other name, with a drop-in": {
			config: units(`{"name":"static.service","enabled":true,"dropins":[{"name":"a.conf","contents":"[Install]\nRequiredBy=b.target\n"}]},
				{"name":"alias.service","enabled":true}`),
			want: unitDirs + `5 0755 0:0 etc/systemd/system/b.target.requires/
2 0777 0:0 etc/systemd/system/b.target.requires/static.service -> /usr/lib/systemd/system/static.service
5 0755 0:0 etc/systemd/system/sockets.target.wants/
2 0777 0:0 etc/systemd/system/sockets.target.wants/a.socket -> /usr/lib/systemd/system/a.socket
5 0755 0:0 etc/systemd/system/static.service.d/
0 0644 0:0 etc/systemd/system/static.service.d/a.conf` + preset,
		},
		"a template of the base and an instance of it": {
			config: units(`{"name":"t@.service","enabled":true},{"name":"t@two.service","enabled":true}`),
			want: unitDirs + `5 0755 0:0 etc/systemd/system/multi-user.target.wants/
2 0777 0:0 etc/systemd/system/multi-user.target.wants/t@one.service -> /usr/lib/systemd/system/t@.service
2 0777 0:0 etc/systemd/system/multi-user.target.wants/t@two.service -> /usr/lib/systemd/system/t@.service` + preset,
			path: presetPath, holds: "enable t@.service\nenable t@.service two\n",
		},
		"a disabled unit loses the links it has in /etc": {
			config: units(`{"name":"a.service","enabled":false},{"name":"nowhere.service","enabled":false}`),
			want: unitDirs + `5 0755 0:0 etc/systemd/system/multi-user.target.wants/
0 0000 0:0 etc/systemd/system/multi-user.target.wants/.wh.a.service` + preset,
			path: presetPath, holds: "disable a.service\ndisable nowhere.service\n",
		},
		"a unit of the config that is not enabled loses those of the base": {
			config: units(`{"name":"own.service","enabled":false,"contents":"[Install]\nWantedBy=multi-user.target\n"}`),
			want: unitDirs + `5 0755 0:0 etc/systemd/system/multi-user.target.wants/
0 0000 0:0 etc/systemd/system/multi-user.target.wants/.wh.own.service
0 0644 0:0 etc/systemd/system/own.service` + preset,
		},
		"a unit that the base masks can be had": {
			config: units(`{"name":"hidden.service","enabled":true,"mask":false}`),
			want: unitDirs + `0 0000 0:0 etc/systemd/system/.wh.hidden.service
5 0755 0:0 etc/systemd/system/multi-user.target.wants/
2 0777 0:0 etc/systemd/system/multi-user.target.wants/hidden.service -> /usr/lib/systemd/system/hidden.service` + preset,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			layer, got := makeLayerOn(t, system(), test.config)
			if diff := cmp.Diff(test.want, got.asked()); diff != "" {
				t.Error(diff)
			}
			if test.path != "" && got.contents[test.path] != test.holds {
				t.Errorf("%s holds %q, want %q", test.path, got.contents[test.path], test.holds)
			}
			if problems, err := Lint(layer.Data); err != nil || len(problems) > 0 {
				t.Errorf("lint: %v %v", problems, err)
			}
		})
	}
}

func TestNewLayerRefusesWhatTheBaseDoesNotHave(t *testing.T) {
	tests := map[string]struct{ body, want string }{
		"a user":                         {`"storage":{"files":[{"path":"/etc/a","user":{"name":"nobody1"},"contents":{"source":"data:,"}}]}`, `/etc/a: user.name: the base image has no user "nobody1"`},
		"a group":                        {`"storage":{"files":[{"path":"/etc/a","group":{"name":"nobody1"},"contents":{"source":"data:,"}}]}`, `/etc/a: group.name: the base image has no group "nobody1"`},
		"a unit":                         {`"systemd":{"units":[{"name":"b.service","enabled":true}]}`, "b.service: enabled: neither"},
		"a unit that it masks":           {`"systemd":{"units":[{"name":"hidden.service","enabled":true}]}`, "hidden.service: the base image masks it"},
		"a file for a hard link":         {`"storage":{"links":[{"path":"/etc/a","target":"/etc/b","hard":true}]}`, "/etc/a: target: neither"},
		"a file where something else is": {`"storage":{"files":[{"path":"/etc/polkit-1/rules.d","mode":420}]}`, "/etc/polkit-1/rules.d: contents.source is missing"},
		"a kernel argument to take away": {`"kernelArguments":{"shouldNotExist":["nosmt"]}`, `kernelArguments.shouldNotExist: the base image does not set "nosmt"`},
		"a kernel argument that is asked for, too": {`"kernelArguments":{"shouldNotExist":["asked"]}`, `kernelArguments.shouldNotExist: "asked" is asked for, too`},
		"an end of its links":                      {`"storage":{"files":[{"path":"/etc/loop/a","contents":{"source":"data:,"}}]}`, "/etc/loop/a: it leads through more than 40 links"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := Parse([]byte(config(test.body)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewLayer(config, system(), []string{"asked"})
			var refused *RefusedError
			if !errors.As(err, &refused) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want a *RefusedError with %q", err, test.want)
			}
		})
	}
}

func TestNewLayerAsksForTheBaseOnlyWhenItMust(t *testing.T) {
	tests := map[string]struct {
		body string
		must bool
	}{
		"files, links, units of its own": {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"}}]},"systemd":{"units":[{"name":"a.service","enabled":true,"contents":"[Install]\nWantedBy=b.target"}]}`, false},
		"an append to new contents":      {`"storage":{"files":[{"path":"/etc/a","contents":{"source":"data:,"},"append":[{"source":"data:,"}]}]}`, false},
		"an owner by name below /var":    {`"storage":{"files":[{"path":"/opt/a","user":{"name":"core"},"contents":{"source":"data:,"}}]}`, false},
		"a masked unit":                  {`"systemd":{"units":[{"name":"a.service","enabled":false,"mask":true}]}`, false},
		"an append":                      {`"storage":{"files":[{"path":"/etc/a","append":[{"source":"data:,"}]}]}`, true},
		"a mode alone":                   {`"storage":{"files":[{"path":"/etc/a","mode":384}]}`, true},
		"an owner by name":               {`"storage":{"files":[{"path":"/etc/a","user":{"name":"core"},"contents":{"source":"data:,"}}]}`, true},
		"a unit of the base":             {`"systemd":{"units":[{"name":"a.service","enabled":true}]}`, true},
		"a unit that is not enabled":     {`"systemd":{"units":[{"name":"a.service","enabled":false}]}`, true},
		"a kernel argument to take away": {`"kernelArguments":{"shouldNotExist":["a"]}`, true},
		"a directory that is not root's": {`"storage":{"files":[{"path":"/etc/polkit-1/rules.d/a","contents":{"source":"data:,"}}]}`, true},
		"a hard link into the base":      {`"storage":{"links":[{"path":"/etc/a","target":"/etc/b","hard":true}]}`, true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := Parse([]byte(config(test.body)))
			if err != nil {
				t.Fatal(err)
			}
			_, err = NewLayer(config, DefaultBase(), nil)
			if errors.Is(err, ErrBaseUnread) != test.must || err != nil && !test.must {
				t.Errorf("got %v, must ask for the base: %v", err, test.must)
			}
		})
	}
}
