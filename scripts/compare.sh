#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Compares results of penstock with those of PyTorch.
#
#   scripts/compare.sh [--full] [--seed N] [--only TEXT] [--list]
#   scripts/compare.sh sweep [--full] [--seed N] [--only TEXT] [--list]
#   scripts/compare.sh conformance [--seed N] [--only TEXT] [--list]
#   scripts/compare.sh modes [--seed N] [--only TEXT] [--list]
#   scripts/compare.sh trees [--full] [--seed N] [--number N] [--one SEED]
#   scripts/compare.sh weights [--seed N] [--only TEXT] [--large]
#   scripts/compare.sh alias [--seed N] [--count N]
#   scripts/compare.sh libraries [--library NAME] [--only TEXT] [--sample N]
#
# These lines compare, in this order: training steps of real models, tensor by
# tensor; every model of tests/compare/zoo.py in every cut; the numbered cases
# of tests/conformance/README.md; operators that depend on model.eval(); random
# trees of modules; import and export of weights; random programs that write
# through aliases; classes of a library of models (docs/libraries.md). Without
# --full the first two and the trees run a sample. Ends with "N passed, N
# failed".
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

forget_options
need_build
need_python
penstock=$root/build/daemon/penstock
case ${1:-} in
  sweep)
    shift
    exec "$python" "$root/tests/compare/sweep.py" "$penstock" \
      "$root/out/sweep" "$@"
    ;;
  conformance)
    shift
    exec "$python" "$root/tests/conformance/conformance.py" "$penstock" \
      "$root/out/conformance" "$@"
    ;;
  trees)
    shift
    exec "$python" "$root/tests/compare/trees/trees.py" "$penstock" \
      "$root/out/trees" "$@"
    ;;
  weights)
    shift
    exec "$python" "$root/tests/compare/commands/weights.py" "$penstock" \
      "$root/out/weights" "$@"
    ;;
  alias)
    shift
    exec "$python" "$root/tests/compare/alias/alias.py" "$penstock" \
      "$root/out/alias" "$@"
    ;;
  libraries)
    shift
    exec "$python" "$root/tests/compare/libraries.py" "$penstock" \
      "$root/out/libraries" "$@"
    ;;
  modes)
    shift
    exec "$python" "$root/tests/compare/commands/modes.py" "$penstock" \
      "$root/out/modes" "$@"
    ;;
esac
exec "$python" "$root/tests/compare/compare.py" "$penstock" \
  "$root/out/compare" "$@"
