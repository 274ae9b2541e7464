#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs packages in a fresh Debian, a folder that debootstrap has made; there
# it compiles and runs the program of docs/library.md, an example and the module
# of Fortran with the installed library, and removes the packages again. No file
# of theirs may remain.
#
#   fresh.sh DEBIAN ROOT FILE.deb...
#
# Needs root, and the network for Debian's packages. The second half of this
# file runs in the folder.
set -euo pipefail

debian=$(realpath "$1") root=$(realpath "$2") here=$(realpath "$0")
shift 2
work=$debian/srv/penstock
rm -rf "$work"
mkdir -p "$work"
cp "$@" "$work/"
cp "$root/examples/library/digits.c" "$root/tests/golden/digits.pt2" \
  "$root/tests/golden/tiny.pt2" "$work/"
cp "$root/examples/fortran/closure.pt2" "$work/model.pt2"
zcat "$root/examples/digits/digits.csv.gz" >"$work/digits.csv"
python3 - "$root/docs/library.md" "$work" <<'PAGE'
import re
import sys
with open(sys.argv[1], encoding="utf-8") as page:
    text = page.read()
for language, name in ("c", "page.c"), ("fortran", "train.f90"):
    program, *_ = re.findall(rf"```{language}\n(.*?)```", text, re.S)
    with open(f"{sys.argv[2]}/{name}", "w", encoding="utf-8") as file:
        file.write(program)
PAGE
sed -n '/^# --- there/,$p' "$here" >"$work/try"
chroot "$debian" env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root \
  LC_ALL=C.UTF-8 bash -euo pipefail /srv/penstock/try
exit 0

# --- there: bash -euo pipefail ---
export DEBIAN_FRONTEND=noninteractive
cd /srv/penstock
apt-get -q update >log
apt-get -q -y --no-install-recommends install ./*.deb gcc gfortran libc6-dev \
  pkg-config >>log 2>&1 || {
  tail -n 20 log
  exit 1
}
if [ -x /usr/bin/penstock ]; then
  penstock --version
  penstockd --version
  penstock show tiny.pt2 >/dev/null
  zcat /usr/share/man/man1/penstock-run.1.gz | grep -q 'max.*restarts'
fi
flags="$(pkg-config --cflags penstock)" libs="$(pkg-config --libs penstock)"
# shellcheck disable=SC2086
gcc $flags page.c $libs -o page
./page tiny.pt2
# shellcheck disable=SC2086
gcc $flags digits.c $libs -o digits
./digits digits.pt2 digits.csv 5
# shellcheck disable=SC2086
gfortran /usr/include/penstock.f90 train.f90 $libs -o train
./train
# shellcheck disable=SC2046
apt-get -q -y purge $(dpkg-query -W -f '${Package}\n' '*penstock*') >>log 2>&1
left=$(find /usr /etc /var/lib /lib/systemd -path '*/dpkg/*' -prune -o \
  -path '*/apt/*' -prune -o -name '*penstock*' -print)
[ -z "$left" ] || {
  echo "still there: $left"
  exit 1
}
echo "installed, used and removed"
