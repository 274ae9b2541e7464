#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages of the current commit in a clean folder, and checks
# them: runs lintian, compares their files, installs, uses and removes them.
#
#   scripts/package.sh [--bare] [DIR]
#
# Writes the packages into DIR (default out/). Installing needs root; without
# root a message says that it was skipped. --bare: installs the package on a
# minimal Debian in a folder, boots that and tests the service
# (tests/contrib/bare.sh).
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

bare=
if [ "${1:-}" = --bare ]; then
  bare=yes
  shift
fi
out=$(realpath -m "${1:-$root/out}")
# shellcheck disable=SC2086
need_packages $packages_build debhelper lintian git fakeroot
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
git -C "$root" archive --prefix=penstock/ HEAD | tar -x -C "$folder"
say "building"
(cd "$folder/penstock" && dpkg-buildpackage -us -uc -b >"$folder/log" 2>&1) || {
  tail -n 50 "$folder/log"
  die "the package could not be built"
}
say "lintian"
lintian --fail-on error,warning "$folder"/penstock_*.changes
package=$(ls "$folder"/penstock_*_*.deb)
say "files"
libraries=$(ls "$folder"/libpenstock0_*.deb "$folder"/libpenstock-dev_*.deb)
for one in $package $libraries; do
  python3 "$root/tests/contrib/package.py" "$root" "$one"
done
mkdir -p "$out"
# shellcheck disable=SC2086
cp $package $libraries "$out/"
say "$out/$(basename "$package")"
if [ -n "$bare" ]; then
  say "on a bare Debian"
  need_packages debootstrap systemd-container
  "$root/tests/contrib/bare.sh" "$out/$(basename "$package")" \
    "$root/examples/bytegpt/bytegpt.pt2" "$root/LICENSE"
  exit 0
fi
if [ "$(id -u)" != 0 ] || is_installed penstock; then
  say "not installed: that needs root, and no penstock that is there already"
  exit 0
fi
say "installing"
# shellcheck disable=SC2086
DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install \
  $package $libraries
(cd / && penstock --version && penstockd --version &&
  penstock show "$root/tests/golden/norm.pt2" >/dev/null &&
  man -w penstock-run >/dev/null 2>&1 || [ -f \
    /usr/share/man/man1/penstock-run.1.gz ])
python3 "$root/tests/contrib/package.py" "$root" "$package" /usr/bin/penstock
python3 - "$root/docs/library.md" "$folder/page.c" <<'PAGE'
import re
import sys
with open(sys.argv[1], encoding="utf-8") as page:
    program, _ = re.findall(r"```c\n(.*?)```", page.read(), re.S)
with open(sys.argv[2], "w", encoding="utf-8") as file:
    file.write(program)
PAGE
# shellcheck disable=SC2046
cc "$folder/page.c" $(pkg-config --cflags --libs penstock) -o "$folder/page"
"$folder/page" "$root/tests/golden/tiny.pt2" >/dev/null
say "removing"
DEBIAN_FRONTEND=noninteractive apt-get -q -y purge penstock libpenstock-dev \
  libpenstock0
left=$(find /usr /etc /var/lib /lib/systemd -path '*/dpkg/*' -prune -o \
  -path '*/apt/*' -prune -o -name '*penstock*' -newer "$folder/log" -print)
[ -z "$left" ] || die "still there: $left"
say "the package is fine"
