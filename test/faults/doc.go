// Package faults stands before a registry and lets it be slow, cut off (Line) or out of
// order (Way): what a test on a real cluster cannot ask of a real registry.
package faults
