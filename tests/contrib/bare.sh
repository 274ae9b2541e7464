#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests the package on a bare Debian 12: installs it, trains by hand and as the
# service, and removes it again. Only files that the jobs have written may
# remain.
#
#   bare.sh FILE.deb MODEL.pt2 DATA
#
# Needs root, debootstrap and systemd-nspawn, and the network for Debian's
# packages. The second half of this file runs in the container.
set -euo pipefail

package=$(realpath "$1") model=$(realpath "$2") data=$(realpath "$3")
here=$(realpath "$0")
folder=$(mktemp -d -t penstock-bare-XXXXXX)
bare=$folder/debian
trap 'rm -rf --one-file-system "$folder"' EXIT

debootstrap --variant=minbase bookworm "$bare" >"$folder/log" 2>&1 || {
  tail -n 20 "$folder/log"
  exit 1
}
cp "$package" "$bare/root/penstock.deb"
cp "$model" "$bare/srv/model.pt2"
cp "$data" "$bare/srv/data"
chroot "$bare" sh -c 'export DEBIAN_FRONTEND=noninteractive
  apt-get -q update && apt-get -q -y install ./root/penstock.deb &&
  apt-get -q -y --no-install-recommends install systemd-sysv \
    libnss-systemd' \
  >"$folder/log" 2>&1 || {
  tail -n 20 "$folder/log"
  exit 1
}
sed -n '/^# --- there/,$p' "$here" >"$bare/root/try"
cat >"$bare/etc/systemd/system/try.service" <<'UNIT'
[Unit]
After=systemd-user-sessions.service
[Service]
Type=oneshot
ExecStart=/bin/bash -c "/bin/bash -eu /root/try >/root/log 2>&1 && touch /root/good; systemctl --no-block poweroff"
[Install]
WantedBy=multi-user.target
UNIT
chroot "$bare" systemctl -q enable try.service
timeout 300 systemd-nspawn -q --register=no --keep-unit -D "$bare" -b \
  </dev/null >"$folder/log" 2>&1 || true
if [ ! -e "$bare/root/good" ]; then
  tail -n 60 "$bare/root/log"; tail -n 5 "$folder/log"
  exit 1
fi
cat "$bare/root/log" >&2
echo "installed, trained, served and removed"
exit 0

# --- in the container: bash -eu ---
cd /tmp
trap 'systemctl status -l --no-pager penstock@night || true
  journalctl --no-pager | tail -n 30; ls -la /var/log/journal /run/log/journal' ERR
penstock --version
penstockd --version
test -e /usr/share/bash-completion/completions/penstock.bash
zcat /usr/share/man/man1/penstock-run.1.gz | grep -q 'max.*restarts'
runuser -u nobody -- env HOME=/tmp penstock run /srv/model.pt2 --stages 2 -n 2 \
  --data /srv/data --steps 3 --lr 0.001 --json

printf '%s\n' PLAN=/srv/model.pt2 PENSTOCK_STAGES=2 PENSTOCK_RANKS=2 \
  PENSTOCK_DATA=/srv/data PENSTOCK_STEPS=1000000 >/etc/penstock/night.conf
ask() {
  runuser -u penstock-night -- env XDG_RUNTIME_DIR=/run/penstock-night \
    penstock "$@"
}
# await STEP: waits until the service has made a later step than STEP.
await() {
  for _ in $(seq 60); do
    sleep 1
    step=$(ask status --json | grep -Eo '"step": ?[0-9]+' | head -n 1 |
      grep -Eo '[0-9]+') || continue
    [ "$step" -le "$1" ] || return 0
  done
  return 1
}
systemctl start penstock@night
await 0
systemctl stop penstock@night
test "$(systemctl show -p Result --value penstock@night)" = success
saved=$(find /var/lib/penstock/night/ -name manifest.json | grep -Eo '[0-9]{8}')
systemctl start penstock@night # resumes from the checkpoint
await "$((10#$saved))"
grep -Eh "event=train_begin .* first_step=$((10#$saved)) " \
  /var/log/penstock/night/rank-0.log
ask stop
for _ in $(seq 20); do
  sleep 1
  systemctl -q is-active penstock@night || break
done
test "$(systemctl is-active penstock@night)" = inactive
echo "PENSTOCK_LR=much" >>/etc/penstock/night.conf
systemctl start penstock@night
sleep 2
test "$(systemctl is-active penstock@night)" = failed

apt-get -q -y purge penstock
left=$(find /usr /etc /var/lib /var/log /lib/systemd -path '*/dpkg/*' -prune \
  -o -path '*/apt/*' -prune -o -name '*penstock*' -print | sort)
# These may remain: state and logs of the service, and its configuration file.
want="/etc/penstock
/var/lib/penstock
/var/lib/private/penstock
/var/log/penstock
/var/log/private/penstock"
if [ "$left" != "$want" ]; then
  echo "left: $left"
  exit 1
fi
