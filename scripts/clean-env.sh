#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test without what the user's environment says to penstock, with chance
# from PST_TEST_SEED, and ends it when it takes four times as long as a test may
# wait for anything (tests/patience.h).
#
#   scripts/clean-env.sh COMMAND [arguments]
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
draw_by_seed
patience=$(sed -n 's/^#define PST_PATIENCE_S //p' "$root/tests/patience.h")
exec timeout --kill-after=10 \
  "$(awk -v p="$patience" -v n="${PST_TEST_SLOW:-1}" 'BEGIN { print 4 * p * n }')" \
  "$@"
