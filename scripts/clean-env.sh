#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs a test without what the user's environment says to penstock.
#
#   scripts/clean-env.sh COMMAND [arguments]
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
exec "$@"
