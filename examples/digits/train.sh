#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Trains the digits example on two ranks, then tests it on digits that were not
# in the training data.
#
#   examples/digits/train.sh [--steps N]
#
# Python with PyTorch and safetensors writes model and data: the interpreter of
# .venv, which is made if necessary, or the one that PENSTOCK_PYTHON names. All
# output is in out/digits/; the curves of loss and accuracy are
# out/digits/curve.svg. Fails if less than 97 % of the test digits are right.
source "$(dirname "${BASH_SOURCE[0]}")/../../scripts/setup.sh"

steps=300
while [ $# -gt 0 ]; do
  case $1 in
    --steps) steps=${2:?--steps needs a number}; shift 2 ;;
    *) die "usage: examples/digits/train.sh [--steps N]" ;;
  esac
done

need_build
here=$root/examples/digits
penstock=$root/build/daemon/penstock
out=$root/out/digits
need_python
if [ ! -f "$out/digits.pt2" ]; then
  say "writing model and data"
  "$python" "$here/prepare.py" "$out" 2>/dev/null ||
    die "prepare.py failed with $python"
fi
rm -rf "$out/plan" "$out/checkpoint" "$out/log" "$out/accuracy"

say "splitting into two stages"
"$penstock" split "$out/digits.pt2" -o "$out/plan" --stages 2

# Trains in six parts; each resumes from the checkpoint of the previous one.
for part in 1 2 3 4 5 6; do
  to=$((steps * part / 6))
  resume=()
  [ "$part" = 1 ] || resume=(--resume)
  say "training to step $to, 2 ranks, batches of 64"
  "$penstock" run "$out/plan" -n 2 --schedule 1f1b -m 2 --steps "$to" \
    --data "$out/train.safetensors" --shuffle --seed 1 \
    --optimizer adamw --lr 3e-3 --lr-schedule cosine --lr-steps "$steps" \
    --threads 1 --log-every 1 --checkpoint "$out/checkpoint" \
    --log-dir "$out/log/$part" "${resume[@]}"
  wrong=$("$penstock" eval "$out/digits.pt2" --loss 1 --json \
    --data "$out/test.safetensors" --checkpoint "$out/checkpoint" --threads 1 |
    sed 's/.*"loss":\([^,]*\),.*/\1/')
  echo "$to $wrong" >>"$out/accuracy"
  awk -v w="$wrong" 'BEGIN { printf "test accuracy %.2f %%\n", 100 - 100 * w }'
done

cat "$out"/log/*/rank-0.log |
  awk -v accuracy="$out/accuracy" -f "$here/curve.awk" >"$out/curve.svg"
say "done; files are in out/digits"
awk -v w="$wrong" 'BEGIN { exit !(w <= 0.03) }' ||
  die "the test accuracy is below 97 %"
