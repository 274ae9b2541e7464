#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Kills a rank of supervised jobs at named points, on both transports. Each job
# must finish without help, with the same bits.
#
#   scripts/kill-jobs.sh [KILLS [SEED]]   default: 200 kills, a random seed
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
need_build
cd "$root"
kills=${1:-200}
seed=${2:-$(date +%s)}
for transport in mpi self; do
  python3 tests/daemon/failures/restarts.py build/daemon/penstock \
    tests/golden/tiny.pt2 $transport $((kills / 2)) "$seed"
done
