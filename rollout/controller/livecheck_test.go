package controller

import (
	"encoding/base64"
	"encoding/pem"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// goodKey is a public key whose private one nobody has.
const goodKey = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"

// futureKey is one of a kind that is not known here.
var futureKey = "ssh-future " + base64.StdEncoding.EncodeToString([]byte("\x00\x00\x00\x0assh-future\x00\x00\x00\x01k"))

func keysFor(user string, keys ...string) *v1alpha1.LiveContent {
	return &v1alpha1.LiveContent{SSHAuthorizedKeys: []v1alpha1.AuthorizedKeys{{User: user, Keys: keys}}}
}

func fileAt(path, content string) *v1alpha1.LiveContent {
	return &v1alpha1.LiveContent{Files: []v1alpha1.LiveFile{{Path: path, Content: []byte(content)}}}
}

func TestWhatNoHostCouldUseIsNamed(t *testing.T) {
	const mirror = "/etc/containers/certs.d/mirror/"
	der := certificate(t, day)
	good := inPEM(der)
	broken := "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
	for name, test := range map[string]struct {
		live *v1alpha1.LiveContent
		want string // empty: nothing is wrong
	}{
		"nothing":                            {nil, ""},
		"a trust bundle of nonsense":         {&v1alpha1.LiveContent{TrustBundle: "nonsense"}, "spec.live.trustBundle holds no certificate in PEM"},
		"a bundle of a key":                  {&v1alpha1.LiveContent{TrustBundle: string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}))}, "spec.live.trustBundle holds no certificate in PEM"},
		"a bundle that is broken":            {&v1alpha1.LiveContent{TrustBundle: good + broken}, "spec.live.trustBundle holds a certificate that cannot be read: number 2"},
		"a bundle that is cut off":           {&v1alpha1.LiveContent{TrustBundle: good + good[:len(good)-40]}, "spec.live.trustBundle holds 2 blocks of PEM of which 1 cannot be read"},
		"a bundle with text between":         {&v1alpha1.LiveContent{TrustBundle: "# a\n" + good + "b\n" + good}, ""},
		"a bundle of nothing but lines":      {&v1alpha1.LiveContent{TrustBundle: "\n \n"}, ""},
		"a bundle in the form of OpenSSL":    {&v1alpha1.LiveContent{TrustBundle: string(pem.EncodeToMemory(&pem.Block{Type: "TRUSTED CERTIFICATE", Bytes: der}))}, ""},
		"one that Go is too strict for":      {&v1alpha1.LiveContent{TrustBundle: inPEM(withNegativeSerial(t, der))}, ""},
		"a key of nonsense":                  {keysFor("root", goodKey, "nonsense"), "spec.live.sshAuthorizedKeys[0].keys[1] (user root) is no SSH public key"},
		"a key that is cut off":              {keysFor("root", goodKey[:40]+" me@site"), "spec.live.sshAuthorizedKeys[0].keys[0] (user root) is no SSH public key"},
		"a key of another kind than it says": {keysFor("root", "ssh-rsa"+strings.TrimPrefix(goodKey, "ssh-ed25519")), "spec.live.sshAuthorizedKeys[0].keys[0] (user root) is no SSH public key"},
		"a key and a comment":                {keysFor("root", goodKey+" me@site\n", "# mine", ""), ""},
		"a key with options":                 {keysFor("root", `from="10.0.0.0/8",no-pty,command="a b" `+goodKey+" me@site"), ""},
		"a key of a kind that is not known":  {keysFor("root", futureKey, futureKey+" me@site", "restrict "+futureKey+" me@site"), ""},
		"an authority of a registry":         {fileAt(mirror+"ca.crt", good), ""},
		"one that is not in PEM":             {fileAt(mirror+"ca.crt", string(der)), "spec.live.files[0] (" + mirror + "ca.crt) holds no certificate in PEM"},
		"one for Docker":                     {fileAt("/etc/docker/certs.d/mirror/ca.crt", "x"), "spec.live.files[0] (/etc/docker/certs.d/mirror/ca.crt) holds no certificate in PEM"},
		"a file that is no authority":        {fileAt(mirror+"README", "x"), ""},
		"an anchor in DER":                   {fileAt("/etc/pki/ca-trust/source/anchors/site.crt", string(der)), ""},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if err := checkLive(test.live); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
		})
	}
}

// withNegativeSerial changes the serial number 1 into -1.
func withNegativeSerial(t *testing.T, der []byte) []byte {
	t.Helper()
	changed := strings.Replace(string(der), "\x02\x01\x01", "\x02\x01\xff", 1)
	if changed == string(der) || parseCertificates("", []byte(changed)) != nil {
		t.Fatal("it is not what this test is about")
	}
	return []byte(changed)
}

// TestLiveContentThatMakesNoSenseReachesNoNode: it is named at once, also under a pause,
// and the nodes keep what they have.
func TestLiveContentThatMakesNoSenseReachesNoNode(t *testing.T) {
	c := newCluster(t, 2)
	c.to(imageA)
	good := keysFor("core", goodKey)
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Live = good })
	c.settle()
	hash, _ := good.Hash()
	for _, isPaused := range []bool{false, true} {
		c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) {
			s.Paused, s.Live = isPaused, &v1alpha1.LiveContent{TrustBundle: "nonsense", SSHAuthorizedKeys: keysFor("root", "nonsense").SSHAuthorizedKeys}
		})
		c.addNode()
		c.rounds(3)
		got := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionDegraded)
		if got.Status != metav1.ConditionTrue || got.Reason != "LiveInvalid" ||
			!strings.Contains(got.Message, "spec.live.trustBundle") || !strings.Contains(got.Message, "spec.live.sshAuthorizedKeys[0].keys[0]") {
			t.Errorf("paused %v: Degraded is %s, %s: %s", isPaused, got.Status, got.Reason, got.Message)
		}
		for node, want := range map[string]string{"worker-1": hash, "worker-2": hash, "worker-3": ""} {
			if image := c.image(node); image != nil && image.Spec.LiveHash != want {
				t.Errorf("paused %v: %s is told of %q, want %q", isPaused, node, image.Spec.LiveHash, want)
			}
		}
	}
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused, s.Live = false, good })
	c.settle()
	if got := meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionDegraded); got.Status != metav1.ConditionFalse {
		t.Errorf("mended: Degraded is %s, %s: %s", got.Status, got.Reason, got.Message)
	}
	if got := c.image("worker-3").Spec.LiveHash; got != hash {
		t.Errorf("mended: a new node is told of %q, want %q", got, hash)
	}
}
