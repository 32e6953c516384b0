package imports

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/mod/modfile"
)

const module = "github.com/imagemode/imagemode"

// rule says what the packages below a folder must not import, neither directly
// nor through other packages of this module.
type rule struct {
	folder    string
	forbidden []string
	why       string
}

// buildah is the library that only the builder links: it wants cgo and a user
// namespace.
const buildah = "go.podman.io/buildah"

var rules = []rule{
	{"controllers", []string{module + "/rollout", module + "/builder", buildah}, "the build half ends with a digest"},
	{"rollout", []string{module + "/controllers", module + "/builder", buildah}, "a rollout takes any digest, whoever built it"},
	{"builder/request", []string{module}, "it is the leaf that both halves of a build share"},
	{"builder", []string{module + "/controllers", module + "/rollout", module + "/api/v1alpha1", "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, "a builder pod has no way to the API server"},
	{"ignition", []string{module, "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, "it is pure"},
	{"registry", []string{module, "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, "it is pure but for the registry"},
	{"containerfiles", []string{module, "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, "it is pure"},
	{"controllers/osimagestream/streams", []string{"k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, "it is pure"},
	{"api", []string{module, "k8s.io/client-go", "sigs.k8s.io/controller-runtime"}, "API types depend on apimachinery only"},
}

// exceptions are packages that a rule's forbidden prefix covers and that may be
// imported nevertheless: the contract between controllers and builder, with the
// failure classes that registry answers with. It imports nothing of this module.
var exceptions = []string{module + "/builder/request"}

func TestEveryFolderImportsOnlyWhatItMay(t *testing.T) {
	graph := readImports(t)
	if len(graph) == 0 {
		t.Fatal("no package found")
	}
	for _, rule := range rules {
		for _, from := range packagesBelow(graph, rule.folder) {
			for _, path := range reachable(graph, from) {
				if isForbidden(rule, path[len(path)-1]) {
					t.Errorf("%s must not import %s (%s), but does: %s", rule.folder, path[len(path)-1], rule.why, strings.Join(path, " → "))
				}
			}
		}
	}
}

func isForbidden(rule rule, imported string) bool {
	if slices.Contains(exceptions, imported) || isBelow(imported, module+"/"+rule.folder) {
		return false
	}
	return slices.ContainsFunc(rule.forbidden, func(forbidden string) bool { return isBelow(imported, forbidden) })
}

func isBelow(path, folder string) bool {
	return path == folder || strings.HasPrefix(path, folder+"/")
}

// reachable returns, for every import of a package, direct or through packages
// of this module, the shortest way to it.
func reachable(graph map[string][]string, from string) [][]string {
	seen := map[string]bool{from: true}
	ways := [][]string{{from}}
	for next := 0; next < len(ways); next++ {
		way := ways[next]
		for _, imported := range graph[way[len(way)-1]] {
			if !seen[imported] {
				seen[imported] = true
				ways = append(ways, append(slices.Clone(way), imported))
			}
		}
	}
	return ways[1:]
}

func packagesBelow(graph map[string][]string, folder string) []string {
	var found []string
	for path := range graph {
		if isBelow(path, module+"/"+folder) {
			found = append(found, path)
		}
	}
	slices.Sort(found)
	return found
}

// readImports returns the imports of every package of the module, those of its
// tests left out.
func readImports(t *testing.T) map[string][]string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	graph := map[string][]string{}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			return skipDirectory(root, path, entry)
		}
		if strings.HasSuffix(path, ".go") && !strings.HasSuffix(path, "_test.go") {
			return addImports(graph, root, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return graph
}

// skipDirectory leaves out hidden directories and other modules.
func skipDirectory(root, path string, entry fs.DirEntry) error {
	if path == root {
		return nil
	}
	if strings.HasPrefix(entry.Name(), ".") {
		return filepath.SkipDir
	}
	if _, err := os.Stat(filepath.Join(path, "go.mod")); err == nil {
		return filepath.SkipDir
	}
	return nil
}

func addImports(graph map[string][]string, root, path string) error {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
	if err != nil {
		return err
	}
	relative, err := filepath.Rel(root, filepath.Dir(path))
	if err != nil {
		return err
	}
	from := module + "/" + filepath.ToSlash(relative)
	graph[from] = append(graph[from], []string{}...)
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return err
		}
		graph[from] = append(graph[from], imported)
	}
	return nil
}

// TestBothModulesUseTheSameVersions keeps the compile of a fresh machine short:
// what this module and the local cluster's share at one version is compiled once.
func TestBothModulesUseTheSameVersions(t *testing.T) {
	ours, clusters := requirements(t, "../../go.mod"), requirements(t, "../cluster/go.mod")
	for path, version := range clusters {
		if other, shared := ours[path]; shared && other != version && !apart[path] {
			t.Errorf("%s: go.mod requires %s, test/cluster/go.mod %s: require the newer one in both", path, other, version)
		}
	}
}

// apart are modules that cannot have one version: Kubernetes replaces its own,
// and runc does not compile with the builder's cgroups.
var apart = map[string]bool{
	"k8s.io/apiextensions-apiserver":    true,
	"github.com/opencontainers/cgroups": true,
}

func requirements(t *testing.T, file string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := modfile.Parse(file, content, nil)
	if err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, require := range parsed.Require {
		versions[require.Mod.Path] = require.Mod.Version
	}
	return versions
}
