package pullsecret

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Check refuses credentials that cannot be used. Whoever reads them passes such an
// entry over, and the registry then asks for credentials that seem to be there. An
// entry without any is taken: docker leaves one behind where a helper has them. The
// error names the registry and shows no content.
func (a Auths) Check() error {
	for _, registry := range slices.Sorted(maps.Keys(a)) {
		if mistake := mistakeIn(a[registry]); mistake != "" {
			return fmt.Errorf("its entry for %s %s; write base64 of user:password there, as in the output of: "+
				"kubectl create secret docker-registry NAME --docker-server=%s --docker-username=USER --docker-password=PASSWORD",
				registry, mistake, registry)
		}
	}
	return nil
}

// mistakeIn says what is wrong with an entry; "": nothing.
func mistakeIn(raw json.RawMessage) string {
	var entry struct{ Auth, Username, Password string }
	if json.Unmarshal(raw, &entry) != nil {
		return "is not a JSON object with texts in it"
	}
	decoded, err := base64.StdEncoding.DecodeString(entry.Auth)
	switch {
	case err != nil:
		return `has an "auth" that is not base64`
	case len(decoded) > 0 && !strings.Contains(string(decoded), ":"):
		return `has an "auth" without a colon between user and password`
	case len(decoded) == 0 && (entry.Username != "" || entry.Password != ""):
		return `has a user or a password, but no "auth"`
	}
	return ""
}

// EntryFor is the key of the entry that is used for a repository,
// host[:port]/path: that of the repository itself, else of the nearest path above
// it, else of the host, however that is written. found is false when there is none.
func (a Auths) EntryFor(repository string) (key string, found bool) {
	for key = repository; ; {
		if _, found := a[key]; found {
			return key, true
		}
		end := strings.LastIndexByte(key, '/')
		if end < 0 {
			break
		}
		key = key[:end]
	}
	host := hostOf(repository)
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if isURL := strings.Contains(key, "://"); (isURL || !strings.Contains(key, "/")) && hostOf(key) == host {
			return key, true
		}
	}
	return "", false
}

// hostOf is the host, with its port, of a repository or of an entry's key, which
// may be the URL that docker login was given.
func hostOf(name string) string {
	if _, rest, isURL := strings.Cut(name, "://"); isURL {
		name = rest
	}
	host, _, _ := strings.Cut(name, "/")
	if host == "docker.io" || host == "registry-1.docker.io" {
		return "index.docker.io" // docker writes that
	}
	return host
}
