#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Tests and measures the device "cuda" on a machine with one GPU.
#
#   scripts/gpu.sh pack FILE.tar.xz       on the machine that builds: packs what
#                                         `run` needs
#   scripts/gpu.sh run FILE [OUT]         on the machine with the GPU: tests,
#                                         and times penstock and PyTorch
#   scripts/gpu.sh run --more FILE [OUT]  runs the parts that `run` leaves out
#
# `run` needs a clone of the repository, FILE (or the folder that FILE unpacks
# to), the driver, Python, PyTorch with transformers and safetensors, and no
# Debian packages. Without PyTorch, `run` reports that and runs the parts that
# do not need PyTorch. `run` writes OUT/table.md, which it also prints,
# OUT/rows.json and OUT/log.txt. OUT is gpu-out by default. Models are kept in
# $PST_GPU_WORK, by default /tmp/penstock-gpu, where `run --more` finds them.
# `run` takes less than seven minutes; each part has a limit of its own. Exit
# code 1: a part has failed. --only PART,... runs these parts alone
# (tests/cuda/gpu.py lists them).
#
# To try it without a GPU, set PENSTOCK_LIBCUDA to the tests' driver,
# build/tests/cuda/libcuda-test.so: all sizes are tiny then, and PyTorch
# computes on the CPU.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

usage="usage: scripts/gpu.sh pack FILE.tar.xz | run [--more] [--only PART,...] \
FILE [OUT]"
programs="daemon/penstock daemon/penstockd tests/cuda/test-cuda-matmul
  tests/cuda/test-cuda-faults tests/cuda/test-cuda-grad
  tests/cuda/test-cuda-runs tests/cuda/time-kernels
  tests/ops/test-ops-kernels tests/optim/test-updates"
debian=/usr/lib/x86_64-linux-gnu

# libraries FILE...: prints the libraries that these files are linked to,
# except those of glibc.
libraries() {
  ldd "$@" | awk '/=> \// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libpthread|libdl|librt|ld-linux[^/]*)\.so'
}

# open_mpi DIR: copies mpirun, its plugins and its texts to DIR, where mpirun
# finds them if OPAL_PREFIX is DIR. Plugins for networks that need more
# libraries are left out.
open_mpi() {
  local dir=$1 plugins=$1/lib/x86_64-linux-gnu/openmpi/lib/openmpi3 name
  mkdir -p "$plugins" "$dir/share" "$dir/etc" "$dir/pmix/lib"
  strip -o "$dir/bin/mpirun" "$(readlink -f /usr/bin/mpirun)"
  for name in "$debian"/openmpi/lib/openmpi3/*.so; do
    ldd "$name" | grep -qE 'uc[pst]|fabric|psm|verbs|rdmacm|libnl' ||
      cp "$name" "$plugins/"
  done
  cp -r /usr/share/openmpi "$dir/share/"
  cp -r "$debian/pmix2/lib/pmix" "$dir/pmix/lib/"
  cp /etc/openmpi/openmpi-mca-params.conf "$dir/etc/"
  libraries "$dir/bin/mpirun" "$plugins"/*.so "$dir"/pmix/lib/pmix/*.so |
    xargs cp -Lt "$dir/lib"
}

pack() {
  local file=$1 dir name
  need_packages xz-utils git
  only=$programs need_build
  dir=$(mktemp -d)
  # shellcheck disable=SC2064
  trap "rm -rf '$dir'" EXIT
  mkdir -p "$(dirname "$file")" "$dir/bin" "$dir/lib"
  for name in $programs; do
    strip -o "$dir/bin/$(basename "$name")" "$root/build/$name"
  done
  libraries "$dir"/bin/* | xargs cp -Lt "$dir/lib"
  open_mpi "$dir"
  cp -r "$root/tests/golden" "$dir/"
  cp "$root/examples/bytegpt/bytegpt.pt2" /usr/share/common-licenses/GPL-3 \
    "$dir/"
  git -C "$root" describe --always --dirty >"$dir/commit" 2>/dev/null ||
    echo unknown >"$dir/commit"
  say "compressing $(du -sm "$dir" | cut -f1) MB"
  # The programs share most of their code. The window of -9 (64 MiB) is large
  # enough to find what they share.
  tar -C "$dir" --owner=0 --group=0 -cf - bin lib share etc pmix golden \
    bytegpt.pt2 GPL-3 commit | xz -9 -T1 >"$file"
  say "$file: $(du -m "$file" | cut -f1) MB"
}

# unpack FILE DIR: unpacks an archive; uses Python if there is no program xz.
unpack() {
  mkdir -p "$2"
  if command -v xz >/dev/null; then
    tar -C "$2" -xf "$1"
  else
    "$python" -c 'import sys, tarfile
tarfile.open(sys.argv[1], "r:xz").extractall(sys.argv[2])' "$1" "$2"
  fi
}

run() {
  local words=() file out work
  while [[ ${1:-} = --* ]]; do
    words+=("$1")
    if [ "$1" = --only ]; then
      words+=("${2:?$usage}")
      shift
    fi
    shift
  done
  file=$(realpath "${1:?$usage}")
  out=$(realpath -m "${2:-gpu-out}")
  work=${PST_GPU_WORK:-${TMPDIR:-/tmp}/penstock-gpu}
  python=${PENSTOCK_PYTHON:-python3}
  forget_options
  command -v "$python" >/dev/null || die "gpu.sh run needs python3"
  mkdir -p "$work" "$out"
  if [ ! -d "$file" ]; then
    [ -x "$work/pack/bin/penstock" ] &&
      [ "$work/pack/unpacked" -nt "$file" ] || {
      rm -rf "$work/pack"
      unpack "$file" "$work/pack" || die "cannot unpack $file"
      touch "$work/pack/unpacked"
    }
    file=$work/pack
  fi
  exec "$python" "$root/tests/cuda/gpu.py" ${words[@]+"${words[@]}"} \
    "$file" "$work" "$out"
}

case ${1:-} in
  pack) pack "${2:?$usage}" ;;
  run) run "${@:2}" ;;
  *) die "$usage" ;;
esac
