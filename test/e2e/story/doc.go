// Package story is the main job of imagemode as a user does it on the local
// cluster: install it, declare a configuration, have an image built while the
// pool is paused, release the pool and see node after node reboot into it.
//
// The demo tells it, the end-to-end test checks it. Every wait is bounded and
// says, when it fails, what was waited for and what was seen last.
package story
