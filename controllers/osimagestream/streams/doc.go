// Package streams is the pure part of the OS image streams: candidates are
// classified and grouped by their labels, sources are parsed, checked and
// merged, a default is chosen, a pool's stream is resolved, and what a stream
// lacks or when it ends is judged. Nothing here reads a clock, a network or a
// cluster, and whoever needs a pool's stream (render, status, guards) resolves
// it here.
package streams
