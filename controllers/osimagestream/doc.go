// Package osimagestream keeps OSImageStream cluster, the only source of base
// images: it reads the sources of OS image streams, publishes what they say in
// the object's status, and records the default in its spec once.
//
// What can be decided without a cluster is in package streams.
package osimagestream
