#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs in full the tests for jobs that train for weeks; scripts/test.sh runs
# samples of them. Takes hours on an otherwise idle machine.
#
#   scripts/soak.sh [SEED [TEXT]]   TEXT: only parts whose names contain TEXT
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
need_build
cd "$root"
seed=${1:-$(date +%s)}
only=${2:-}
penstock=build/daemon/penstock
tiny=tests/golden/tiny.pt2
norm=tests/golden/norm.pt2
failed=()

part() {
  local name=$1 begin=$SECONDS
  shift
  [[ $name == *"$only"* ]] || return 0
  echo "== $name: $*"
  "$@" || failed+=("$name")
  echo "== $((SECONDS - begin)) s"
}

echo "seed $seed"
part "200 kills at named points" scripts/kill-jobs.sh 200 "$seed"
for transport in self mpi; do
  part "stops and pauses, $transport" \
    python3 tests/daemon/failures/stops.py $penstock \
    $tiny $transport all "$seed"
done
part "300 kills and faults of saves" scripts/kill-saves.sh
part "100 000 played jobs" env PST_TEST_SEED="$seed" \
  build/tests/sim/test-sim --seeds 100000
part "20 stops of a state of 200 MB" python3 tests/elastic/stop.py $penstock \
  examples/bytegpt/bytegpt.pt2 LICENSE 5 "$seed"
# lives BUILD: a program opens and closes models and sessions of the library.
lives() {
  GLIBC_TUNABLES=glibc.malloc.tcache_count=0 tests/lib/in_folder.sh \
    "$1/tests/lib/lib-life" $tiny tests/golden/order.pt2 \
    tests/golden/order-more.pt2 1000
}
for build in build build-asan; do
  [ ! -x $build/tests/lib/lib-life ] ||
    part "1 000 opens and closes, $build" lives $build
done
part "no memory, 5 times" python3 tests/elastic/oom.py $penstock $tiny 5
part "ranks lost for good" python3 tests/elastic/elastic.py $penstock $norm $tiny
part "each alert in a job that has its fault" \
  python3 tests/contrib/alerts.py $penstock tests all
part "early warnings" python3 tests/elastic/warned.py $penstock $tiny
part "1000 flips, 200 cuts" python3 tests/elastic/damage.py $penstock $tiny \
  1000 "$seed"
part "690 other numbers of stages and replicas" \
  env PST_TEST_SEED="$seed" build/tests/run/test-run-reshard
part "damaged copies" python3 tests/elastic/copies.py $penstock $tiny
part "200 flips of messages" \
  python3 tests/elastic/flips.py $penstock $tiny 200 "$seed"
part "20 stragglers, 10 000 clean steps" \
  python3 tests/elastic/slow.py $penstock $norm 20 10000
part "50 kills, 50 hangs" \
  python3 tests/elastic/recover.py $penstock $tiny 50 "$seed"
part "the control socket" python3 tests/daemon/socket_load.py $penstock \
  build/daemon/penstockd build/tests/daemon/load $tiny full
part "10 000 events a second" build/tests/watching/test-flood 10
part "lines of a job" python3 tests/watching/lines.py $penstock \
  build/daemon/penstockd $tiny mpi 20
part "arguments" python3 tests/daemon/arguments.py $penstock \
  build/daemon/penstockd all
part "32 ranks" python3 tests/daemon/host/many_ranks.py $penstock \
  examples/bytegpt/bytegpt.pt2 LICENSE 5
part "50 000 steps" python3 tests/elastic/endless.py $penstock $tiny 50000 1.5
part "an hour, a fault each 120 s" \
  python3 tests/elastic/chaos.py $penstock $tiny 3600 120 "$seed" 0.9
part "5 minutes, a fault each 15 s" \
  python3 tests/elastic/chaos.py $penstock $tiny 300 15 "$seed"
part "plan beside a run" python3 tests/bench/predict.py $penstock \
  examples/bytegpt/bytegpt.pt2=LICENSE --check
PST_NEED_RIG=1 part "several hosts" \
  python3 tests/nodes/nodes.py $penstock examples/bytegpt/bytegpt.pt2 \
  LICENSE all
for transport in self mpi; do
  part "20 minutes of requests, $transport" \
    python3 tests/serve/serve.py $penstock tests/golden/rows.pt2 \
    examples/bytegpt/bytegpt.pt2 $norm $tiny tests/golden/target.pt2 \
    tests/golden/broad.pt2 \
    $transport --full --seed "$seed"
done
part "the package on a bare Debian" scripts/package.sh --bare
# PENSTOCK_OLDER: the client `penstock` of an older version, built elsewhere.
[ -z "${PENSTOCK_OLDER:-}" ] || part "beside an older version" \
  python3 tests/elastic/older.py "$PENSTOCK_OLDER" $penstock $tiny
for name in "${failed[@]}"; do
  echo "FAILED: $name"
done
[ ${#failed[@]} -eq 0 ]
