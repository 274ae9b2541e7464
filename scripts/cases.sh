#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Runs the numeric cases of operators, 200 random chains of operators, a sample
# of operators on all dtypes and the ends of what numbers can be
# (tests/cases/README.md), once for each instruction set of the processor.
#
#   scripts/cases.sh [options of tests/cases/main.c]
#
# Ends with "N passed, N failed": a program counts once, and passes if it does
# with all kernels. A line of tests/cases/known.txt that nothing needs fails.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

data=$root/build/tests/data/cases
chains=$root/build/chains
need_build
if ! cmp -s "$root/tests/cases/chains.py" "$chains/chains.py"; then
  need_python
  say "writing chains of operators with PyTorch (once, half a minute)"
  rm -rf "$chains"
  "$python" "$root/tests/cases/chains.py" "$chains" || die "chains.py failed"
  cp "$root/tests/cases/chains.py" "$chains/chains.py"
fi
dtypes=$root/build/dtypes
if ! cmp -s "$root/tests/cases/dtypes.py" "$dtypes/dtypes.py"; then
  need_python
  say "writing operators of all dtypes with PyTorch (once, a minute)"
  rm -rf "$dtypes"
  "$python" "$root/tests/cases/dtypes.py" "$dtypes" --count 500 \
    2>"$root/build/dtypes.log" || die "dtypes.py failed: build/dtypes.log"
  cp "$root/tests/cases/dtypes.py" "$dtypes/dtypes.py"
fi

edges=$root/build/edges
if ! cmp -s "$root/tests/cases/edges.py" "$edges/edges.py"; then
  need_python
  say "writing edges of what numbers can be with PyTorch (once, seconds)"
  rm -rf "$edges"
  "$python" "$root/tests/cases/edges.py" "$edges" 2>"$root/build/edges.log" ||
    die "edges.py failed: build/edges.log"
  cp "$root/tests/cases/edges.py" "$edges/edges.py"
fi
layouts=$root/build/layouts
if ! cmp -s "$root/tests/cases/layouts.py" "$layouts/layouts.py"; then
  need_python
  say "writing layouts in memory with PyTorch (once, half a minute)"
  rm -rf "$layouts"
  "$python" "$root/tests/cases/layouts.py" "$layouts" \
    2>"$root/build/layouts.log" || die "layouts.py failed: build/layouts.log"
  cp "$root/tests/cases/layouts.py" "$layouts/layouts.py"
fi

# verdicts SET: runs a set by four kernel sets; a program counts once.
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
    # A line of the list that nothing needs is a failure of its own.
    grep -c '^STALE' "$log" >>"$stale" || true
    kernels=(-k best) # the reference is the same everywhere
  done
  awk '{ if (!($1 in v) || $2 == "failed") v[$1] = $2 }
    END { for (c in v) print v[c] }' "$set".*.verdicts >>"$all"
}

all=$(mktemp)
stale=$(mktemp)
trap 'rm -f "$all" "$stale"' EXIT
for set in "$data" "$chains" "$dtypes" "$edges" "$layouts"; do
  rm -f "$set".*.verdicts
  verdicts "$set" "$@"
done
awk 'NR == FNR { n[$1]++; next } { n["failed"] += $1 }
  END { printf "%d refused as expected\n", n["refused"]
    printf "%d passed, %d failed\n", n["passed"], n["failed"] }' \
  "$all" "$stale"
