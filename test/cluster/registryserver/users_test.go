package main

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/distribution/distribution/v3/registry/auth"
	"golang.org/x/crypto/bcrypt"
)

func TestOnlyPushersDoMoreThanPull(t *testing.T) {
	hash, err := bcrypt.GenerateFromPassword([]byte("password"), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	passwords := filepath.Join(t.TempDir(), "htpasswd")
	if err := os.WriteFile(passwords, []byte("pusher:"+string(hash)+"\npuller:"+string(hash)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	controller, err := newUsers(map[string]any{"realm": "test", "path": passwords, "pushers": []any{"pusher"}})
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		user, password string
		actions        []string
		isRefused      bool
	}{
		"a pusher pushes":             {"pusher", "password", []string{"pull", "push"}, false},
		"a pusher deletes":            {"pusher", "password", []string{"delete"}, false},
		"a puller pulls":              {"puller", "password", []string{"pull"}, false},
		"a puller looks at /v2/":      {"puller", "password", nil, false},
		"a puller does not push":      {"puller", "password", []string{"pull", "push"}, true},
		"a puller does not delete":    {"puller", "password", []string{"delete"}, true},
		"a wrong password is refused": {"pusher", "guessed", []string{"pull"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://registry/v2/", nil)
			if err != nil {
				t.Fatal(err)
			}
			request.SetBasicAuth(test.user, test.password)
			var wanted []auth.Access
			for _, action := range test.actions {
				wanted = append(wanted, auth.Access{Resource: auth.Resource{Type: "repository", Name: "os/worker"}, Action: action})
			}
			_, err = controller.Authorized(request, wanted...)
			var challenge auth.Challenge
			if errors.As(err, &challenge) != test.isRefused || err != nil && !test.isRefused {
				t.Errorf("error %v, want a refusal: %t", err, test.isRefused)
			}
		})
	}
	if _, err := newUsers(map[string]any{"realm": "test", "path": passwords}); err == nil {
		t.Error("a list of pushers is not asked for")
	}
}
