package main

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/distribution/distribution/v3/registry/auth"
	_ "github.com/distribution/distribution/v3/registry/auth/htpasswd"
)

func init() {
	if err := auth.Register("users", newUsers); err != nil {
		panic(err)
	}
}

// users is distribution's htpasswd with rights: whoever is not among the pushers
// may only pull. Its options are those of htpasswd (realm, path) and pushers, a
// list of names.
type users struct {
	passwords auth.AccessController
	realm     string
	pushers   []string
}

func newUsers(options map[string]any) (auth.AccessController, error) {
	passwords, err := auth.GetAccessController("htpasswd", options)
	if err != nil {
		return nil, err
	}
	names, ok := options["pushers"].([]any)
	if !ok {
		return nil, fmt.Errorf("auth.users.pushers must be a list of user names, not %v", options["pushers"])
	}
	controller := &users{passwords: passwords, realm: fmt.Sprint(options["realm"])}
	for _, name := range names {
		controller.pushers = append(controller.pushers, fmt.Sprint(name))
	}
	return controller, nil
}

// Authorized checks the password, and then what the request wants to do.
func (u *users) Authorized(request *http.Request, wanted ...auth.Access) (*auth.Grant, error) {
	grant, err := u.passwords.Authorized(request, wanted...)
	if err != nil || slices.Contains(u.pushers, grant.User.Name) {
		return grant, err
	}
	for _, access := range wanted {
		if access.Action != "pull" {
			return nil, denied{realm: u.realm, user: grant.User.Name, access: access}
		}
	}
	return grant, nil
}

// denied is answered as 401, as a registry with a token server does it: this
// credential is not enough.
type denied struct {
	realm, user string
	access      auth.Access
}

func (d denied) SetHeaders(_ *http.Request, w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", fmt.Sprintf("Basic realm=%q", d.realm))
}

func (d denied) Error() string {
	return fmt.Sprintf("user %s may pull, but not %s %s %s", d.user, d.access.Action, d.access.Type, d.access.Name)
}
