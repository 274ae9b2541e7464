#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Times training steps of penstock and of PyTorch's own pipelines, and prints a
# table.
#
#   scripts/bench.sh [--rounds N] [--steps N] [--only TEXT] [--list] [--short]
#
# Needs two idle cores. Exit code 1 if a target is missed.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

need_build
need_python
exec "$python" "$root/tests/bench/bench.py" "$root/build/daemon/penstock" \
  "$root/out/bench" "$@"
