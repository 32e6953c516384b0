package pullsecret

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

func TestEntriesThatCannotBeUsedAreNamed(t *testing.T) {
	coded := func(text string) string { return base64.StdEncoding.EncodeToString([]byte(text)) }
	for sentence, test := range map[string]struct{ entry, mistake string }{
		"user and password":              {`{"auth":"` + coded("user:s3cret") + `"}`, ""},
		"a password with colons":         {`{"auth":"` + coded("user:s3:cret") + `","email":"a@example.com"}`, ""},
		"what a helper leaves behind":    {`{}`, ""},
		"a token, which needs no auth":   {`{"identitytoken":"s3cret"}`, ""},
		"no base64":                      {`{"auth":"!!!s3cret"}`, "not base64"},
		"no colon":                       {`{"auth":"` + coded("s3cret") + `"}`, "without a colon"},
		"user and password but not auth": {`{"username":"user","password":"s3cret"}`, `no "auth"`},
		"a text in place of an object":   {`"s3cret"`, "not a JSON object"},
		"a number in place of a text":    {`{"auth":3}`, "not a JSON object"},
	} {
		t.Run(sentence, func(t *testing.T) {
			err := Auths{"a.example.com": json.RawMessage(`{}`), "b.example.com:5000": json.RawMessage(test.entry)}.Check()
			if test.mistake == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if err == nil || !strings.Contains(err.Error(), test.mistake) || !strings.Contains(err.Error(), "entry for b.example.com:5000 ") {
				t.Fatalf("error %v, want the host and %q", err, test.mistake)
			}
			if strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), coded("s3cret")) {
				t.Errorf("the error shows content: %v", err)
			}
		})
	}
}

func TestTheEntryThatIsUsedForARepository(t *testing.T) {
	for repository, want := range map[string]string{
		"quay.example.com/team/os/worker": "quay.example.com/team/os",
		"quay.example.com/team/app":       "quay.example.com/team",
		"quay.example.com/other/app":      "quay.example.com",
		"old.example.com/os/worker":       "https://old.example.com/v1/",
		"docker.io/library/os":            "https://index.docker.io/v1/",
		"local.example.com:5000/os":       "local.example.com:5000",
		"local.example.com/os":            "",
		"part.example.com/b/os":           "", // its entry is for another path
		"none.example.com/os":             "",
	} {
		auths := Auths{
			"quay.example.com": nil, "quay.example.com/team": nil, "quay.example.com/team/os": nil, "local.example.com:5000": nil,
			"https://old.example.com/v1/": nil, "https://index.docker.io/v1/": nil, "part.example.com/a": nil,
		}
		if key, found := auths.EntryFor(repository); key != want || found != (want != "") {
			t.Errorf("%s: %q, %t; want %q", repository, key, found, want)
		}
	}
}
