package ignition

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
)

// unitLink is one link of systemctl enable, both paths absolute.
type unitLink struct{ path, target string }

// installation is what enabling a unit comes to.
type installation struct {
	links []unitLink
	// also are the other units that are enabled with it.
	also []string
}

// unitFile is a unit that can be enabled.
type unitFile struct {
	// name that it is enabled by; of a template that of the template or of an
	// instance.
	name string
	// directory of the file, and its text with the drop-ins.
	directory, text string
}

// installation reads the [Install] sections of a unit, as systemctl enable does.
func (u *unitFile) installation() (installation, error) {
	section, err := readInstall(u.text)
	if err != nil {
		return installation{}, err
	}
	if section.isEmpty() {
		return installation{}, nil
	}
	names, err := u.names(section.defaultInstance)
	if err != nil {
		return installation{}, err
	}
	asked := installation{}
	for _, word := range section.aliases {
		alias, err := names.expandUnit(word)
		if err == nil && path.Ext(alias) != path.Ext(u.name) {
			err = fmt.Errorf("an alias ends with %s, as the unit does", path.Ext(u.name))
		}
		if err != nil {
			return installation{}, fmt.Errorf("Alias=%s: %w", word, err)
		}
		asked.links = append(asked.links, unitLink{unitDir + "/" + alias, names.file})
	}
	for _, wanted := range section.wanted {
		parent, err := names.expandUnit(wanted.name)
		if err != nil {
			return installation{}, fmt.Errorf("%s=%s: %w", wanted.key, wanted.name, err)
		}
		asked.links = append(asked.links, unitLink{unitDir + "/" + parent + wanted.directory + "/" + names.full, names.file})
	}
	for _, word := range section.also {
		other, err := names.expandUnit(word)
		if err != nil {
			return installation{}, fmt.Errorf("Also=%s: %w", word, err)
		}
		asked.also = append(asked.also, other)
	}
	return asked, nil
}

// names gives the names under which the unit is installed.
func (u *unitFile) names(defaultInstance string) (unitNames, error) {
	prefix, instance, suffix := splitUnitName(u.name)
	names := unitNames{prefix: prefix, instance: instance, full: u.name, file: u.directory + "/" + u.name}
	if !strings.Contains(u.name, "@") {
		return names, nil
	}
	names.file = u.directory + "/" + prefix + "@" + suffix
	if instance == "" {
		names.instance = defaultInstance
		names.full = prefix + "@" + defaultInstance + suffix
	}
	if names.instance == "" {
		return names, errors.New("a template is enabled by an instance; name one, or set DefaultInstance= in [Install]")
	}
	return names, nil
}

// splitUnitName splits foo@bar.service into foo, bar and .service.
func splitUnitName(name string) (prefix, instance, suffix string) {
	suffix = path.Ext(name)
	prefix, instance, _ = strings.Cut(strings.TrimSuffix(name, suffix), "@")
	return prefix, instance, suffix
}

// templateOf gives the template of an instance; "": name is none.
func templateOf(name string) string {
	prefix, instance, suffix := splitUnitName(name)
	if instance == "" {
		return ""
	}
	return prefix + "@" + suffix
}

// install is what [Install] sections say.
type install struct {
	aliases         []string
	also            []string
	wanted          []wanted
	defaultInstance string
}

func (i install) isEmpty() bool { return len(i.aliases) == 0 && len(i.also) == 0 && len(i.wanted) == 0 }

// wanted is one unit that pulls the installed one in.
type wanted struct{ key, name, directory string }

var wantedDirectories = map[string]string{
	"WantedBy":   ".wants",
	"RequiredBy": ".requires",
	"UpheldBy":   ".upholds",
}

// readInstall reads the [Install] sections of a unit's text. An empty
// assignment takes back what stood before, as in systemd.
func readInstall(text string) (install, error) {
	options, err := unit.DeserializeOptions(strings.NewReader(text))
	if err != nil {
		return install{}, fmt.Errorf("its text is not that of a unit: %w", err)
	}
	var found install
	for _, option := range options {
		if option.Section != "Install" {
			continue
		}
		words := strings.Fields(option.Value)
		switch option.Name {
		case "Alias":
			found.aliases = appendOrReset(found.aliases, words)
		case "Also":
			found.also = appendOrReset(found.also, words)
		case "DefaultInstance":
			found.defaultInstance = option.Value
		case "WantedBy", "RequiredBy", "UpheldBy":
			found.addWanted(option.Name, words)
		}
	}
	return found, nil
}

func appendOrReset(list, words []string) []string {
	if len(words) == 0 {
		return nil
	}
	return append(list, words...)
}

func (i *install) addWanted(key string, words []string) {
	if len(words) == 0 {
		var kept []wanted
		for _, w := range i.wanted {
			if w.key != key {
				kept = append(kept, w)
			}
		}
		i.wanted = kept
	}
	for _, word := range words {
		i.wanted = append(i.wanted, wanted{key: key, name: word, directory: wantedDirectories[key]})
	}
}

// unitNames are what the specifiers in an [Install] section stand for.
type unitNames struct{ prefix, instance, full, file string }

func (n unitNames) expandUnit(word string) (string, error) {
	name, err := n.expand(word)
	if err != nil {
		return "", err
	}
	if !unitName.MatchString(name) {
		return "", fmt.Errorf("%q is not the name of a unit", name)
	}
	return name, nil
}

// expand replaces the specifiers of systemd.unit(5) that do not depend on the
// machine. Units of the system run as root.
func (n unitNames) expand(word string) (string, error) {
	values := map[byte]string{
		'%': "%", 'i': n.instance, 'n': n.full, 'p': n.prefix,
		'N': strings.TrimSuffix(n.full, path.Ext(n.full)),
		'j': n.prefix[strings.LastIndexByte(n.prefix, '-')+1:],
		'u': "root", 'g': "root", 'U': "0", 'G': "0",
	}
	var expanded strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] != '%' {
			expanded.WriteByte(word[i])
			continue
		}
		i++
		if i == len(word) {
			return "", errors.New("a specifier is missing after %")
		}
		value, known := values[word[i]]
		if !known {
			return "", fmt.Errorf("the specifier %%%c is only known on the machine", word[i])
		}
		expanded.WriteString(value)
	}
	return expanded.String(), nil
}
