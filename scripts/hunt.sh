#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Looks for faults with random inputs. The tests themselves use fixed seeds: a
# fault that a hunt finds is fixed, and its input becomes a test.
#
#   scripts/hunt.sh [--seed N] [SECONDS [HUNT...]]   3600 seconds if not given
#   scripts/hunt.sh --list
#
# The hunts take turns until the time is over. Round k uses the seed N + k,
# which each hunt prints; without --seed, N is random. out/hunt/HUNT-SEED/
# keeps a finding: the output (log), the command that repeats it (again) and,
# if there are any, the programs that fail. Ends with "N hunts, N findings";
# with findings the exit code is 1.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

forget_options
usage="usage: scripts/hunt.sh [--seed N] [SECONDS [HUNT...]] or --list"
penstock=$root/build/daemon/penstock
compare=$root/tests/compare
out=$root/out/hunt

# Each hunt is a function hunt_NAME. Its argument is the folder for what it
# finds, its seed is PST_TEST_SEED. case_of_NAME explains how to make a test of
# a finding.

hunt_aliases() {
  "$python" "$compare/alias/alias.py" "$penstock" "$1" --seed "$PST_TEST_SEED" \
    --count 300 --keep
}
case_of_aliases="the programs that failed, by name, are in alias-random.json: \
add their lines to tests/golden/aliases.json (alias-eager)"

hunt_trees() {
  "$python" "$compare/trees/trees.py" "$penstock" "$1" --seed "$PST_TEST_SEED" \
    --number 6
}
case_of_trees="tree-SEED.py is the model: make it small, and a model of \
tests/compare/handwritten.py"

hunt_batches() {
  "$python" "$compare/trees/batches.py" "$penstock" "$1" \
    --seed "$PST_TEST_SEED" --number 12
}
case_of_batches="model-SEED.py is the model: its graph goes into a test in \
tests/run/, as that of test_weights.c"

# drawn SET DIR: draws and runs a set of scripts/cases.sh; copies the programs
# that fail to DIR.
drawn() {
  local name=$1 dir=$2 code=0
  bash "$root/scripts/cases.sh" --set "$name" -v || code=$?
  python3 "$root/tests/cases/keep.py" "$root/build/$name" "$dir"
  return "$code"
}
case_of_drawn="build/tests/cases/cases -v DIR runs the programs that failed; \
a line of tests/cases/edges.py for each kind (tests/cases/README.md)"

hunt_layouts() { drawn layouts "$1"; }
hunt_chains() { drawn chains "$1"; }
hunt_dtypes() { drawn dtypes "$1"; }
case_of_layouts=$case_of_drawn
case_of_chains=$case_of_drawn
case_of_dtypes=$case_of_drawn

# tests DIR NAME...: runs tests of the build DIR that use the seed.
tests() {
  meson test -C "$root/$1" --no-rebuild --print-errorlogs "${@:2}"
}

hunt_cuts() { tests build split-random run-reshard run-replicas; }
case_of_cuts="test-split-random seed K prints the model: it goes into \
tests/split/test_random.c as a test of its own"

hunt_models() {
  "$python" "$compare/sweep.py" "$penstock" "$1" --seed "$PST_TEST_SEED" \
    --number 12
}
case_of_models="a row of tests/compare/zoo.py, or a line of FIRST in \
tests/compare/sweep.py if the cut is what matters"

hunt_library() {
  "$python" "$compare/library_bits.py" "$penstock" "$1" --seed "$PST_TEST_SEED"
}
case_of_library="the cut or schedule goes into tests/lib/bits.py, if a golden \
model shows it, else into the cases of tests/compare/library_bits.py"

hunt_commands() { tests build daemon-arguments; }
case_of_commands="the command line goes into the test of the option that it \
has, in tests/daemon/"

hunt_bytes() { tests build fuzz fuzz-operators fuzz-plans fuzz-corpus base-fold; }
case_of_bytes="the file goes into tests/fuzz/corpus/TARGET by \
tests/fuzz/make_corpus.py, or its change into tests/files/hostile.py"

hunt_worlds() { tests build sim files-power; }
case_of_worlds="test-sim --world NAME --seed N --trace plays it again: a course \
of its own in tests/sim/"

hunt_jobs() {
  tests build daemon-restarts-self daemon-stops-self daemon-restarts-mpi \
    daemon-stops-mpi daemon-many-changes elastic-flips elastic-damage nodes
}
case_of_jobs="the point and its number go into the list that the test goes \
through always"

hunt_lives() {
  "$python" "$root/tests/hunt/lives.py" "$penstock" "$1" \
    --seed "$((PST_TEST_SEED * 1000))" --number 1000 --seconds 300
}
case_of_lives="life-SEED/life.sh repeats the commands of a life, whose course \
goes into tests/daemon/training/found_by_hunt.py"

# Runs with sanitizers the tests that scripts/test.sh runs only without.
hunt_sanitizers() {
  [ -f "$root/build-asan/build.ninja" ] || {
    echo "left out: scripts/test.sh makes build-asan"
    return 0
  }
  meson configure "$root/build-asan" -Dcuda=auto &&
    ninja --quiet -C "$root/build-asan" &&
    tests build-asan --suite unsanitized && tests build-asan ops-kernels
}
case_of_sanitizers="a test with few lines, which runs with sanitizers always"

all="aliases layouts chains dtypes trees batches cuts models library commands
  bytes worlds jobs lives sanitizers"

seed=$((RANDOM * 32768 + RANDOM))
while [ $# -gt 0 ]; do
  case $1 in
    --seed) seed=${2:?$usage}; shift 2 ;;
    --list) echo $all; exit 0 ;;
    -*) die "$usage" ;;
    *) break ;;
  esac
done
seconds=${1:-3600}
shift || true
[[ $seconds =~ ^[0-9]+$ && $seed =~ ^[0-9]+$ ]] || die "$usage"
read -r -a hunts <<<"${*:-$(echo $all)}"
for name in "${hunts[@]}"; do
  declare -F "hunt_$name" >/dev/null || die "there is no hunt $name: $(echo $all)"
done

need_build
need_python
export OMP_NUM_THREADS=1
export PENSTOCK_PYTHON=$python
say "seed $seed"
end=$((SECONDS + seconds))
n=0
found=()
while [ $n = 0 ] || [ $SECONDS -lt $end ]; do
  name=${hunts[n % ${#hunts[@]}]}
  PST_TEST_SEED=$((seed + n / ${#hunts[@]}))
  draw_by_seed
  dir=$out/$name-$PST_TEST_SEED
  rm -rf "$dir"
  mkdir -p "$dir"
  n=$((n + 1))
  begin=$SECONDS
  code=0
  ("hunt_$name" "$dir") >"$dir/log" 2>&1 || code=$?
  say "$name, seed $PST_TEST_SEED: $((SECONDS - begin)) s, exit code $code"
  if [ "$code" = 0 ]; then
    rm -rf "$dir"
    continue
  fi
  tail -n 20 "$dir/log"
  echo "scripts/hunt.sh --seed $PST_TEST_SEED 1 $name" >"$dir/again"
  told=case_of_$name
  echo "kept in ${dir#"$root"/}; again: $(cat "$dir/again")"
  echo "a case of it: ${!told}"
  found+=("${dir#"$root"/}")
done
printf '%s\n' "${found[@]}"
echo "$n hunts, ${#found[@]} findings"
[ ${#found[@]} = 0 ]
