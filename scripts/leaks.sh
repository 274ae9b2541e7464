#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Opens and closes models, sessions and programs of libpenstock under valgrind:
# nothing is lost, and no access is wrong.
#
#   scripts/leaks.sh [TIMES]     default 1000, 70 s of processor time
#
# Libraries below keep memory until the process ends, so that a first run shows
# how much that is: all times together must keep not a byte more.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

times=${1:-1000}
[[ $times =~ ^[1-9][0-9]*$ ]] || die "usage: scripts/leaks.sh [TIMES]"
forget_options
need_packages valgrind
need_build
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# kept TIMES: runs tests/lib/life.c and prints the bytes that valgrind lists in
# the end, of each kind.
kept() {
  local checkpoints
  checkpoints=$(mktemp -d -p "$folder")
  valgrind --leak-check=full --errors-for-leak-kinds=definite,indirect \
    --error-exitcode=1 --log-file="$folder/log" \
    "$root/build/tests/lib/lib-life" "$root/tests/golden/tiny.pt2" \
    "$root/tests/golden/order.pt2" "$root/tests/golden/order-more.pt2" "$1" \
    "$checkpoints" >"$folder/out" 2>&1 || {
    cat "$folder/out" "$folder/log" >&2
    die "valgrind found a fault"
  }
  awk '/ (definitely|indirectly|possibly) lost: | still reachable: / {
    sub(/^==[0-9]+== +/, ""); sub(/ bytes.*/, ""); print }' "$folder/log"
}

first=$(kept 1)
say "1 time: " $first
all=$(kept "$times")
say "$times times: " $all
[ -n "$all" ] && [ "$first" = "$all" ] || die "more is kept"
say "nothing is lost"
