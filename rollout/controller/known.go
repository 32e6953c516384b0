package controller

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/imagemode/imagemode/api/v1alpha1"
)

// known is what the scope's index has found of a node, and of which objects: of others
// it says nothing.
type known struct {
	node                     *corev1.Node
	image                    *v1alpha1.NodeImage
	target                   string
	isReady, isCurrent, runs bool
	silence                  silence
	waits                    *metav1.Condition
}

// learn works out what is known.
func (n *Node) learn(scope *Scope) {
	n.known = known{}
	found := known{node: n.Node, image: n.Image, target: scope.target(), isReady: n.isReady(), isCurrent: n.isCurrent()}
	found.runs = n.runs(found.target)
	found.silence, found.waits = silenceOf(scope, n), waiting(scope, n)
	n.known = found
}

func (n *Node) isKnown() bool { return n.known.node == n.Node && n.known.image == n.Image }
