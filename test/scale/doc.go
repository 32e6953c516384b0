// Package scale runs the controllers of pools and of rollouts against a real API
// server, with many pools and nodes, and counts what they write. The nodes are
// played: their kubelets, their agents and the builds.
//
// "make envtest" runs the small ones, "make bench-pools" the large ones too.
package scale
