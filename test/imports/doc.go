// Package imports holds the rules about which folder may import which, so that
// the halves of imagemode stay apart: what builds images, what rolls them out,
// and the pure parts that both could be tested without.
package imports
