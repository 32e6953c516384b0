// Package baseimage answers what an image in a registry has at a path, without
// pulling the image: layers are read from the last one backwards, each at most
// once, and no further than the questions need. Of what it reads it keeps names
// and attributes, and the content of small files below /etc and of units.
//
// Where all layers had to be read (something is not there), the answers to
// everything can be kept as an image of their own, the skeleton: one layer with
// the same names and attributes, and without the content that is not kept. The
// next build on the same base reads that instead.
package baseimage
