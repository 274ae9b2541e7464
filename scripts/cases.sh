#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the numeric cases of operators (tests/cases/README.md), 200 random
# chains of operators, and samples of operators on all dtypes, on complex
# numbers and on extreme values, once for each instruction set of the
# processor.
#
#   scripts/cases.sh [--set NAME]... [options of tests/cases/main.c]
#   scripts/cases.sh [--set NAME]... --pack
#
# --set NAME: only data, chains, dtypes, edges, large, pairs or layouts.
# PST_TEST_SEED=N is the seed of the random sets. tests/data/drawn-*.tar.xz has
# the small sets of seed 1, which are used as long as the code that wrote them
# has not changed (tests/cases/digest.py); --pack writes these archives again.
# Ends with "N passed, N failed": a program counts once, and passes if it
# passes with all kernels. A line of tests/cases/known.txt that is not needed
# fails.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"
forget_options
sets=()
while [ "${1:-}" = --set ]; do
  sets+=("${2:?--set needs a name}")
  shift 2
done

data=$root/build/tests/data/cases
packed=$root/build/tests/data/drawn- # prefix; the name of a set follows
pack=
if [ "${1:-}" = --pack ]; then
  pack=yes
  [ ${#sets[@]} -gt 0 ] || sets=(chains dtypes edges pairs layouts)
  PST_TEST_SEED=1
fi
[ ${#sets[@]} -gt 0 ] || sets=(data chains dtypes edges large pairs layouts)
need_build

# drawn NAME TEXT [options]: draws a set by tests/cases/NAME.py and the seed,
# unless neither its sources nor the seed have changed.
drawn() {
  local name=$1 text=$2 dir=$root/build/$1 stamp
  shift 2
  [[ " ${sets[*]} " == *" $name "* ]] || return 0
  stamp="$seed $(python3 "$root/tests/cases/digest.py" "$name")"
  [ "$(cat "$dir/stamp" 2>/dev/null)" = "$stamp" ] && return
  rm -rf "$dir"
  if [ "$(cat "$packed$name/stamp" 2>/dev/null)" = "$stamp" ]; then
    cp -r "$packed$name" "$dir"
    return
  fi
  need_python
  say "writing $text with PyTorch (seed $seed)"
  "$python" "$root/tests/cases/$name.py" "$dir" "$@" 2>"$dir.log" ||
    die "$name.py failed: $dir.log"
  echo "$stamp" >"$dir/stamp"
}

last=$(awk '{ print $1 }' "$root/build/chains/stamp" 2>/dev/null || true)
seed=${PST_TEST_SEED:-${last:-1}}
drawn chains "chains of operators" --seed "$seed"
drawn dtypes "operators of all dtypes" --count 500 --seed "$seed"
drawn edges "edges of what numbers can be"
drawn large "edges on large tensors"
drawn pairs "complex numbers"
drawn layouts "layouts in memory" --seed "$seed"

if [ -n "$pack" ]; then
  for name in "${sets[@]}"; do
    file=$root/tests/data/drawn-$name.tar.xz
    (cd "$root/build/$name" && LC_ALL=C tar --mtime=@0 --owner=0 --group=0 \
      --numeric-owner -cJf "$file" -- *)
    say "tests/data/drawn-$name.tar.xz: $(stat -c %s "$file") bytes"
  done
  exit
fi

# verdicts SET: runs a set with the kernels of each instruction set and appends
# one result per program to $all.
verdicts() {
  local set=$1 isa name log code kernels=() excuses=()
  shift
  name=$(basename "$set")
  [ "$set" = "$data" ] && excuses=(-x "$root/tests/cases/known.txt")
  for isa in any avx2 avx512; do
    say "$name, at most $isa"
    log=$set.$isa.txt
    code=0
    PST_ISA=$isa "$root/build/tests/cases/cases" -o "$log.verdicts" \
      "${excuses[@]}" "${kernels[@]}" "$@" "$set" >"$log" || code=$?
    [ "$code" -lt 2 ] || die "cases failed: $log"
    if [ "$isa" = any ] && [ "$set" = "$data" ]; then
      cat "$log"
    else
      grep '^STALE' "$log" || true
      tail -n 1 "$log"
    fi
    # Counts lines of known.txt that were not needed: each is a failure.
    grep -c '^STALE' "$log" >>"$stale" || true
    # The reference kernels are the same for every instruction set.
    kernels=(-k best)
  done
  awk '{ if (!($1 in v) || $2 == "failed") v[$1] = $2 }
    END { for (c in v) print v[c] }' "$set".*.verdicts >>"$all"
}

all=$(mktemp)
stale=$(mktemp)
trap 'rm -f "$all" "$stale"' EXIT
for name in "${sets[@]}"; do
  set=$root/build/$name
  [ "$name" != data ] || set=$data
  [ -d "$set" ] || die "there is no set $name"
  rm -f "$set".*.verdicts
  verdicts "$set" "$@"
done
awk 'NR == FNR { n[$1]++; next } { n["failed"] += $1 }
  END { printf "%d refused as expected\n", n["refused"]
    printf "%d passed, %d failed\n", n["passed"], n["failed"]
    exit n["failed"] > 0 }' "$all" "$stale"
