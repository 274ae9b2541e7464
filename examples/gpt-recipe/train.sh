#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Trains the model of prepare.py on two ranks, and evaluates the averages.
#
#     train.sh PENSTOCK FOLDER
set -eu
penstock=$(realpath "$1")
cd "$2"
lr=3e-3
[ "${SIZE:-}" != 10m ] || lr=1e-3
rm -rf run
"$penstock" run gpt.pt2 -n 2 --stages 2 -m 2 --steps 300 \
    --data text.bin:0.6,code.bin:0.4 --pack 0 --microbatch-weights equal \
    --optimizer adamw --lr "$lr" --weight-decay .1 --beta2 .95 \
    --no-decay norms,biases,embeddings --clip-norm 1 \
    --lr-schedule wsd --warmup 20 --lr-decay-steps 100 \
    --ema .98 --checkpoint run --log-dir run \
    --eval-data text=text-val.bin --eval-data code=code-val.bin \
    --eval-every 100
for kind in text code; do
    "$penstock" eval gpt.pt2 --stages 2 -m 2 --checkpoint run --use-ema \
        --data "$kind-val.bin" --pack 0
done
