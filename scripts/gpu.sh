#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures the device "cuda" on a machine with one GPU, which needs the
# driver and Python with PyTorch, and no Debian packages.
#
#   scripts/gpu.sh pack DIR    here: builds, and packs what runs there
#   scripts/gpu.sh run DIR [OUT]   there: tests, then times of steps beside
#                              PyTorch's; the table is OUT/table.txt
#
# `run` takes less than seven minutes; each part has a limit of its own, and a
# part that fails is named in the table, and the exit code is 1 then. With PENSTOCK_LIBCUDA set to the tests'
# driver (build/tests/cuda/libcuda-test.so) it tries itself without a GPU.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage="usage: scripts/gpu.sh pack DIR | run DIR [OUT]"
tests="ops/test-ops-kernels cuda/test-cuda-matmul cuda/test-cuda-faults
  cuda/test-cuda-grad cuda/test-cuda-runs"

# libraries FILE...: what they are linked to, but for glibc's.
libraries() {
  ldd "$@" | awk '/=> \// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so'
}

pack() {
  local dir=$1 name files=()
  need_build
  mkdir -p "$dir/bin" "$dir/lib"
  for name in $tests; do files+=("$root/build/tests/$name"); done
  files+=("$root/build/daemon/penstock" "$root/build/daemon/penstockd")
  for name in "${files[@]}"; do
    strip -o "$dir/bin/$(basename "$name")" "$name"
  done
  libraries "${files[@]}" | xargs cp -Lt "$dir/lib"
  cp -r "$root/tests/golden" "$dir/"
  cp "$root/examples/bytegpt/bytegpt.pt2" /usr/share/common-licenses/GPL-3 \
    "$dir/"
  du -sh "$dir"
}

# part NAME SECONDS COMMAND...: runs it and adds a line to the table.
part() {
  local name=$1 limit=$2 begin code=0
  shift 2
  begin=$(date +%s.%N)
  timeout --kill-after=5 "$limit" "$@" >"$out/$name.log" 2>&1 || code=$?
  [ $code = 0 ] || failed=1
  printf '| %s | %s | %.1f s | %s |\n' "$name" \
    "$([ $code = 0 ] && echo passed || echo "FAILED ($code)")" \
    "$(awk -v a="$begin" -v b="$(date +%s.%N)" 'BEGIN { print b - a }')" \
    "$(grep -E 'PASSED|GPU [0-9]|error|Error|penstock:' "$out/$name.log" |
      tail -n 1 | cut -c1-120 | tr '|' '/')" | tee -a "$table"
}

run() {
  local dir name failed=0
  dir=$(realpath "$1")
  out=$(realpath -m "${2:-$dir/out}")
  table=$out/table.txt
  mkdir -p "$out"
  export LD_LIBRARY_PATH=$dir/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  export PATH=$dir/bin:$PATH PST_GOLDEN=$dir/golden OPENBLAS_NUM_THREADS=1
  {
    "$dir/bin/penstock" doctor | grep 'GPU [0-9]' || echo "doctor finds no GPU"
    date -u +%F
    echo
    echo "| part | result | time | last words |"
    echo "| --- | --- | --- | --- |"
  } 2>/dev/null | tee "$table"
  part doctor 60 "$dir/bin/penstock" doctor
  for name in $tests; do
    PENSTOCK_DEVICE=cuda part "$(basename "$name")" 100 \
      "$dir/bin/$(basename "$name")"
  done
  part models 300 "${PENSTOCK_PYTHON:-python3}" \
    "$root/tests/cuda/models.py" "$dir/bin/penstock" "$dir" "$out"
  cat "$out/models.txt" >>"$table" 2>/dev/null || true
  cat "$out/models.txt" 2>/dev/null || tail -n 5 "$out/models.log"
  return "$failed"
}

case ${1:-} in
  pack) pack "${2:?$usage}" ;;
  run) run "${2:?$usage}" "${3:-}" ;;
  *) die "$usage" ;;
esac
