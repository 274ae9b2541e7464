#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills saves and lets them fail: at each of their system calls, on disks that
# are full after any number of bytes, and whole jobs at random moments. Always
# the old or the new checkpoint has to be there, whole, and is resumed from.
#
#   scripts/kill-saves.sh [KILLS [SEED]]   default: 300 jobs, a new seed
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
need_build
need_packages strace python3
cd "$root"
kills=${1:-300}
seed=${2:-$(date +%s)}
script=tests/files/kill_saves.py
python3 $script calls build/tests/files/save-once
python3 $script full build/tests/files/save-once
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cat /usr/share/common-licenses/GPL-3 > "$dir/text"
python3 $script jobs build/daemon/penstock examples/bytegpt/bytegpt.pt2 \
  "$dir/text" "$kills" "$seed" self
python3 $script jobs build/daemon/penstock examples/bytegpt/bytegpt.pt2 \
  "$dir/text" $((kills / 10)) "$seed" mpi
