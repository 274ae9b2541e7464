#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Installs what the tests need, builds, and runs all tests.
#
#   scripts/test.sh [--quick|--full]
#
# --quick omits the comparison with PyTorch and the sanitizers; --full runs
# every case of the comparison instead of a sample. Ends with the duration of
# each part, and the lines "N skipped" and "N passed, N failed". The tests read
# only files of the repository. Random seeds are fixed, so each run has the
# same samples; scripts/hunt.sh uses other seeds. PENSTOCK_MESON: additional
# options of `meson setup`. PST_TEST_SLOW=N: tests wait N times as long for
# events, on a slow or loaded machine.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

mode=${1:-}
case $mode in
  '' | --quick | --full) ;;
  *) die "usage: scripts/test.sh [--quick|--full]" ;;
esac

forget_options
PST_TEST_SEED=1
draw_by_seed
# Ranks of tests do not look for network cards and GPUs on the PCI bus, which
# takes a fifth of the CPU time of a start with mpirun.
export HWLOC_COMPONENTS=-pci,-linuxio,-opencl,-gl,-cuda,-nvml
# The first python3 may be a script that takes 0.1 seconds to find the program.
PATH=$(python3 -c 'import os, sys; print(os.path.dirname(sys.executable))'):$PATH
passed=0
failed=0
skipped=0
begin=$(date +%s)
log=$(mktemp)
beside=$(mktemp -d)
times=$beside/times # lines: seconds, CPU seconds, title
other=
trap 'rm -rf "$log" "$beside"; [ -z "$other" ] || kill "$other"' EXIT

# timed TITLE COMMAND...: runs a command and records its duration.
timed() {
  local title=$1 since before after code=0
  shift
  since=$(date +%s.%N)
  times >"$log.before"
  "$@" || code=$?
  times >"$log.after"
  before=$(worked "$log.before")
  after=$(worked "$log.after")
  awk -v s="$since" -v n="$(date +%s.%N)" -v a="$after" -v b="$before" \
    -v t="$title" 'BEGIN { printf "%.1f %.1f %s\n", n - s, a - b, t }' \
    >>"$times"
  return "$code"
}

# worked FILE: prints the CPU seconds in FILE, which has the output of `times`.
worked() {
  tr -s ' ' '\n' <"$1" |
    awk -F '[ms]' '{ n += 60 * $1 + $2 } END { printf "%.2f", n }'
}

# meson_tests DIR NAME [arguments]: runs tests and adds meson's counts to
# $passed, $failed and $skipped.
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
  # Counts a failure if nothing ran or if meson itself failed.
  if [ $((good + bad)) = 0 ] || { [ "$code" != 0 ] && [ "$bad" = 0 ]; }; then
    bad=$((bad + 1))
  fi
  if [ "$bad" = 0 ]; then
    grep -E '^ *[0-9]+/[0-9]+ ' "$log" || true
  else
    cat "$log"
    failures "$dir/meson-logs/testlog.json" >>"$beside/failures-$(basename "$dir")"
  fi
  sed -nE 's|^ *[0-9]+/[0-9]+ (.*[^ ]) +[A-Z]+ +([0-9.]+)s.*|\2 - \1|p' \
    "$log" | sed "s|\$| ($name)|" >>"$times"
  passed=$((passed + good))
  failed=$((failed + bad))
}

# failures FILE: prints the names of failed tests in meson's log FILE, with the
# last lines of each, for the end of the output.
failures() {
  python3 - "$1" <<'END'
import json
import sys

with open(sys.argv[1], encoding="utf-8") as file:
    for test in map(json.loads, file):
        if test["result"] not in ("OK", "SKIP", "EXPECTEDFAIL"):
            print(f"{test['name']}: {test['result']} after "
                  f"{test['duration']:.1f} s")
            said = (test.get("stderr") or test.get("stdout") or "")
            print("\n".join("    " + x for x in said.splitlines()[-12:]))
END
}

# claim TITLE COMMAND...: runs a command as one test and prints the last line
# with a measured value.
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

# Compares operators with PyTorch, all cases, since these take only seconds.
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

