// Package streams is the pure part of the OS image streams: what the sources
// say is parsed, checked and merged, a default is chosen, and a pool's stream is
// resolved. Nothing here reads a clock, a network or a cluster, and whoever
// needs a pool's stream (render, status, guards) resolves it here.
package streams
