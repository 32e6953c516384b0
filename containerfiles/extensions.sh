# Installs $PACKAGES and changes the kernel to $NEW_KERNEL from that of Fedora's
# $OLD_KERNEL or any of Debian, from the extensions image at /run/extensions alone.
set -eu
repository=/run/extensions/usr/share/rpm-ostree/extensions
[ -d "$repository" ] || repository=/run/extensions
kernels() { find /usr/lib/modules -mindepth 2 -maxdepth 2 -name vmlinuz 2>/dev/null | wc -l; }
installed() { rpm -q "$@" 2>/dev/null | grep -v ' ' || true; }
before=$(kernels) marker=$(mktemp)
manager=none
for name in dnf5 dnf rpm-ostree apt-get; do command -v $name >/dev/null && manager=$name && break || true; done
case $manager in
dnf*)
	from="--repofrompath=imagemode-extensions,file://$repository --repo=imagemode-extensions --setopt=imagemode-extensions.gpgcheck=0"
	options="-y --setopt=install_weak_deps=False --setopt=protected_packages="
	if [ -n "$PACKAGES$NEW_KERNEL" ]; then $manager $options $from install $PACKAGES $NEW_KERNEL; fi
	old=$([ -z "$NEW_KERNEL" ] || installed $OLD_KERNEL)
	if [ -n "$old" ]; then $manager $options --setopt=clean_requirements_on_remove=False remove $old; fi
	$manager clean all >/dev/null ;;
rpm-ostree)
	list=/etc/yum.repos.d/imagemode-extensions.repo
	printf '[imagemode-extensions]\nname=extensions\nbaseurl=file://%s\ngpgcheck=0\n' "$repository" >$list
	old=$([ -z "$NEW_KERNEL" ] || installed $OLD_KERNEL)
	if [ -n "$old" ]; then rpm-ostree override remove $old $(printf -- '--install=%s ' $NEW_KERNEL); fi
	more="$PACKAGES $([ -n "$old" ] || echo $NEW_KERNEL)"
	if [ "$more" != ' ' ]; then rpm-ostree install -y $more; fi
	rm -f $list ;;
apt-get)
	list=$(mktemp) && echo "deb [trusted=yes] file:$repository ./" >"$list"
	options="-o Dir::Etc::sourcelist=$list -o Dir::Etc::sourceparts=/dev/null -o APT::Sandbox::User=root"
	export DEBIAN_FRONTEND=noninteractive
	old=$(dpkg-query -W -f '${db:Status-Abbrev} ${Package}\n' 'linux-image-*' 2>/dev/null | sed -n 's/^ii *//p')
	apt-get $options update
	apt-get $options install --yes --no-install-recommends $PACKAGES $NEW_KERNEL
	if [ -n "$NEW_KERNEL" ] && [ -n "$old" ]; then apt-get $options purge --yes $old; fi
	apt-get clean && rm -rf /var/lib/apt/lists/* /var/cache/apt/* "$list" ;;
*) echo "the OS image has none of dnf5, dnf, rpm-ostree and apt-get to install extensions with" && exit 65 ;;
esac
for modules in /usr/lib/modules/*/; do # what the old kernel left, and what the new one lacks
	[ -n "$NEW_KERNEL" ] || break
	if [ ! -e "$modules/vmlinuz" ]; then rm -rf "$modules"; fi
	[ ! -e "$modules/vmlinuz" ] || [ -e "$modules/initramfs.img" ] ||
		dracut --force --no-hostonly --reproducible --kver "$(basename "$modules")" "$modules/initramfs.img"
done
if [ "$before" -gt 0 ] && [ "$(kernels)" -ne 1 ]; then ls /usr/lib/modules && echo "$(kernels) kernels are left, and exactly one can boot" && exit 65; fi
rm -rf /var/log/apt /var/log/dpkg.log /var/log/alternatives.log /var/log/dnf* /var/log/hawkey.log /var/cache/dnf/* /var/cache/libdnf5/* /var/cache/debconf/*-old
find /var -xdev -mindepth 1 -type d -cnewer "$marker" ! -path '/var/cache*' ! -path '/var/tmp*' ! -path '/var/lib/apt*' ! -path '/var/lib/dnf*' \
	-printf 'd %p %m %u %g -\n' | sort >"$marker.d" # /var is the node's own: made there at boot
[ ! -s "$marker.d" ] || install -D -m 0644 "$marker.d" /usr/lib/tmpfiles.d/imagemode-extensions.conf
rm -f "$marker" "$marker.d"
