#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares training steps of real models with PyTorch, tensor by tensor.
#
#   scripts/compare.sh [--full] [--seed N] [--only TEXT] [--list]
#
# Without --full it runs a sample. Ends with "N passed, N failed".
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

need_build
need_python
exec "$python" "$root/tests/compare/compare.py" "$root/build/daemon/penstock" \
  "$root/out/compare" "$@"
