package ignition

import (
	"fmt"
	"path"
	"regexp"
	"strings"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// unitDir is where an administrator's units are. Links made here win over the
// base's own, and follow the image by the merge of /etc.
const unitDir = "/etc/systemd/system"

var (
	unitName   = regexp.MustCompile(`^[A-Za-z0-9:_.\\-]+(@[A-Za-z0-9:_.\\-]*)?\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)
	dropinName = regexp.MustCompile(`^[^/\x00\n]+\.conf$`)
)

// refusedUnits checks names, and the enabling of units whose text is not in
// the config: their [Install] section is in the base image.
func refusedUnits(config types.Config) []Problem {
	texts := unitTexts(config)
	var problems []Problem
	for _, u := range config.Systemd.Units {
		if !unitName.MatchString(u.Name) {
			problems = append(problems, problemf(u.Name, "%q is not the name of a unit", u.Name))
			continue
		}
		for _, dropin := range u.Dropins {
			if !dropinName.MatchString(dropin.Name) || !isText(dropin.Name) {
				problems = append(problems, problemf(u.Name, "%q is not the name of a drop-in (name.conf)", dropin.Name))
			}
		}
		problems = append(problems, refusedEnabling(u, texts)...)
	}
	return problems
}

func refusedEnabling(u types.Unit, texts map[string]string) []Problem {
	if isTrue(u.Mask) || u.Enabled == nil {
		return nil
	}
	text, known := installText(u.Name, texts)
	switch {
	case known && *u.Enabled:
		if _, err := installLinks(u.Name, text); err != nil {
			return []Problem{{u.Name, err.Error()}}
		}
	case known:
		// Not enabled and its text is ours: no link is made, and none is there.
	case *u.Enabled:
		return []Problem{problemf(u.Name, "enabled needs the unit's [Install] section, and units of the base image are not read yet; "+
			"give its contents, or a link in %s/<target>.wants", unitDir)}
	default:
		return []Problem{problemf(u.Name, "a unit of the base image cannot be disabled yet; set mask: true")}
	}
	return nil
}

// unitTexts gives the text of every unit of the config, with its drop-ins.
func unitTexts(config types.Config) map[string]string {
	texts := map[string]string{}
	for _, u := range config.Systemd.Units {
		if u.Contents == nil || *u.Contents == "" {
			continue
		}
		text := *u.Contents
		for _, dropin := range u.Dropins {
			if dropin.Contents != nil {
				text += "\n" + *dropin.Contents
			}
		}
		texts[u.Name] = text
	}
	return texts
}

// installText gives the text of a unit, or of the template it is an instance of.
func installText(name string, texts map[string]string) (string, bool) {
	if text, known := texts[name]; known {
		return text, true
	}
	prefix, instance, suffix := splitUnitName(name)
	if instance == "" {
		return "", false
	}
	text, known := texts[prefix+"@"+suffix]
	return text, known
}

// splitUnitName splits foo@bar.service into foo, bar and .service.
func splitUnitName(name string) (prefix, instance, suffix string) {
	suffix = path.Ext(name)
	prefix, instance, _ = strings.Cut(strings.TrimSuffix(name, suffix), "@")
	return prefix, instance, suffix
}

// unitLink is one link of systemctl enable, both paths absolute.
type unitLink struct{ path, target string }

// installLinks makes the links that systemctl enable would make for a unit.
func installLinks(name, text string) ([]unitLink, error) {
	install, err := readInstall(text)
	if err != nil {
		return nil, err
	}
	prefix, instance, suffix := splitUnitName(name)
	source := unitDir + "/" + name
	linked := name
	if strings.Contains(name, "@") {
		source = unitDir + "/" + prefix + "@" + suffix
		if instance == "" {
			instance = install.defaultInstance
			linked = prefix + "@" + instance + suffix
		}
		if instance == "" {
			return nil, fmt.Errorf("a template is enabled by an instance; name one, or set DefaultInstance= in [Install]")
		}
	}
	expand := func(word string) (string, error) { return expandSpecifiers(word, prefix, instance, linked) }
	var links []unitLink
	for _, word := range install.aliases {
		alias, err := expandUnitName(word, expand)
		if err != nil {
			return nil, fmt.Errorf("Alias=%s: %w", word, err)
		}
		links = append(links, unitLink{unitDir + "/" + alias, source})
	}
	for _, wanted := range install.wanted {
		parent, err := expandUnitName(wanted.name, expand)
		if err != nil {
			return nil, fmt.Errorf("%s=%s: %w", wanted.key, wanted.name, err)
		}
		links = append(links, unitLink{unitDir + "/" + parent + wanted.directory + "/" + linked, source})
	}
	return links, nil
}

// install is what an [Install] section says.
type install struct {
	aliases         []string
	wanted          []wanted
	defaultInstance string
}

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
		case "DefaultInstance":
			found.defaultInstance = option.Value
		case "WantedBy", "RequiredBy", "UpheldBy":
			found.addWanted(option.Name, words)
		case "Also":
			return install{}, fmt.Errorf("Also=%s is not supported yet; enable each unit by itself", option.Value)
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

func expandUnitName(word string, expand func(string) (string, error)) (string, error) {
	name, err := expand(word)
	if err != nil {
		return "", err
	}
	if !unitName.MatchString(name) {
		return "", fmt.Errorf("%q is not the name of a unit", name)
	}
	return name, nil
}

// expandSpecifiers replaces the specifiers of systemd.unit(5) that do not
// depend on the machine.
func expandSpecifiers(word, prefix, instance, full string) (string, error) {
	values := map[byte]string{
		'%': "%", 'i': instance, 'n': full, 'p': prefix,
		'N': strings.TrimSuffix(full, path.Ext(full)),
	}
	var expanded strings.Builder
	for i := 0; i < len(word); i++ {
		if word[i] != '%' {
			expanded.WriteByte(word[i])
			continue
		}
		i++
		if i == len(word) {
			return "", fmt.Errorf("a specifier is missing after %%")
		}
		value, known := values[word[i]]
		if !known {
			return "", fmt.Errorf("the specifier %%%c is only known on the machine", word[i])
		}
		expanded.WriteString(value)
	}
	return expanded.String(), nil
}

func isTrue(value *bool) bool { return value != nil && *value }