# sanitizers: builds with sanitizers and runs the tests that profit from them,
# but neither tests that wait for seconds nor tests that watch programs from
# other processes. Half of the long tests run only here, half only without
# sanitizers (`sanitized` and `unsanitized` in tests/); scripts/hunt.sh runs
# the second half with them, too.
sanitizers() {
  # -O1 runs twice as fast as -O0 and builds in nearly the same time. -g1 has
  # no locations of variables, which take a third of the compile time. At a
  # finding of UBSan the program traps, and ASan prints the stack: the texts of
  # all checks were 15 MB in each program, which starts and leak checks read.
  # Fixed addresses save hundreds of thousands of relocations at each start. GCC
  # gives two kinds of false warnings about code that the sanitizers have
  # changed.
  timed "building with ASan and UBSan" need_build "$root/build-asan" \
    -Dbuildtype=debug -Doptimization=1 -Db_pie=false -Db_staticpic=false \
    "-Dc_args=-g1 -fsanitize-undefined-trap-on-error -fno-pie
      -Wno-maybe-uninitialized -Wno-restrict" -Dcuda=disabled \
    -Db_sanitize=address,undefined -Db_lundef=false
  ASAN_OPTIONS=handle_sigill=1 timed "tests with ASan and UBSan" meson_tests "$root/build-asan" \
    "tests with ASan and UBSan" --num-processes $(($(nproc) + 1)) \
    --suite unit --no-suite waiting --no-suite plain --no-suite unsanitized
  only=tests-of-threads timed "building with TSan" need_build \
    "$root/build-tsan" -Dbuildtype=debug -Doptimization=1 -Dc_args=-g1 \
    -Dcuda=disabled \
    -Db_sanitize=thread -Db_lundef=false
  timed "ranks on threads, with TSan" meson_tests "$root/build-tsan" \
    "ranks on threads, with TSan" --suite threads
}

# row TITLE SCRIPT [arguments]: prints a line of the list for several.py.
row() {
  local IFS=$'\t'
  printf '%s\n' "$*"
}

# comparison_list: prints the comparisons with PyTorch, the longest first.
comparison_list() {
  row "comparison with PyTorch" compare.py "$root/out/compare" "${sample[@]}"
  row "numbered cases" ../conformance/conformance.py "$root/out/conformance" \
    "${seed[@]}"
  [ ! -f "$root/build/tests/cuda/libcuda-test.so" ] ||
    row "CUDA graphs, on the emulated driver" commands/graphs.py \
      "$root/out/graphs" "${sample[@]}" --only gpt2 --number 1
  row "model.eval()" commands/modes.py "$root/out/modes" "${seed[@]}"
  row "low-rank adapters" adapters/lora.py "$root/out/lora" "${seed[@]}"
  row "random trees of modules" trees/trees.py "$root/out/trees" \
    "${sample[@]}"
  row "models of the zoo in all cuts" sweep.py "$root/out/sweep" \
    "${sample[@]}"
  row "+ the library beside the command" library_bits.py "$root/out/sweep" \
    "${seed[@]}"
  row "random programs with aliases" alias/alias.py "$root/out/alias" \
    "${sample[@]}"
  row "mixed precision" autocast.py "$root/out/autocast" \
    --models gpt2,resnet,lstm,head_tied,head_product --curves gpt2
  row "mixed precision in f16" autocast.py "$root/out/autocast-f16" \
    --models gpt2,resnet,head_shifted --dtype f16
  row "loss scaling" scaling.py "$root/out/scaling" --models vit
  row "parameters in bf16" bf16_params.py "$root/out/bf16-params" \
    --models lstm --steps 60
  row "adapters on GPT-2" adapters/lora_curve.py "$root/out/curve" \
    "${seed[@]}"
  row "README, word for word" readme.py "$root/out/readme"
  row "modules replaced" commands/swap.py "$root/out/swap" "${seed[@]}"
  row "the library in Python" library.py
  row "tensors set and cast" commands/attr.py "$root/out/attr" "${seed[@]}"
  row "optimizers on three models" recipes.py
  row "weights in and out" commands/weights.py "$root/out/weights" "${seed[@]}"
  row "texts with a cache" commands/decode.py "$root/out/decode" "${seed[@]}"
  row "classes of transformers" libraries.py "$root/out/libraries" \
    --sample 3 "${seed[@]}"
  row "groups of parameters" groups.py
  row "real weights: a sentence encoder" commands/sentences.py \
    "$root/out/sentences" "${seed[@]}"
  row "storages that resize" commands/resizes.py
  row "adapters and whole modules" adapters/lora_whole.py
  row "packed documents" packing.py
  row "gradients of inputs" input_grads.py
}

