#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds, runs all of them.
#
#   scripts/test.sh [--quick|--full]
#
# --quick leaves the comparison with PyTorch and the sanitizers out; --full
# runs every case of the comparison instead of a sample. Ends with the lines
# "N skipped" and "N passed, N failed". A clone alone has all that the tests
# read. PENSTOCK_MESON: more options for `meson setup`. What is drawn by chance
# is another sample in each run; PST_TEST_SEED=N draws that of the run that
# printed N.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

mode=${1:-}
case $mode in
  '' | --quick | --full) ;;
  *) die "usage: scripts/test.sh [--quick|--full]" ;;
esac

forget_options
export PST_TEST_SEED=${PST_TEST_SEED:-$((RANDOM * 3 + RANDOM % 3))}
say "PST_TEST_SEED=$PST_TEST_SEED"
passed=0
failed=0
skipped=0
begin=$(date +%s)
log=$(mktemp)
beside=$(mktemp -d)
other=
trap 'rm -rf "$log" "$beside"; [ -z "$other" ] || kill "$other"' EXIT

# meson_tests DIR NAME [arguments]: runs tests, adds what meson counted.
meson_tests() {
  local dir=$1 name=$2 code=0 good bad
  shift 2
  say "$name"
  meson test -C "$dir" --no-rebuild --print-errorlogs "$@" >"$log" 2>&1 ||
    code=$?
  good=$(awk '/^(Ok|Expected Fail): / { n += $NF } END { print n + 0 }' "$log")
  bad=$(awk '/^(Fail|Unexpected Pass|Timeout): / { n += $NF }
    END { print n + 0 }' "$log")
  skipped=$((skipped + $(awk '/^Skipped: / { n += $NF }
    END { print n + 0 }' "$log")))
  # Nothing ran, or meson itself failed.
  if [ $((good + bad)) = 0 ] || { [ "$code" != 0 ] && [ "$bad" = 0 ]; }; then
    bad=$((bad + 1))
  fi
  if [ "$bad" = 0 ]; then
    grep -E '^ *[0-9]+/[0-9]+ ' "$log" || true
  else
    cat "$log"
  fi
  passed=$((passed + good))
  failed=$((failed + bad))
}

# counted TITLE SCRIPT [arguments]: a script of tests/compare, which says in its
# last line what it counted.
counted() {
  local title=$1 script=$2 last good=0 bad=1
  shift 2
  need_python
  say "$title"
  # PyTorch's second thread spins where there is other work.
  OMP_NUM_THREADS=1 "$python" "$root/tests/compare/$script" \
    "$root/build/daemon/penstock" "$@" 2>"$log.err" | tee "$log" |
    grep -vE '^[0-9]+ passed, ' || true
  last=$(tail -n 1 "$log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]}
    # Nothing that ran is no success.
    [ "$good" = 0 ] || bad=${BASH_REMATCH[2]}
  fi
  skipped=$((skipped + $(grep -c '^left out ' "$log" || true)))
  [ "$bad" = 0 ] || cat "$log.err"
  rm -f "$log.err"
  passed=$((passed + good))
  failed=$((failed + bad))
}

# claim TITLE COMMAND...: one test that says what it measured.
claim() {
  local title=$1
  shift
  say "$title"
  if "$@" >"$log" 2>&1; then
    passed=$((passed + 1))
    grep -E ' (MiB|%)$' "$log" | tail -n 1 || true
  else
    failed=$((failed + 1))
    tail -n 40 "$log"
  fi
}

# Operators against PyTorch, all cases: they take seconds.
cases() {
  local last
  bash "$root/scripts/cases.sh" -q >"$log" 2>&1 || true
  last=$(tail -n 1 "$log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
    [ "${BASH_REMATCH[1]}" != 0 ] || failed=$((failed + 1))
  else
    failed=$((failed + 1))
  fi
  cat "$log"
}

# without TURN: that suite is left out. Some of the longest tests run with
# sanitizers or without, by the seed.
without() {
  [ -n "$mode" ] || echo "--no-suite turn$1"
}

# sanitizers: builds with these, and the tests for which they are worth it: not
# those that wait for seconds, nor those that look at programs from outside.
# shellcheck disable=SC2046
sanitizers() {
  # -O1: twice as fast to run as -O0, hardly slower to build; -g1: no places
  # of variables, which take a third of the time to compile.
  need_build "$root/build-asan" -Dbuildtype=debug -Doptimization=1 \
    -Dc_args=-g1 -Db_sanitize=address,undefined -Db_lundef=false
  meson_tests "$root/build-asan" "tests with ASan and UBSan" --suite unit \
    --no-suite waiting --no-suite plain $(without $((PST_TEST_SEED % 2))) \
    --timeout-multiplier 4
  only=tests-of-threads need_build "$root/build-tsan" -Dbuildtype=debug \
    -Doptimization=1 -Dc_args=-g1 -Db_sanitize=thread -Db_lundef=false
  meson_tests "$root/build-tsan" "ranks on threads, with TSan" \
    --suite threads --timeout-multiplier 4
}

# About half of the comparisons, by time: those that are hardly ever jobs of
# several ranks.
comparisons_aside() {
  counted "tensors set and cast" attr.py "$root/out/attr" "${seed[@]}"
  counted "model.eval()" modes.py "$root/out/modes" "${seed[@]}"
  counted "low-rank adapters" lora.py "$root/out/lora" "${seed[@]}"
  counted "adapters on GPT-2" lora_curve.py "$root/out/curve" "${seed[@]}"
  counted "random programs with aliases" alias.py "$root/out/alias" \
    "${sample[@]}"
  counted "storages that resize" resizes.py
  counted "random trees of modules" trees.py "$root/out/trees" "${sample[@]}"
  cases
  claim "a schedule of 4096 ranks and 16384 microbatches" \
    "$root/build/tests/sched/test-sched-scale" 4096 16384
}

# Many tests wait more than they compute, so this works beside them. What it
# prints and counts comes when it is done.
rest() {
  sanitizers
  comparisons_aside
}

aside() {
  log=$beside/log
  passed=0 failed=0 skipped=0
  "$@" >"$beside/printed" 2>&1
  say "beside the others: $(($(date +%s) - begin)) seconds" >>"$beside/printed"
  echo "$passed $failed $skipped" >"$beside/counted"
}

join_aside() {
  local good=0 bad=1 out=0
  wait "$other" || true
  other=
  cat "$beside/printed"
  [ ! -f "$beside/counted" ] || read -r good bad out <"$beside/counted"
  passed=$((passed + good))
  failed=$((failed + bad))
  skipped=$((skipped + out))
}

full=()
[ "$mode" != --full ] || full=(--full)
seed=(--seed "$PST_TEST_SEED")
sample=("${full[@]}" "${seed[@]}")
need_packages valgrind mtail logrotate prometheus iproute2 nftables strace \
  groff-base systemd lnav
# shellcheck disable=SC2086
need_build "$root/build" ${PENSTOCK_MESON:-}
if [ "$mode" != --quick ]; then
  need_python
  aside rest &
  other=$!
fi
# shellcheck disable=SC2046
meson_tests "$root/build" "tests" $(without $((1 - PST_TEST_SEED % 2)))

if [ "$mode" != --quick ]; then
  counted "comparison with PyTorch" compare.py "$root/out/compare" \
    "${sample[@]}"
  counted "models of the zoo in all cuts" sweep.py "$root/out/sweep" \
    "${sample[@]}"
  counted "numbered cases" ../conformance/conformance.py \
    "$root/out/conformance" "${seed[@]}"
  counted "modules replaced" swap.py "$root/out/swap" "${seed[@]}"
  counted "texts with a cache" decode.py "$root/out/decode" "${seed[@]}"
  counted "weights in and out" weights.py "$root/out/weights" "${seed[@]}"
  counted "README, word for word" readme.py "$root/out/readme"
  counted "real weights: a sentence encoder" sentences.py \
    "$root/out/sentences" "${seed[@]}"
  need_python
  claim "97 % of the digits" env "PENSTOCK_PYTHON=$python" \
    bash "$root/examples/digits/train.sh"
  join_aside
fi

say "$(($(date +%s) - begin)) seconds, PST_TEST_SEED=$PST_TEST_SEED"
echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
