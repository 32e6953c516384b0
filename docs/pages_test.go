// Package docs checks what the documentation says about the code.
package docs

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	nameOfTest = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	testFunc   = regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(`)
	// folderOfTest is a folder before the names of its tests.
	folderOfTest = regexp.MustCompile("`([a-z0-9/-]+)`: ")
)

// pages are those whose tables name tests in their last column: by the beginnings
// of their sections, the folder that tests without one are in.
var pages = map[string]struct {
	folders map[string]string
	rows    int
}{
	"failure-modes.md": {map[string]string{"The node": "rollout/agent", "The cluster": "rollout/controller"}, 40},
	"builds.md": {map[string]string{
		"What users do": "controllers/machineosbuild", "What goes wrong": "controllers/machineosbuild", "Images in the registry": "controllers/machineosbuild",
		"Known traps of such builders, and what happens here": "controllers/machineosbuild",
	}, 115},
	"streams.md": {map[string]string{
		"Discovery and sources": "controllers/osimagestream", "Inspection and what is kept": "controllers/osimagestream",
		"Defaults": "controllers/osimagestream/streams", "What a pool runs": "controllers/machineconfigpool", "Guards": "controllers/machineconfigpool",
		"Control planes outside of the cluster": "controllers/osimagestream", "Hosted node pools": "controllers/nodepool", "Bad input": "controllers/osimagestream",
	}, 80},
}

// TestThePagesNameTestsThatExist: each row has a test, and each test that is named
// is in the folder that is named.
func TestThePagesNameTestsThatExist(t *testing.T) {
	folders := testsByFolder(t)
	for name, page := range pages {
		t.Run(name, func(t *testing.T) {
			content, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			folder, rows := "", 0
			for line := range strings.Lines(string(content)) {
				if section, isSection := strings.CutPrefix(strings.TrimSpace(line), "## "); isSection {
					folder = page.folders[section]
				}
				cells := strings.Split(strings.Trim(line, "|\n"), "|")
				if folder == "" || !strings.HasPrefix(line, "| ") || isHeader(cells) {
					continue
				}
				rows++
				checkRow(t, folders, folder, strings.TrimSpace(cells[0]), cells[len(cells)-1])
			}
			if rows < page.rows {
				t.Errorf("%d rows were found: has the page another form?", rows)
			}
		})
	}
}

func isHeader(cells []string) bool { return strings.HasPrefix(cells[len(cells)-1], " test") }

// checkRow reads the tests of a row: those without a folder are in the section's.
func checkRow(t *testing.T, folders map[string]map[string]bool, folder, failure, cell string) {
	t.Helper()
	found := 0
	for _, part := range strings.Split(cell, ";") {
		in := folder
		if named := folderOfTest.FindStringSubmatch(part); named != nil {
			in = named[1]
		}
		for _, name := range nameOfTest.FindAllStringSubmatch(part, -1) {
			found++
			if !folders[in][name[1]] {
				t.Errorf("%s: %s is not in %s", failure, name[1], in)
			}
		}
	}
	if found == 0 {
		t.Errorf("%s: no test is named", failure)
	}
}

func testsByFolder(t *testing.T) map[string]map[string]bool {
	t.Helper()
	folders := map[string]map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		folder, err := filepath.Rel("..", filepath.Dir(path))
		if err != nil {
			return err
		}
		for _, name := range testFunc.FindAllStringSubmatch(string(content), -1) {
			if folders[folder] == nil {
				folders[folder] = map[string]bool{}
			}
			folders[folder][name[1]] = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return folders
}
