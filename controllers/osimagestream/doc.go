// Package osimagestream keeps OSImageStream cluster, the only source of base
// images: it reads the sources of OS image streams, publishes what they say in
// the object's status, and records the default in its spec once.
//
// Sources, of which later ones win for each stream: the pair of images of the
// command line, the pair in ConfigMap machine-config-osimageurl, ConfigMap
// imagemode-streams, and the release payload, whose ImageStream stands in
// ConfigMap imagemode-payload or is read out of the release image. Streams of
// pairs and payloads are recognised by the labels of their images. Where the
// control plane runs outside of the cluster no connection is opened: streams
// then come from the payload's tags or from ControllerConfig.
//
// What cannot be read is a problem in an annotation of the object, and is tried
// again; what was known of the same payload is kept meanwhile. What was read of
// an image is kept by its digest in ConfigMap imagemode-image-labels.
//
// What can be decided without a cluster is in package streams.
package osimagestream
