// Package nodepool resolves the OS image stream of hosted node pools, NodePool
// objects of hypershift.openshift.io/v1beta1. It says in their status whether
// their configuration goes with the stream, and publishes per NodePool, in the
// Secret <nodepool>-os-image of its namespace, what its nodes are to run: stream,
// images, container runtimes, and a hash of its configuration.
//
// Where a hypershift-operator runs, the status is its own, and only the Secret
// is written.
//
// Not there yet: nothing builds images for hosted clusters or brings nodes to
// what the Secret says, so status.osImageStream is the stream that nodes are to
// run. ConfigMaps of spec.config are not watched: a change is seen within
// five minutes. Release images are read with the credentials of the cluster that
// the controller runs in.
package nodepool
