// SPDX-License-Identifier: Apache-2.0
/* Names of options in other trainers (transformers, Megatron-LM, nanoGPT,
 * torchtitan, Lightning, DeepSpeed), for people who come from there. */
#include "daemon/common/config.h"

#include <string.h>

static const struct {
    const char *theirs, *ours;
} names[] = {
    {"accumulate-grad-batches", "-m N"},
    {"activation-checkpointing", "--recompute full"},
    {"adam-beta1", "--beta1 X"},
    {"adam-beta2", "--beta2 X"},
    {"adam-eps", "--eps X"},
    {"adam-epsilon", "--eps X"},
    {"amp", "--autocast bf16 or f16"},
    {"batch-size", "--batch ROWS (of a step) or --microbatch-size N"},
    {"bf16", "--autocast bf16 (mixed precision) or --dtype bf16 (matmuls)"},
    {"block-size", "--seq-len N"},
    {"clip-grad", "--clip-norm X"},
    {"data-path", "--data FILE"},
    {"early-stopping-patience", "--patience N"},
    {"eval-interval", "--eval-every N"},
    {"eval-iters", "--eval-batches N"},
    {"eval-steps", "--eval-every N"},
    {"fp16", "--autocast f16"},
    {"global-batch-size", "--batch ROWS"},
    {"grad-clip", "--clip-norm X"},
    {"gradient-accumulation-steps", "-m N"},
    {"gradient-checkpointing", "--recompute full"},
    {"gradient-clip-val", "--clip-norm X"},
    {"initial-loss-scale", "--loss-scale init=X"},
    {"learning-rate", "--lr X"},
    {"load", "--checkpoint DIR --resume"},
    {"log-interval", "--log-every N"},
    {"logging-steps", "--log-every N"},
    {"loss-scale-window", "--loss-scale growth-interval=N"},
    {"lr-decay-iters", "--lr-steps N"},
    {"lr-decay-style", "--lr-schedule NAME"},
    {"lr-scheduler", "--lr-schedule NAME"},
    {"lr-scheduler-type", "--lr-schedule NAME"},
    {"lr-warmup-iters", "--warmup N"},
    {"lora-alpha", "--lora PATTERN:rank=R,alpha=X"},
    {"lora-dropout", "--lora PATTERN:rank=R,dropout=P"},
    {"max-grad-norm", "--clip-norm X"},
    {"max-epochs", "--epochs X"},
    {"max-iters", "--steps N"},
    {"max-seq-len", "--seq-len N"},
    {"max-steps", "--steps N"},
    {"micro-batch-size", "--microbatch-size N"},
    {"min-lr", "--lr-min X"},
    {"min-loss-scale", "--loss-scale min=X"},
    {"mixed-precision", "--autocast bf16 or f16"},
    {"modules-to-save", "--unfreeze MODULE (beside --lora)"},
    {"nproc-per-node", "-n N"},
    {"num-train-epochs", "--epochs X"},
    {"optim", "--optimizer NAME"},
    {"output-dir", "--checkpoint DIR"},
    {"per-device-train-batch-size", "--microbatch-size N"},
    {"pipeline-model-parallel-size", "-n N"},
    {"recompute-granularity", "--recompute WHAT"},
    {"resume-from-checkpoint", "--resume"},
    {"save", "--checkpoint DIR"},
    {"save-dir", "--checkpoint DIR"},
    {"save-interval", "--checkpoint-every N"},
    {"save-steps", "--checkpoint-every N"},
    {"save-total-limit", "--keep N"},
    {"seq-length", "--seq-len N"},
    {"train-data", "--data FILE"},
    {"train-iters", "--steps N"},
    {"training-steps", "--steps N"},
    {"warmup-iters", "--warmup N"},
    {"warmup-steps", "--warmup N"},
};

const char *pstd_option_from_trainer(const char *name)
{
    char plain[64];
    size_t n = strlen(name);

    if (n >= sizeof(plain))
        return NULL;
    for (size_t i = 0; i <= n; i++)
        plain[i] = (char)(name[i] == '_' ? '-' : name[i]);
    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i].theirs, plain) == 0)
            return names[i].ours;
    return NULL;
}
