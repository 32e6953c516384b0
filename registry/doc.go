// Package registry talks to image registries the way the nodes do: mirrors,
// credentials, certificates and signature policy come from the files that
// containers-registries.conf(5), containers-auth.json(5),
// containers-certs.d(5) and containers-policy.json(5) describe.
//
// Every error of an operation is an *Error: it carries the class of the
// failure, so that a caller knows whether to wait, to ask the user, or to build
// again.
package registry
