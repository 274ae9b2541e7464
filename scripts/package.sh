#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Builds the Debian packages of the current commit in a clean folder, and checks
# them: runs lintian, compares their files; then installs them in a fresh Debian
# in a folder, uses them there, and removes them (tests/contrib/fresh.sh).
#
#   scripts/package.sh [--bare | --debs] [DIR]
#
# Writes the packages into DIR (default out/). Installing needs root; without
# root a message says that it was skipped. --bare: boots the fresh Debian, and
# tests the service (tests/contrib/bare.sh). --debs: checks the packages that
# are in DIR already, and builds none.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

bare='' debs=''
case ${1:-} in
--bare) bare=yes ;;
--debs) debs=yes ;;
esac
[ -z "$bare$debs" ] || shift
out=$(realpath -m "${1:-$root/out}")
# shellcheck disable=SC2086
need_packages $packages_build debhelper lintian git fakeroot
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
if [ -z "$debs" ]; then
  git -C "$root" archive --prefix=penstock/ HEAD | tar -x -C "$folder"
  say "building"
  (cd "$folder/penstock" && dpkg-buildpackage -us -uc -b >"$folder/log" 2>&1) || {
    tail -n 50 "$folder/log"
    die "the package could not be built"
  }
  say "lintian"
  lintian --fail-on error,warning "$folder"/penstock_*.changes
  mkdir -p "$out"
  cp "$folder"/penstock_*.deb "$folder"/libpenstock0_*.deb \
    "$folder"/libpenstock-dev_*.deb "$out/"
  say "$out/"
fi
say "files"
package=$(ls "$out"/penstock_*.deb)
libraries=$(ls "$out"/libpenstock0_*.deb "$out"/libpenstock-dev_*.deb)
for one in $package $libraries; do
  python3 "$root/tests/contrib/package.py" "$root" "$one"
done
if [ -n "$bare" ]; then
  say "on a bare Debian"
  need_packages debootstrap systemd-container
  "$root/tests/contrib/bare.sh" "$package" \
    "$root/examples/bytegpt/bytegpt.pt2" "$root/LICENSE"
  exit 0
fi
if [ "$(id -u)" != 0 ]; then
  say "not installed: that needs root"
  exit 0
fi
say "installing in a fresh Debian"
need_packages debootstrap
debootstrap --variant=minbase bookworm "$folder/debian" >"$folder/log" 2>&1 || {
  tail -n 20 "$folder/log"
  die "there is no fresh Debian"
}
# shellcheck disable=SC2086
"$root/tests/contrib/fresh.sh" "$folder/debian" "$root" $package $libraries
say "the package is fine"
