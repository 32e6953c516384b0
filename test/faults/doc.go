// Package faults stands between a builder and a registry and lets the registry
// seem out of order: what a test on a real cluster cannot ask of a real registry.
package faults
