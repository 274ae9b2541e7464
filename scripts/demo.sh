#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains the example model on text, on two ranks, and generates text with it.
#
#   scripts/demo.sh [--text FILE] [--steps N]
#
# Installs Debian packages and builds first if necessary. Writes only into
# out/demo/.
source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

text=
steps=400
while [ $# -gt 0 ]; do
  case $1 in
    --text) text=${2:?--text needs a file}; shift 2 ;;
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    *) die "usage: scripts/demo.sh [--text FILE] [--steps N]" ;;
  esac
done

need_build
penstock=$root/build/daemon/penstock
out=$root/out/demo
rm -rf "$out"
mkdir -p "$out"

if [ -n "$text" ]; then
  cp -- "$text" "$out/text.txt"
else
  text=/usr/share/common-licenses
  find "$text" -type f -print0 | LC_ALL=C sort -z | xargs -0 cat \
    >"$out/text.txt"
fi
say "text: $(stat -c %s "$out/text.txt") bytes of $text"

say "splitting examples/bytegpt/bytegpt.pt2 into two stages"
"$penstock" split "$root/examples/bytegpt/bytegpt.pt2" -o "$out/plan" \
  --stages 2

say "training: $steps steps of 16 sequences, 2 ranks, 1f1b"
"$penstock" run "$out/plan" -n 2 --schedule 1f1b --microbatches 4 \
  --steps "$steps" --data "$out/text.txt" --shuffle --seed 1 \
  --optimizer adamw --lr 2e-3 --threads 1 --log-every 1 \
  --checkpoint "$out/checkpoint" --log-dir "$out/log"

say "loss in nats a byte"
awk -v rows=12 -v columns=64 -f "$root/scripts/curve.awk" \
  "$out/log/rank-0.log"

say "what the trained model writes"
"$penstock" infer "$out/plan" --checkpoint "$out/checkpoint" \
  --prompt "You may copy and distribute " --tokens 500 --temperature 0.7 \
  --seed 1
echo
say "done; files are in out/demo"
