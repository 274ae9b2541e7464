#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test without penstock's variables in the environment and with the
# random seed PST_TEST_SEED. Ends it after four times the maximum wait of a
# test (tests/patience.h).
#
#   scripts/clean-env.sh COMMAND [arguments]
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
draw_by_seed
# What a machine was measured at is kept there, not in the user's folder.
export XDG_CACHE_HOME=${MESON_BUILD_ROOT:-$root/build}/cache
patience=$(sed -n 's/^#define PST_PATIENCE_S //p' "$root/tests/patience.h")
exec timeout --kill-after=10 \
  "$(awk -v p="$patience" -v n="${PST_TEST_SLOW:-1}" 'BEGIN { print 4 * p * n }')" \
  "$@"
