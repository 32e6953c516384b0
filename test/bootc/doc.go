// Command bootc is a stand-in for bootc, for tests: bootc itself is in no Debian
// suite. It keeps what bootc documents about its command line — verbs, flags,
// exit codes (0, 1 at run time, 2 for arguments), the JSON of `bootc status`,
// what goes to stdout and what to stderr, locked and unlocked stages, the digest
// an image is known by, the /etc merge at shutdown, error texts — as of version
// 1.16 with `switch --download-only`, so that what drives it would drive bootc.
//
// It is not bootc: there is no ostree, no kernel and no bootloader. A deployment
// is a directory below /sysroot, and the supervisor of the local cluster's
// machines boots the one that /sysroot/boot/entry names. Nothing but the verbs
// and flags that `bootc --help` lists is there; others are refused. What shall go
// wrong is said in /sysroot/faults.json: see host.Faults.
package main
