package ignition

import (
	"archive/tar"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/coreos/ignition/v2/config/v3_6/types"
)

// unitDir is where an administrator's units are. Links made here win over the
// base's own, and follow the image by the merge of /etc.
const unitDir = "/etc/systemd/system"

// presetPath says the same as the links, for the first boot of a new machine:
// systemd goes by presets then.
const presetPath = "/usr/lib/systemd/system-preset/20-imagemode.preset"

var (
	unitName   = regexp.MustCompile(`^[A-Za-z0-9:_\\-][A-Za-z0-9:_.\\-]*(@[A-Za-z0-9:_.\\-]*)?\.(service|socket|device|mount|automount|swap|target|path|timer|slice|scope)$`)
	dropinName = regexp.MustCompile(`^[^./\x00\n][^/\x00\n]*\.conf$`)
)

func (b *layerBuilder) addUnits() error {
	units := newUnitSet(b.config, b.base)
	for _, u := range b.config.Systemd.Units {
		if err := b.addUnit(u); err != nil {
			return err
		}
		if isTrue(u.Mask) {
			continue
		}
		for _, step := range []func(types.Unit, *unitSet) error{b.unmask, b.enableOrDisable} {
			if err := step(u, units); err != nil {
				return err
			}
		}
	}
	if presets := presetLines(b.config.Systemd.Units); presets != "" {
		return b.addOwn(newFile(presetPath, presets))
	}
	return nil
}

// addUnit delivers what the config has of a unit: its text, its drop-ins, or
// the link that masks it.
func (b *layerBuilder) addUnit(u types.Unit) error {
	file := unitDir + "/" + u.Name
	var entries []*entry
	switch {
	case isTrue(u.Mask):
		entries = append(entries, newLink(file, "/dev/null"))
	case hasText(u.Contents):
		entries = append(entries, newFile(file, *u.Contents))
	}
	for _, dropin := range u.Dropins {
		if hasText(dropin.Contents) {
			entries = append(entries, newFile(file+".d/"+dropin.Name, *dropin.Contents))
		}
	}
	for _, e := range entries {
		if err := b.addAt(e); err != nil {
			return err
		}
	}
	return nil
}

// addAt delivers e at its own path.
func (b *layerBuilder) addAt(e *entry) error {
	at, err := locate(b.base, e.path, e.kind)
	if err != nil {
		return err
	}
	moved := *e
	moved.path = at.resolved
	return b.add(at, &moved)
}

// unmask takes away the link by which the base masks a unit that the config
// says is not.
func (b *layerBuilder) unmask(u types.Unit, _ *unitSet) error {
	if u.Mask == nil || hasText(u.Contents) {
		return nil
	}
	link, err := resolve(b.base, unitDir+"/"+u.Name)
	if err != nil {
		return err
	}
	found, err := b.base.Find(link)
	if err != nil {
		return fmt.Errorf("unit %s: mask: %w", u.Name, err)
	}
	if found.isLinkTo("/dev/null") {
		b.takenAway = append(b.takenAway, link)
	}
	return nil
}

func (b *layerBuilder) enableOrDisable(u types.Unit, units *unitSet) error {
	switch {
	case u.Enabled == nil:
		return nil
	case *u.Enabled:
		return b.enable(u.Name, units, map[string]bool{})
	}
	return b.disable(u.Name, units, map[string]bool{})
}

// enable makes the links that systemctl enable would make, also for the units
// that the [Install] section names by Also=.
func (b *layerBuilder) enable(name string, units *unitSet, seen map[string]bool) error {
	if seen[name] {
		return nil
	}
	seen[name] = true
	found, err := units.find(name)
	if errors.Is(err, errMasked) {
		return refuse(name, err)
	}
	if err != nil {
		return fmt.Errorf("unit %s: enabled: %w", name, err)
	}
	if found == nil {
		return refuse(name, errors.New("enabled: neither the config nor the base image has this unit; if the Containerfile installs it, begin that with FROM base, so that the config comes after it"))
	}
	asked, err := found.installation()
	if err != nil {
		return refuse(name, err)
	}
	for _, link := range asked.links {
		if err := b.addUnitLink(link); err != nil {
			return err
		}
	}
	for _, other := range asked.also {
		if err := b.enable(other, units, seen); err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) addUnitLink(link unitLink) error {
	e := newLink(link.path, link.target)
	at, err := locate(b.base, link.path, tar.TypeSymlink)
	if err != nil {
		return err
	}
	if old, exists := b.tree[at.resolved]; exists && old.target == e.target {
		return nil // WantedBy= names one target twice
	}
	return b.addAt(e)
}

// disable takes away the links that systemctl enable would have made in the
// base. Links in /usr are the vendor's: systemctl disable leaves them, too.
func (b *layerBuilder) disable(name string, units *unitSet, seen map[string]bool) error {
	if seen[name] {
		return nil
	}
	seen[name] = true
	found, err := units.find(name)
	if found == nil && err == nil || errors.Is(err, errMasked) {
		return nil // it is not enabled
	}
	if err != nil {
		return fmt.Errorf("unit %s: enabled: %w", name, err)
	}
	asked, err := found.installation()
	if err != nil {
		return nil // what cannot be enabled is not
	}
	for _, link := range asked.links {
		if err := b.removeUnitLink(link); err != nil {
			return fmt.Errorf("unit %s: enabled: %w", name, err)
		}
	}
	for _, other := range asked.also {
		if err := b.disable(other, units, seen); err != nil {
			return err
		}
	}
	return nil
}

func (b *layerBuilder) removeUnitLink(link unitLink) error {
	resolved, err := resolve(b.base, link.path)
	if err != nil {
		return err
	}
	found, err := b.base.Find(resolved)
	if err != nil {
		return err
	}
	if found != nil && found.Kind == tar.TypeSymlink {
		b.takenAway = append(b.takenAway, resolved)
	}
	return nil
}

// presetLines gives a line of systemd.preset(5) for every unit that the config
// enables or disables; the instances of a template share one.
func presetLines(units []types.Unit) string {
	var lines []string
	instances := map[string][]string{}
	for _, u := range units {
		prefix, instance, suffix := splitUnitName(u.Name)
		switch {
		case u.Enabled == nil || isTrue(u.Mask):
		case !*u.Enabled:
			lines = append(lines, "disable "+u.Name+"\n")
		case instance != "":
			template := prefix + "@" + suffix
			instances[template] = append(instances[template], instance)
		default:
			lines = append(lines, "enable "+u.Name+"\n")
		}
	}
	for template, names := range instances {
		slices.Sort(names)
		lines = append(lines, "enable "+template+" "+strings.Join(names, " ")+"\n")
	}
	slices.Sort(lines)
	return strings.Join(lines, "")
}

func isTrue(value *bool) bool { return value != nil && *value }

func hasText(text *string) bool { return text != nil && *text != "" }
