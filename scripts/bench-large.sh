#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Measures how long it takes to prepare a job for large graphs: the CPU seconds
# of split, save, load, plan and start, all in one process.
#
# usage: scripts/bench-large.sh [BUILD]
set -eu
cd "$(dirname "$0")/.."
build=${1:-build}
ninja -C "$build" tests/split/test-split-scale >/dev/null
for size in "20000 2" "20000 8" "100000 2" "100000 8"; do
	# shellcheck disable=SC2086
	"$build/tests/split/test-split-scale" $size
done
