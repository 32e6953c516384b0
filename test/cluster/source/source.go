// Package source finds the checkout the cluster's programs are compiled from.
package source

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// modulePath is what the checkout's go.mod says.
const modulePath = "github.com/imagemode/imagemode"

// Tags are the build tags of the checkout's programs: they leave out what would
// need further C libraries.
var Tags = []string{"exclude_graphdriver_btrfs", "containers_image_openpgp"}

// Find returns the checkout that dir is in.
func Find(dir string) (string, error) {
	for current := dir; ; current = filepath.Dir(current) {
		if declares(filepath.Join(current, "go.mod"), modulePath) {
			return current, nil
		}
		if current == filepath.Dir(current) {
			return "", fmt.Errorf("%s is not inside a checkout of %s: change there or use --source", dir, modulePath)
		}
	}
}

// ClusterModule is the directory of the local cluster's own module.
func ClusterModule(root string) string {
	return filepath.Join(root, "test", "cluster")
}

func declares(file, path string) bool {
	content, err := os.Open(file)
	if err != nil {
		return false
	}
	defer content.Close()
	for lines := bufio.NewScanner(content); lines.Scan(); {
		if fields := strings.Fields(lines.Text()); len(fields) == 2 && fields[0] == "module" {
			return fields[1] == path
		}
	}
	return false
}
