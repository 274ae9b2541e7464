#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Times single kernels of penstock and of PyTorch on one thread, and prints a
# table.
#
#   scripts/bench-kernels.sh [--only TEXT] [--rounds N] [--strict]
#
# Needs an idle core.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

need_build
ninja -C "$root/build" tests/bench/bench-kernels >/dev/null
need_python
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
exec "$python" "$root/tests/bench/kernels.py" \
  "$root/build/tests/bench/bench-kernels" "$@"
