// Package bootc is the bootc command line as a program sees it: the arguments
// of the commands that are used, the JSON that `bootc status` prints, the
// options a host's bootc knows, and what its error texts mean. It runs nothing
// itself.
package bootc
