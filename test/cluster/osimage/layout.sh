#!/bin/sh
# Lays a Debian root file system out as a bootc host: what an administrator or a
# package writes at run time leads to /var, which all deployments share, and what
# belongs to one image stays under /usr and /etc. Called by mmdebstrap with the
# root as its argument; links are relative, so that they hold in any chroot.
set -eu
root=$1

link_into_var() { # PATH TARGET REAL-DIRECTORY
	rm -rf "${root:?}/$1"
	mkdir -p "$root/$3"
	ln -s "$2" "$root/$1"
}
link_into_var home var/home var/home
link_into_var mnt var/mnt var/mnt
link_into_var opt var/opt var/opt
link_into_var srv var/srv var/srv
link_into_var root var/roothome var/roothome
link_into_var usr/local ../var/usrlocal var/usrlocal
chmod 0700 "$root/var/roothome"
mkdir -p "$root/sysroot"
ln -s sysroot/ostree "$root/ostree"

# The package database describes /usr, so it belongs to the image.
mkdir -p "$root/usr/lib/sysimage"
mv "$root/var/lib/dpkg" "$root/usr/lib/sysimage/dpkg"
ln -s ../../usr/lib/sysimage/dpkg "$root/var/lib/dpkg"

# What names the build host, or is made anew at each boot.
rm -f "$root/etc/hostname" "$root/etc/resolv.conf"
: >"$root/etc/machine-id"
rm -rf "$root"/var/log/* "$root"/var/cache/apt/* "$root"/var/cache/debconf/*-old "$root"/var/cache/ldconfig "$root"/boot/*
# Packages come from the stream's extensions image, bound at this place in a build.
rm -f "$root/etc/apt/sources.list"
echo 'deb [trusted=yes] file:/run/extensions ./' >"$root/etc/apt/sources.list.d/extensions.list"
