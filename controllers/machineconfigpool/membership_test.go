package machineconfigpool

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/machineconfiguration"
	"github.com/imagemode/imagemode/test/builders"
)

// selecting gives a pool another node selector.
func selecting(selector *metav1.LabelSelector) func(*mcfgv1.MachineConfigPool) {
	return func(pool *mcfgv1.MachineConfigPool) { pool.Spec.NodeSelector = selector }
}

// unreadable does not parse.
var unreadable = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "a", Operator: "Near"}}}

// withLabel selects nodes that have a label with an empty value.
func withLabel(key string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: ""}}
}

func poolsOf(pools ...*mcfgv1.MachineConfigPool) []mcfgv1.MachineConfigPool {
	var list []mcfgv1.MachineConfigPool
	for _, pool := range pools {
		list = append(list, *pool)
	}
	return list
}

func TestPoolOfNode(t *testing.T) {
	const cp = "node-role.kubernetes.io/control-plane"
	isGoing := func(pool *mcfgv1.MachineConfigPool) { pool.DeletionTimestamp = &metav1.Time{} }
	all := poolsOf(builders.MachineConfigPool("worker"), builders.MachineConfigPool("master"),
		builders.MachineConfigPool("infra"), builders.MachineConfigPool("gpu"))
	for name, tc := range map[string]struct {
		pools []mcfgv1.MachineConfigPool
		roles []string
		want  membership
	}{
		"a worker":                                {all, []string{"worker"}, membership{pool: "worker"}},
		"a control-plane node":                    {all, []string{"master"}, membership{pool: "master"}},
		"control plane comes before worker":       {all, []string{"worker", "master"}, membership{pool: "master"}},
		"a custom pool comes before worker":       {all, []string{"worker", "infra"}, membership{pool: "infra"}},
		"and before control plane":                {all, []string{"master", "infra"}, membership{pool: "infra"}},
		"two custom pools are named, in order":    {all, []string{"worker", "infra", "gpu"}, membership{contested: []string{"gpu", "infra"}}},
		"a node of no pool":                       {all, []string{"other"}, membership{}},
		"no pools at all":                         {nil, []string{"worker"}, membership{}},
		"an empty selector selects no node":       {poolsOf(builders.MachineConfigPool("infra", selecting(&metav1.LabelSelector{}))), []string{"worker"}, membership{}},
		"nor does a missing one":                  {poolsOf(builders.MachineConfigPool("infra", selecting(nil))), []string{"worker"}, membership{}},
		"a pool named control-plane is one":       {poolsOf(builders.MachineConfigPool("control-plane"), builders.MachineConfigPool("worker")), []string{"worker", "control-plane"}, membership{pool: "control-plane"}},
		"so is a pool that asks for the role":     {poolsOf(builders.MachineConfigPool("cp", selecting(withLabel(cp))), builders.MachineConfigPool("infra")), []string{"control-plane", "infra"}, membership{pool: "infra"}},
		"a pool that is deleted lets go":          {poolsOf(builders.MachineConfigPool("infra", isGoing), builders.MachineConfigPool("worker")), []string{"worker", "infra"}, membership{pool: "worker"}},
		"the arbiter belongs to its pool":         {poolsOf(builders.MachineConfigPool("arbiter"), builders.MachineConfigPool("worker")), []string{"arbiter", "worker"}, membership{pool: "arbiter"}},
		"a selector that does not parse has none": {poolsOf(builders.MachineConfigPool("infra", selecting(unreadable))), []string{"infra"}, membership{}},
	} {
		t.Run(name, func(t *testing.T) {
			nodeLabels := labels.Set{}
			for _, role := range tc.roles {
				nodeLabels[builders.NodeRolePrefix+role] = ""
			}
			got := claimsOf(tc.pools).poolOf(nodeLabels)
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(membership{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestRoleOfPool(t *testing.T) {
	expression := func(operator metav1.LabelSelectorOperator) func(*mcfgv1.MachineConfigPool) {
		return selecting(&metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "node-role.kubernetes.io/control-plane", Operator: operator},
		}})
	}
	for name, tc := range map[string]struct {
		pool *mcfgv1.MachineConfigPool
		want role
	}{
		"worker":                                 {builders.MachineConfigPool("worker"), worker},
		"master":                                 {builders.MachineConfigPool("master"), controlPlane},
		"arbiter":                                {builders.MachineConfigPool("arbiter"), controlPlane},
		"any other name":                         {builders.MachineConfigPool("infra"), custom},
		"a selector that asks for control plane": {builders.MachineConfigPool("cp", expression(metav1.LabelSelectorOpExists)), controlPlane},
		"a selector that excludes it":            {builders.MachineConfigPool("infra", expression(metav1.LabelSelectorOpDoesNotExist)), custom},
	} {
		t.Run(name, func(t *testing.T) {
			if got := roleOf(tc.pool); got != tc.want {
				t.Errorf("role = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestMembersOfPool(t *testing.T) {
	labelled := func(pool string) func(*corev1.Node) {
		return builders.Labelled(machineconfiguration.LabelNodePool, pool)
	}
	role := func(name string) func(*corev1.Node) { return builders.Labelled(builders.NodeRolePrefix+name, "") }
	pools := poolsOf(builders.MachineConfigPool("worker"), builders.MachineConfigPool("infra"), builders.MachineConfigPool("gpu"))
	nodes := []corev1.Node{
		*builders.Node("plain", "worker"),
		*builders.Node("moved", "worker", role("infra"), labelled("worker")),
		*builders.Node("contested-worker", "worker", role("infra"), role("gpu"), labelled("worker")),
		*builders.Node("contested-infra", "worker", role("infra"), role("gpu"), labelled("infra")),
		*builders.Node("left", "other", labelled("infra")),
	}
	both := []string{"gpu", "infra"}
	contests := []contest{{"contested-worker", both}, {"contested-infra", both}}
	for name, tc := range map[string]struct {
		pool     string
		members  []string
		contests []contest
	}{
		"worker has its own, and a contested node with its label": {"worker", []string{"plain", "contested-worker"}, nil},
		"infra has what moved to it, and names what is contested": {"infra", []string{"moved", "contested-infra"}, contests},
		"gpu has none, and names them too":                        {"gpu", nil, contests},
	} {
		t.Run(name, func(t *testing.T) {
			members, contests := claimsOf(pools).membersOf(tc.pool, nodes)
			var names []string
			for _, member := range members {
				names = append(names, member.Name)
			}
			if diff := cmp.Diff(tc.members, names); diff != "" {
				t.Errorf("members: %s", diff)
			}
			if diff := cmp.Diff(tc.contests, contests, cmp.AllowUnexported(contest{})); diff != "" {
				t.Errorf("contests: %s", diff)
			}
		})
	}
}

func TestRememberedClaimsFollowThePools(t *testing.T) {
	node := labels.Set{"a": "1"}
	pool := func(name string, generation int64, key string) mcfgv1.MachineConfigPool {
		made := *builders.MachineConfigPool(name)
		made.UID, made.Generation = types.UID(name), generation
		made.Spec.NodeSelector = &metav1.LabelSelector{MatchLabels: map[string]string{key: "1"}}
		return made
	}
	gone := pool("one", 3, "a")
	gone.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
	anew := pool("one", 1, "a")
	anew.UID = "another"
	var book claimBook
	for _, look := range []struct {
		what  string
		pools []mcfgv1.MachineConfigPool
		want  string
	}{
		{"at first", []mcfgv1.MachineConfigPool{pool("one", 1, "a"), pool("two", 1, "b")}, "one"},
		{"in another order", []mcfgv1.MachineConfigPool{pool("two", 1, "b"), pool("one", 1, "a")}, "one"},
		{"with other selectors", []mcfgv1.MachineConfigPool{pool("one", 2, "b"), pool("two", 2, "a")}, "two"},
		{"without one", []mcfgv1.MachineConfigPool{pool("one", 2, "b")}, ""},
		{"one that goes", []mcfgv1.MachineConfigPool{gone}, ""},
		{"one that was made anew", []mcfgv1.MachineConfigPool{anew}, "one"},
	} {
		if got := book.of(look.pools).poolOf(node).pool; got != look.want {
			t.Errorf("%s: the node belongs to %q, want %q", look.what, got, look.want)
		}
	}
}

// TestAPoolKeepsItsNodesUnderASelectorThatDoesNotParse: a slip of the pen takes no
// node away, and wins none.
func TestAPoolKeepsItsNodesUnderASelectorThatDoesNotParse(t *testing.T) {
	pools := poolsOf(builders.MachineConfigPool("worker"), builders.MachineConfigPool("infra", selecting(unreadable)))
	node := func(name, pool string) corev1.Node {
		return *builders.Node(name, "worker", builders.Labelled(machineconfiguration.LabelNodePool, pool))
	}
	nodes := []corev1.Node{node("a", "infra"), node("b", "worker")}
	for pool, want := range map[string]string{"infra": "a", "worker": "b"} {
		members, contests := claimsOf(pools).membersOf(pool, nodes)
		if len(members) != 1 || members[0].Name != want || len(contests) != 0 {
			t.Errorf("pool %s has %v, contests %v", pool, members, contests)
		}
	}
	scope := &scope{pool: &pools[1], streams: streamsObject()}
	if _, err := scope.render(); reasonOf(err) != reasonInvalidSelector || !strings.Contains(err.Error(), "spec.nodeSelector of MachineConfigPool infra") {
		t.Errorf("error %v", err)
	}
}
