package machineconfigpool

import (
	"slices"
	"strings"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/imagemode/imagemode/api/machineconfiguration"
)

// membership is the answer to whose a node is.
type membership struct {
	// pool that the node belongs to; empty: to none, or it is contested.
	pool string
	// contested names the custom pools that select the node, sorted, when
	// there is more than one: the node then stays where its label says it is.
	contested []string
}

// claim is a pool with its node selector, parsed once for many nodes.
type claim struct {
	pool     string
	role     role
	selector labels.Selector
}

// keeps selects the nodes that have a pool's label.
func keeps(pool string) labels.Selector { return labels.SelectorFromSet(nodesOf(pool).MatchLabels) }

// claims are the pools that can have nodes, sorted by name.
type claims []claim

// claimsOf parses the node selectors of pools. A pool without a selector, or with an
// empty one, selects nothing: an empty selector taken literally would move every node
// of the cluster. One that does not parse selects the nodes that the pool has: a slip
// of the pen must not take them away. Pools that are being deleted let their nodes go.
func claimsOf(pools []mcfgv1.MachineConfigPool) claims {
	var answer claims
	for i := range pools {
		if claim, isOne := claimOf(&pools[i]); isOne {
			answer = append(answer, claim)
		}
	}
	slices.SortFunc(answer, func(a, b claim) int { return strings.Compare(a.pool, b.pool) })
	return answer
}

// claimOf is what one pool claims, if it does.
func claimOf(pool *mcfgv1.MachineConfigPool) (claim, bool) {
	if pool.DeletionTimestamp != nil {
		return claim{}, false
	}
	selector, err := metav1.LabelSelectorAsSelector(pool.Spec.NodeSelector)
	if err != nil {
		selector = keeps(pool.Name)
	}
	if selector.Empty() {
		return claim{}, false
	}
	return claim{pool: pool.Name, role: roleOf(pool), selector: selector}, true
}

// claimBook remembers the claims of the pools that it was asked about last: each
// event of a node asks for those of hundreds, and a selector is seldom another. It
// is safe for concurrent use.
type claimBook struct {
	mutex sync.Mutex
	// known are the versions of the pools, by name, that all was made of.
	known map[string]selectionVersion
	all   claims
}

// of is claimsOf; a nil book remembers nothing. The answer is shared, and must not be
// changed.
func (b *claimBook) of(pools []mcfgv1.MachineConfigPool) claims {
	if b == nil {
		return claimsOf(pools)
	}
	b.mutex.Lock()
	defer b.mutex.Unlock()
	isSame := len(pools) == len(b.known)
	for i := 0; isSame && i < len(pools); i++ {
		isSame = b.known[pools[i].Name] == versionOf(&pools[i])
	}
	if isSame {
		return b.all
	}
	b.known, b.all = make(map[string]selectionVersion, len(pools)), claimsOf(pools)
	for i := range pools {
		b.known[pools[i].Name] = versionOf(&pools[i])
	}
	return b.all
}

// selectionVersion changes with a pool's spec and its deletion, not with its status.
type selectionVersion struct {
	uid        types.UID
	generation int64
	isGoing    bool
}

func versionOf(pool *mcfgv1.MachineConfigPool) selectionVersion {
	return selectionVersion{pool.UID, pool.Generation, pool.DeletionTimestamp != nil}
}

// poolOf says which pool a node with these labels belongs to: the custom pool
// that selects it, else the control-plane pool, else the worker pool.
func (c claims) poolOf(nodeLabels labels.Set) membership {
	var byRole [worker + 1][]string
	for _, claim := range c {
		if claim.selector.Matches(nodeLabels) {
			byRole[claim.role] = append(byRole[claim.role], claim.pool)
		}
	}
	if len(byRole[custom]) > 1 {
		return membership{contested: byRole[custom]}
	}
	for _, pools := range byRole {
		if len(pools) > 0 {
			return membership{pool: pools[0]}
		}
	}
	return membership{}
}

// contest is a node that several custom pools claim.
type contest struct {
	node  string
	pools []string
}

// membersOf returns the nodes of one pool and the contested nodes that it
// claims. A contested node stays with the pool whose label it carries, since
// that pool's rollout still selects it.
func (c claims) membersOf(pool string, nodes []corev1.Node) (members []*corev1.Node, contests []contest) {
	own := slices.IndexFunc(c, func(claim claim) bool { return claim.pool == pool })
	label := machineconfiguration.PoolLabelValue(pool)
	for i := range nodes {
		node := &nodes[i]
		isLabelled := node.Labels[machineconfiguration.LabelNodePool] == label
		isSelected := own >= 0 && c[own].selector.Matches(labels.Set(node.Labels))
		if !isSelected && !isLabelled {
			continue
		}
		answer := c.poolOf(node.Labels)
		if isSelected && slices.Contains(answer.contested, pool) {
			contests = append(contests, contest{node: node.Name, pools: answer.contested})
		}
		if answer.pool == pool || (len(answer.contested) > 0 && isLabelled) {
			members = append(members, node)
		}
	}
	return members, contests
}
