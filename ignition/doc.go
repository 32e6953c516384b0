// Package ignition turns the Ignition config of a rendered MachineConfig into
// what an OS image can hold: Parse and Merge read configs of any stable spec,
// Refused names what no image can hold, Split tells what goes into the image
// from what a node takes over while it runs, NewLayer makes the image layer.
//
// The layer of a config is a pure function of the config, the kernel arguments
// and the base image: the same input gives the same bytes, and the order of
// files, units and users in the config makes no difference.
//
// Most configs need nothing of the base image but where its links lead, which
// DefaultBase knows for the images of the ostree family. Looked up in the image
// itself (see Base) are only: what an append is added to, a file without
// contents, an owner by name below /etc or /usr, mode and owner of a directory
// that is known not to be root's, units of the base to enable or disable, the
// file of the base behind a hard link, and kernel arguments to take away.
//
// # Below /var
//
// An update of the image does not touch /var, and /home, /opt, /srv, /usr/local
// and others lead there. What a config has there is kept in the image and put
// in place at boot, before any unit of the config can need it: what is below
// /opt and /usr/local by a link, so that it follows the image at once, the rest
// as a copy. What has left the config is removed by the list that the image
// before left in /var/lib/imagemode. Directories stay: they may hold what is the
// node's own.
//
// # Not there
//
// An image cannot hold password hashes (whoever may pull it could read them),
// what is outside /etc, /usr and /var. Kernel arguments can be taken away where
// the base image sets them, not where an installer did.
// systemd's [Install] sections are read from units and from the config's
// drop-ins, not from drop-ins of the base.
package ignition
