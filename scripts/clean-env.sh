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
# Keeps what a test measures of the machine in a folder of its own, so that it
# does not change other tests.
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
[ -n "${CCACHE_DIR:-}" ] || [ ! -d ~/.cache/ccache ] ||
  export CCACHE_DIR=~/.cache/ccache
export XDG_CACHE_HOME=$cache
patience=$(sed -n 's/^#define PST_PATIENCE_S //p' "$root/tests/patience.h")
timeout --kill-after=10 \
  "$(awk -v p="$patience" -v n="${PST_TEST_SLOW:-1}" 'BEGIN { print 4 * p * n }')" \
  "$@"
