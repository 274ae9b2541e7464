#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills saves at each of their system calls, lets them fail on disks that are
# full after any number of bytes, and kills jobs at random moments. Each time
# the old or the new checkpoint must be complete, and a job must resume from
# it.
#
#   scripts/kill-saves.sh [--shard] [--hosts] [KILLS [SEED]]
#
# KILLS: number of killed jobs (default 300). SEED: random by default. --shard:
# replicas share parameters and write into the same files. --hosts: files have
# the semantics of NFS, with each process on a host of its own
# (tests/files/close_to_open.c).
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
need_build
need_packages strace python3
cd "$root"
more=()
while [[ ${1:-} == --* ]]; do
  case $1 in
    --shard) export SAVE_ONCE_SHARED=1 ;;
    --hosts) more+=(--hosts "$root/build/tests/files/libclose-to-open.so") ;;
    *) echo "kill-saves.sh: no option $1" >&2; exit 64 ;;
  esac
  shift
done
kills=${1:-300}
seed=${2:-$(date +%s)}
script=tests/files/kill_saves.py
python3 $script calls build/tests/files/save-once "${more[@]}"
python3 $script full build/tests/files/save-once "${more[@]}"
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat /usr/share/common-licenses/GPL-3 > "$dir/text"
for transport in self mpi; do
  python3 $script jobs build/daemon/penstock examples/bytegpt/bytegpt.pt2 \
    "$dir/text" "$kills" "$seed" $transport "${more[@]}"
  kills=$((kills / 10))
done
