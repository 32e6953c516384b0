package controller

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

const hour, day = time.Hour, 24 * time.Hour

// certificate is one that is valid for so long from start on, in DER.
func certificate(t *testing.T, valid time.Duration) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "sitesecret"}, NotBefore: start.Add(-365 * day), NotAfter: start.Add(valid),
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func inPEM(ders ...[]byte) string {
	var text strings.Builder
	for _, der := range ders {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	}
	return text.String()
}

func TestWhatOfTheLiveContentWaits(t *testing.T) {
	soon, late, old := certificate(t, 3*day), certificate(t, 300*day), certificate(t, -day)
	const mirror, anchor = "/etc/containers/certs.d/mirror/ca.crt", "/etc/pki/ca-trust/source/anchors/site.crt"
	has := func(hash string) func(*Node) { return func(n *Node) { n.Image.Spec.LiveHash = hash } }
	nodes := []Node{newNode(1, has("before")), newNode(2, has("before")), newNode(3, noImage)}
	for name, test := range map[string]struct {
		live *v1alpha1.LiveContent
		want string
	}{
		"keys alone":                      {keysFor("core", goodKey), "a change of spec.live waits for 2 of 3 nodes"},
		"nothing is in it any more":       {nil, "a change of spec.live waits for 2 of 3 nodes"},
		"a trust bundle":                  {&v1alpha1.LiveContent{TrustBundle: "# site\n" + inPEM(late, soon)}, "a change of spec.live waits for 2 of 3 nodes: of the certificates in it (2) the next expires at 2026-05-04T12:00:00Z (spec.live.trustBundle)"},
		"a file that expires first":       {&v1alpha1.LiveContent{TrustBundle: inPEM(late), Files: []v1alpha1.LiveFile{{Path: mirror, Content: []byte(inPEM(soon))}}}, "a change of spec.live waits for 2 of 3 nodes: of the certificates in it (2) the next expires at 2026-05-04T12:00:00Z (" + mirror + ")"},
		"one that is not in PEM":          {fileAt(anchor, string(soon)), "a change of spec.live waits for 2 of 3 nodes: of the certificates in it (1) the next expires at 2026-05-04T12:00:00Z (" + anchor + ")"},
		"some have expired":               {&v1alpha1.LiveContent{TrustBundle: inPEM(old, late)}, "a change of spec.live waits for 2 of 3 nodes: of the certificates in it (2, 1 expired) the next expires at 2027-02-25T12:00:00Z (spec.live.trustBundle)"},
		"all have":                        {&v1alpha1.LiveContent{TrustBundle: inPEM(old)}, "a change of spec.live waits for 2 of 3 nodes: the certificates in it (1) have all expired"},
		"none that can be read":           {fileAt(anchor, "x"), "a change of spec.live waits for 2 of 3 nodes"},
		"nonsense: Degraded says it all":  {&v1alpha1.LiveContent{TrustBundle: "nonsense"}, ""},
		"too large: Degraded says it all": {&v1alpha1.LiveContent{TrustBundle: strings.Repeat("x", v1alpha1.MaxLiveBytes)}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			scope := newScope(nodes, paused, func(s *Scope) { s.Rollout.Spec.Live = test.live })
			if got := liveWaits(scope); got != test.want {
				t.Errorf("got  %q\nwant %q", got, test.want)
			}
			hash, err := test.live.Hash()
			if err != nil {
				return
			}
			told := newScope([]Node{newNode(1, has(hash)), newNode(2, has(hash)), newNode(3, noImage)}, paused, func(s *Scope) { s.Rollout.Spec.Live = test.live })
			if got := liveWaits(told); got != "" {
				t.Errorf("nodes that were told of it: %q", got)
			}
		})
	}
}

// TestAPauseSaysWhichCertificatesWait: with the change and until it has reached the nodes,
// without a write in between.
func TestAPauseSaysWhichCertificatesWait(t *testing.T) {
	c := newCluster(t, 2)
	bundle := inPEM(certificate(t, 30*day))
	c.to(imageA)
	c.settle()
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = true })
	c.rounds(2)
	message := func() string {
		return meta.FindStatusCondition(c.rollout().Status.Conditions, v1alpha1.ConditionPaused).Message
	}
	if got := message(); got != "spec.paused is true" {
		t.Errorf("without a change: %q", got)
	}
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Live = &v1alpha1.LiveContent{TrustBundle: bundle} })
	c.rounds(3)
	const waits = "a change of spec.live waits for 2 of 2 nodes: of the certificates in it (1) the next expires at 2026-05-31T12:00:00Z (spec.live.trustBundle)"
	if got := message(); got != "spec.paused is true; "+waits {
		t.Errorf("after it: %q", got)
	}
	before := c.writes
	c.now = c.now.Add(hour)
	c.rounds(5)
	if c.writes != before {
		t.Errorf("%d writes although nothing has changed", c.writes-before)
	}
	c.now = c.now.Add(8 * day)
	c.rounds(2)
	if got := message(); !strings.Contains(got, "for 8 days") || !strings.HasSuffix(got, waits) || strings.Contains(got, "sitesecret") {
		t.Errorf("after 8 days: %q", got)
	}
	c.changeRollout(func(s *v1alpha1.ImageRolloutSpec) { s.Paused = false })
	c.settle()
	if got := message(); got != "" {
		t.Errorf("released: %q", got)
	}
	hash, _ := c.rollout().Spec.Live.Hash()
	if image := c.image("worker-1"); image.Spec.LiveHash != hash {
		t.Errorf("the nodes are told of %q, want %q", image.Spec.LiveHash, hash)
	}
}
