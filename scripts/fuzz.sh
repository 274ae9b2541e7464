#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Fuzzes every reader of untrusted bytes (tests/fuzz/targets/), with libFuzzer,
# ASan and UBSan.
#
#   scripts/fuzz.sh [SECONDS [TARGET...]]   SECONDS: in total (default 600)
#   scripts/fuzz.sh --coverage [--lines]    prints how much of each parser the
#                                           corpus covers; the uncovered lines
#
# out/fuzz/TARGET keeps new inputs, with which the next run continues;
# out/fuzz/finding-TARGET-* is a finding. To repeat one:
#   build/tests/fuzz/targets/test-fuzz-corpus TARGET FILE
# Ends with "N targets, N findings"; with findings the exit code is 1.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

if [ "${1:-}" = --coverage ]; then
  only=tests/fuzz/targets/test-fuzz-corpus need_build "$root/build-cov" \
    -Dbuildtype=debug -Db_coverage=true -Donednn=disabled -Dmpi=disabled
  exec python3 "$root/tests/fuzz/coverage.py" "$root/build-cov" "${@:2}"
fi
seconds=${1:-600}
shift || true
[[ $seconds =~ ^[0-9]+$ ]] ||
  die "usage: scripts/fuzz.sh [SECONDS [TARGET...]] or --coverage [--lines]"
clang=${CLANG:-clang-14}
[ -n "${CLANG:-}" ] || need_packages clang-14 libclang-rt-14-dev
export CC=$clang
# Threads of OpenBLAS would only slow down the targets: none of them tests
# OpenBLAS.
export OPENBLAS_NUM_THREADS=1
only=tests/fuzz/targets/fuzz need_build "$root/build-fuzz" -Dbuildtype=debug \
  -Doptimization=1 -Db_sanitize=address,undefined -Db_lundef=false \
  -Dfuzzers=enabled -Donednn=disabled -Dmpi=disabled -Dcuda=disabled
fuzz=$root/build-fuzz/tests/fuzz/targets/fuzz
corpus=$root/tests/fuzz/corpus
out=$root/out/fuzz
targets=("$@")
[ ${#targets[@]} -gt 0 ] || mapfile -t targets < <(ls "$corpus")
each=$((seconds / ${#targets[@]}))
[ "$each" -gt 0 ] || each=1
# An execution frees far less than 16 MB: a larger quarantine would only touch
# more memory. test-fuzz-corpus prints the whole stack of an allocation.
export ASAN_OPTIONS=allocator_may_return_null=1:detect_leaks=1
ASAN_OPTIONS+=:quarantine_size_mb=16:malloc_context_size=1
export UBSAN_OPTIONS=print_stacktrace=1:halt_on_error=1
export LSAN_OPTIONS=suppressions=$root/tests/lsan.supp:print_suppressions=0
findings=0
for target in "${targets[@]}"; do
  [ -d "$corpus/$target" ] || die "there is no target $target"
  mkdir -p "$out/$target"
  # Inputs that take much memory are findings, too, and slow ones: 20 s of CPU
  # time (libfuzzer.c), or an endless loop. The entropic schedule takes half of
  # the time, since plan and model have many counters.
  if ! PST_FUZZ_TARGET=$target "$fuzz" -max_total_time="$each" -timeout=600 \
    -report_slow_units=600 -malloc_limit_mb=512 -rss_limit_mb=2048 \
    -entropic=0 -verbosity=0 -print_final_stats=1 \
    -artifact_prefix="$out/finding-$target-" \
    "$out/$target" "$corpus/$target" >"$out/$target.log" 2>&1; then
    findings=$((findings + 1))
    tail -n 40 "$out/$target.log"
  fi
  printf '%-12s %s executions, %s accepted, %s files of corpus\n' "$target" \
    "$(awk '/number_of_executed_units/ { print $2 }' "$out/$target.log")" \
    "$(awk '/^stat::accepted/ { print $2 }' "$out/$target.log")" \
    "$(find "$out/$target" -type f | wc -l)"
done
echo "${#targets[@]} targets, $findings findings"
[ "$findings" = 0 ]
