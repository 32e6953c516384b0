// Package pullsecret reads Secrets with credentials for registries, and keeps a
// copy of the platform's own, openshift-config/pull-secret, where every other
// controller looks for it: in their namespace, by the name of --global-pull-secret.
//
// A Secret of that name that somebody else made is theirs, and stays as it is. The
// original is looked at once a minute and not watched: a right to read one Secret
// by its name is all that it takes, and a cluster without it lacks nothing.
package pullsecret