# comparisons: runs those comparisons that nobody has taken yet, in copies of
# one process, two at once since each waits for programs now and then. Both
# halves of the tests call it when they have done the rest, so they end at about
# the same time.
comparisons() {
  local last good=0 bad=1
  need_python
  # PyTorch's second thread would spin and delay other processes.
  comparison_list | OMP_NUM_THREADS=1 "$python" \
    "$root/tests/compare/several.py" "$root/build/daemon/penstock" \
    --at-once 2 --times "$times" --taken "$beside/taken" 2>"$log.err" |
    tee "$log" | grep -vE '^[0-9]+ passed, ' || true
  last=$(tail -n 1 "$log")
  if [[ $last =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    good=${BASH_REMATCH[1]}
    bad=${BASH_REMATCH[2]}
  fi
  skipped=$((skipped + $(grep -c '^left out ' "$log" || true)))
  [ "$bad" = 0 ] || cat "$log.err"
  rm -f "$log.err"
  passed=$((passed + good))
  failed=$((failed + bad))
}

# rest: runs in the background beside the tests, many of which wait more than
# they compute. Its output and counts are added when it has ended.
rest() {
  sanitizers
  comparisons
}

aside() {
  log=$beside/log
  times=$beside/times-aside
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

# list_times: prints durations, the longest first: parts with their CPU
# seconds, then single tests.
list_times() {
  say "seconds, seconds of work, what; all of it is in out/checks.txt"
  mkdir -p "$root/out"
  cat "$beside"/times* | sort -rn >"$root/out/checks.txt"
  awk '$2 != "-"' "$root/out/checks.txt"
  awk '$2 == "-" && $1 >= 5' "$root/out/checks.txt"
}

# steps_beside_pytorch: prints a short benchmark. It counts as a test of the
# benchmark; how fast anything is decides nothing.
steps_beside_pytorch() {
  say "steps beside PyTorch: one short round, not judged"
  if "$python" "$root/tests/bench/bench.py" "$root/build/daemon/penstock" \
    "$root/out/bench" --short 2>&1 | tee "$log" &&
    grep -q '^| mlp-tiny | step ' "$log"; then
    passed=$((passed + 1))
  else
    failed=$((failed + 1))
  fi
}

full=()
[ "$mode" != --full ] || full=(--full)
seed=(--seed "$PST_TEST_SEED")
sample=("${full[@]}" "${seed[@]}")
# Installs programs that tests call. check-programs.py reads this list.
need_packages valgrind mtail logrotate prometheus iproute2 nftables strace \
  groff-base systemd lnav gfortran debhelper
# shellcheck disable=SC2086
timed "building" need_build "$root/build" ${PENSTOCK_MESON:-}
if [ "$mode" != --quick ]; then
  # The builds of `rest` need not wait until PyTorch is downloaded.
  aside rest &
  other=$!
  timed "PyTorch" need_python
fi
# Many of these tests wait, so there are more processes than processors. The
# sanitizers' part runs the two suites that are left out here.
# shellcheck disable=SC2046
timed "tests" meson_tests "$root/build" "tests" \
  --num-processes $(($(nproc) + 2)) \
  $([ "$mode" = --quick ] || echo --no-suite sanitized --no-suite threads)

if [ "$mode" != --quick ]; then
  need_python
  timed "cases of operators" cases
  timed "a schedule of 4096 ranks" claim \
    "a schedule of 4096 ranks and 16384 microbatches" \
    "$root/build/tests/sched/test-sched-scale" 4096 16384
  timed "97 % of the digits" claim "97 % of the digits" \
    env "PENSTOCK_PYTHON=$python" bash "$root/examples/digits/train.sh"
  comparisons
  join_aside
  timed "steps beside PyTorch" steps_beside_pytorch
fi

list_times
cat "$beside"/failures-* 2>/dev/null || true
say "$(($(date +%s) - begin)) seconds"
echo "$skipped skipped"
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
