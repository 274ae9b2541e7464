// SPDX-License-Identifier: Apache-2.0
/* The table of all options. */
#include "daemon/common/config.h"

#include <limits.h>

/* T_LOCAL: options of a run that may differ between ranks. The others must be
 * equal on all ranks. */
#define T_STEP  (PSTD_OPT_TRAIN | PSTD_OPT_STEP | PSTD_OPT_EQUAL)
#define T_DATA  (PSTD_OPT_TRAIN | PSTD_OPT_DATA | PSTD_OPT_EQUAL)
#define T_RUN   (PSTD_OPT_TRAIN | PSTD_OPT_EQUAL)
#define T_LOCAL PSTD_OPT_TRAIN
/* N_...: options that change the results, and that a resume may change. S_...:
 * those of them that `penstock set` can change during a run, too. Options that
 * are recorded in checkpoints (model, seed, optimizer) are not among them. */
#define N_STEP (T_STEP | PSTD_OPT_NUMBERS)
#define S_STEP (N_STEP | PSTD_OPT_SET)
#define N_DATA (T_DATA | PSTD_OPT_NUMBERS)
/* Commands that run a step without training. */
#define C_STEP (PSTD_OPT_VERIFY | PSTD_OPT_EVAL | PSTD_OPT_INFER)
/* RUNS_PLUGINS: commands that run kernels of plugins. PLUGINS: also those that
 * only read a model or a plan with operators of plugins. */
#define RUNS_PLUGINS                                                           \
    (PSTD_OPT_RANKS | PSTD_OPT_LIBRARY | PSTD_OPT_VERIFY | PSTD_OPT_EVAL |     \
     PSTD_OPT_INFER)
#define PLUGINS                                                                \
    (RUNS_PLUGINS | PSTD_OPT_SPLIT | PSTD_OPT_MODULES | PSTD_OPT_WEIGHTS |     \
     PSTD_OPT_OPS)

#define ROW(member, name, letter, type, groups, start, min, max, value, help)  \
    {                                                                          \
        name, letter, PSTD_##type, groups,                                     \
            offsetof(struct pstd_config, member), start, min, max, value, help \
    }
#define FLAG(member, name, groups, help)                                       \
    ROW(member, name, 0, FLAG, groups, NULL, 0, 0, NULL, help)
#define TEXT(member, name, groups, start, value, help)                         \
    ROW(member, name, 0, TEXT, groups, start, 0, 0, value, help)
#define CHOICE(member, name, groups, start, value, help)                       \
    ROW(member, name, 0, CHOICE, groups, start, 0, 0, value, help)
#define PATH(member, name, groups, value, help)                                \
    ROW(member, name, 0, PATH, groups, NULL, 0, 0, value, help)
#define FILES(member, name, groups, help)                                      \
    ROW(member, name, 0, FILES, groups, NULL, 0, 0, "FILES", help)
#define UINT(member, name, groups, start, min, max, help)                      \
    ROW(member, name, 0, UINT, groups, start, min, max, "N", help)
#define REAL(member, name, groups, start, min, max, help)                      \
    ROW(member, name, 0, REAL, groups, start, min, max, "X", help)

#define EVERY(member, name, groups, help)                                      \
    ROW(member, name, 0, EVERY, groups, "0", 0, 0, "N|Xepochs", help)

#define MANY 0x1p53
#define BIG  1e30

static const struct pstd_option rows[] = {
    ROW(schedule, "schedule", 0, SOURCE,
        T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_SERVE, "1f1b", 0, 0,
        "NAME|csv:FILE",
        "order of forwards and backwards: gpipe, 1f1b, interleaved-1f1b, "
        "zb-h1, ... (penstockd --help lists all); auto: chosen by estimated "
        "times; csv:FILE: your own"),
    TEXT(place, "place",
         T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_SERVE, NULL,
         "STAGE=RANK,...",
         "rank of each stage, also FIRST-LAST=RANK; default: as the schedule "
         "places them"),
    TEXT(recompute, "recompute", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY,
         "auto", "WHAT,...",
         "what the backward pass recomputes instead of keeping it: none, "
         "attention, block, full, names of modules, marked (regions of "
         "torch.utils.checkpoint), twice (for input gradients, and again for "
         "weight gradients); STAGE=WHAT: for one stage; auto: as much as "
         "--memory-limit requires, without a limit what is marked"),
    ROW(stash, "stash", 0, SOURCE, T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY,
        "none", 0, 0, "none|ram|disk:FOLDER",
        "where the activations of a microbatch wait for their backward pass "
        "if its stage has no free slot (--stash-keep)"),
    UINT(stash_keep, "stash-keep", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY,
         "0", 0, 65536,
         "with --stash: slots of each stage; 0: 2, or with --memory-limit as "
         "many as fit (if all fit, nothing is stashed)"),
    TEXT(shard, "shard", T_STEP | PSTD_OPT_PLAN, "none", "WHAT,...",
         "what is divided among R replicas (-n RxP): none; zero1: optimizer "
         "states; zero2: also gradients; zero3: also parameters; NAME=MODE: "
         "for a module or parameter; STAGE=MODE: for a stage; auto: as much "
         "as --memory-limit requires"),
    CHOICE(shard_layout, "shard-layout", T_STEP | PSTD_OPT_PLAN, "flat",
           "flat|rows",
           "how --shard divides; flat: many parameters as one vector, by "
           "elements; rows: each parameter by its first dimension"),
    CHOICE(gather_dtype, "gather-dtype", N_STEP | PSTD_OPT_PLAN, "f32",
           "f32|bf16",
           "with zero3: dtype in which parameters are gathered and read; their "
           "owners keep f32 and update it, gradients stay f32"),
    UINT(unshard_window, "unshard-window", T_STEP | PSTD_OPT_PLAN, "1", 0, 64,
         "with zero3: groups of parameters that are gathered before they are "
         "used"),
    PATH(costs, "costs", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_SPLIT, "FILE",
         "take times from FILE, which run --write-costs measured, instead of "
         "estimates"),
    ROW(memory_limit, "memory-limit", 0, MIB,
        T_STEP | PSTD_OPT_SERVE | PSTD_OPT_PLAN, "0", 0, BIG, "MIB",
        "memory that each rank may use, in MiB or with a unit (2GiB); the "
        "values auto of other options keep to it; 0: no limit"),
    FLAG(overcommit, "overcommit", T_STEP | PSTD_OPT_SERVE | C_STEP,
         "start even if the ranks will use more memory than is free"),
    ROW(microbatches, "microbatches", 'm', RAMP,
        S_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN, "1", 0, 0,
        "N|COUNT:STEP,...",
        "microbatches of a step (gradient accumulation); a step takes N "
        "times the rows of one. COUNT:STEP,...: a ramp, COUNT microbatches "
        "from that step on; the first step is 0"),
    UINT(microbatch_size, "microbatch-size",
         N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_INFER, "0",
         0, 0x1p31,
         "rows of a microbatch, for models with a free batch dimension; 0: "
         "as exported"),
    UINT(batch, "batch", N_STEP | C_STEP | PSTD_OPT_PLAN, "0", 0, 0x1p31,
         "rows of a step, instead of --microbatch-size; they are divided "
         "among the microbatches as evenly as possible"),
    CHOICE(microbatch_weights, "microbatch-weights", N_STEP | PSTD_OPT_EVAL,
           "rows", "rows|equal|tokens",
           "weight of a microbatch in the mean of a step; rows: its number of "
           "rows; equal: the same for all; tokens: its number of targets that "
           "the loss does not ignore"),
    TEXT(chunk, "chunk",
         N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_INFER,
         NULL, "NAME=DIM|replicate,...",
         "dimension along which an input is divided into microbatches; "
         "replicate: each microbatch gets all of it; default: 0"),
    TEXT(size, "size",
         N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_INFER,
         NULL, "NAME.DIM=SIZE,...",
         "sizes of free dimensions of inputs, except the number of rows; "
         "default: as exported"),
    UINT(threads, "threads", T_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN,
         "0", 0, 1024,
         "kernel threads of each rank; 0: its share of the cores"),
    CHOICE(bind, "bind", T_STEP | PSTD_OPT_SERVE, "none", "none|cores",
           "cores: bind each kernel thread to a processor of its own, on "
           "different cores as far as there are enough; for machines that this "
           "job has for itself"),
    UINT(seed, "seed", T_STEP | C_STEP | PSTD_OPT_SPLIT, "0", 0, MANY,
         "seed of all random numbers"),
    ROW(plugin, "plugin", 0, PATHS, PLUGINS, NULL, 0, 0, "FILE.so",
        "operators of your own: a shared library with penstock_plugin() "
        "(docs/plugins.md); repeatable, or several with ':' between"),
    PATH(missing, "missing", PSTD_OPT_OPS, "MODEL.pt2",
         "print a plugin to start from: a C file with the operators of the "
         "model that are unknown"),
    FLAG(check_plugins, "check-plugins", RUNS_PLUGINS,
         "run each kernel of a plugin twice in guarded memory, and fail if it "
         "writes elsewhere or gives other bits"),
    CHOICE(dtype, "dtype", N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN,
           "f32", "f32|bf16",
           "dtype of matmul operands; parameters, sums and optimizer states "
           "stay f32"),
    FLAG(tf32, "tf32", N_STEP | PSTD_OPT_SERVE | PSTD_OPT_PLAN,
         "let matmuls on GPUs round f32 operands to TF32, 10 bits of mantissa; "
         "sums, parameters and everything else stay f32 (needs cuBLASLt)"),
    FLAG(no_chunked_loss, "no-chunked-loss",
         N_STEP | PSTD_OPT_VERIFY | PSTD_OPT_EVAL | PSTD_OPT_PLAN,
         "keep the logits of a language model whole, and their gradient, "
         "instead of computing the loss and the gradients of the last linear "
         "layer by chunks of rows"),
    FLAG(no_chains, "no-chains",
         N_STEP | PSTD_OPT_VERIFY | PSTD_OPT_EVAL | PSTD_OPT_PLAN,
         "run elementwise operators one after the other on whole tensors, "
         "instead of a chain of them block by block; the bits are the same"),
    TEXT(optimizer, "optimizer", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_SHOW,
         "adamw", "NAME",
         "optimizer of the parameters: none, sgd, adamw, adam, adamax, lion, "
         "rmsprop, adagrad, adadelta, lamb, muon, adafactor, schedulefree"),
    REAL(lr, "lr", S_STEP, NULL, 0, BIG,
         "learning rate; default: PyTorch's, for lion, lamb and schedulefree "
         "the paper's; likewise for the options of the optimizers below"),
    REAL(momentum, "momentum", S_STEP | PSTD_OPT_PLAN, NULL, 0, BIG,
         "momentum of sgd, rmsprop and muon"),
    REAL(dampening, "dampening", S_STEP, NULL, -BIG, BIG, "dampening of sgd"),
    FLAG(nesterov, "nesterov", S_STEP,
         "Nesterov momentum of sgd (muon has it by default)"),
    REAL(beta1, "beta1", S_STEP, NULL, 0, 1,
         "first beta of adamw, adam, adamax, lion, lamb and schedulefree"),
    REAL(beta2, "beta2", S_STEP, NULL, 0, 1,
         "second beta of adamw, adam, adamax, lion, lamb and schedulefree"),
    REAL(eps, "eps", S_STEP, NULL, 0, BIG,
         "epsilon of adamw, adam, adamax, rmsprop, adagrad, adadelta, lamb, "
         "muon, adafactor and schedulefree"),
    REAL(alpha, "alpha", S_STEP, NULL, 0, 1,
         "rmsprop: weight of the old mean square in the new one"),
    FLAG(centered, "centered", S_STEP | PSTD_OPT_PLAN,
         "rmsprop: divide by the root of the variance, not of the mean square"),
    REAL(rho, "rho", S_STEP, NULL, 0, 1,
         "adadelta: decay of the running mean of squared gradients"),
    REAL(lr_decay, "lr-decay", S_STEP, NULL, 0, BIG,
         "adagrad: update t has the learning rate / (1 + (t - 1) X)"),
    UINT(ns_steps, "ns-steps", S_STEP, "5", 0, 99,
         "muon: iterations that make the update orthogonal"),
    FLAG(match_rms_adamw, "match-rms-adamw", S_STEP,
         "muon: scale the rate so that updates have the RMS of AdamW's, whose "
         "--lr can then be taken"),
    REAL(beta2_decay, "beta2-decay", S_STEP, NULL, -BIG, 0,
         "adafactor: update t has the weight t^X of new squares"),
    REAL(eps2, "eps2", S_STEP, NULL, 0, BIG,
         "adafactor: least RMS of a parameter that scales its update"),
    REAL(clip_threshold, "clip-threshold", S_STEP, NULL, 1, BIG,
         "adafactor: an update with a larger RMS is scaled down to it, before "
         "it is multiplied by the RMS of the parameter"),
    CHOICE(state_dtype, "state-dtype", N_STEP | PSTD_OPT_PLAN, "f32",
           "f32|bf16|int8",
           "dtype of optimizer states between updates, for adamw, sgd, adam, "
           "adamax, lion, rmsprop, adagrad, adadelta and schedulefree; bf16: "
           "rounded stochastically; int8: 8-bit codes with one scale for 256 "
           "elements"),
    REAL(weight_decay, "weight-decay", S_STEP, NULL, 0, BIG,
         "weight decay: adamw, lion, muon and adafactor shrink parameters by "
         "it; lamb and schedulefree add it to the direction; sgd, adam, "
         "adamax, rmsprop, adagrad and adadelta add it to the gradient"),
    ROW(group, "group", 0, RULES, S_STEP | PSTD_OPT_PLAN | PSTD_OPT_SHOW, NULL,
        0, 0, "RULE",
        "options of the optimizer for some parameters: "
        "TERM[,TERM...]:OPTION=VALUE[,...], where all terms must hold: a glob "
        "for the parameter or a module, ndim<2, type=GLOB, norms, biases, "
        "embeddings, last-matrix, others (what muon leaves to adamw), or "
        "TERM|TERM; options: lr, weight-decay, beta1, ..., "
        "optimizer; repeatable, later rules win (docs/optimizers.md)"),
    TEXT(no_decay, "no-decay", S_STEP | PSTD_OPT_PLAN | PSTD_OPT_SHOW, NULL,
         "TERM,...",
         "parameters without weight decay, for instance "
         "norms,biases,embeddings: those for which any term holds"),
    REAL(clip_norm, "clip-norm", S_STEP, "0", 0, BIG,
         "largest norm of all gradients together: larger ones are scaled "
         "down to it; 0: no limit"),
    REAL(clip_value, "clip-value", S_STEP, "0", 0, BIG,
         "largest absolute value of an element of a gradient, after "
         "--clip-norm; 0: no limit"),
    TEXT(loss_scale, "loss-scale", N_STEP, "auto",
         "auto|none|X|init=X,growth-interval=N,min=X",
         "multiply the loss, so that 16-bit gradients do not become 0, and "
         "divide gradients by that again; init=65536,growth-interval=2000,"
         "min=1: begin so, double it after 2000 steps, halve it and leave the "
         "step out if a gradient is not finite; X: always the same; powers of "
         "two; auto: that with --autocast f16, else none"),
    REAL(ema, "ema", N_STEP | PSTD_OPT_PLAN, "0", 0, 1,
         "keep averages of the trained parameters, which move towards them by "
         "1 - X of the difference after each update (--use-ema reads them); "
         "0: none"),
    CHOICE(lr_schedule, "lr-schedule", S_STEP, "constant",
           "constant|linear|cosine|cosine-restarts|polynomial|wsd|one-cycle|"
           "inverse-sqrt|points:UPDATE=X,...",
           "course of the learning rate over the updates, which count from 0 "
           "(penstockd --help says what each one is)"),
    ROW(lr_points, "lr-points", 0, POINTS, N_STEP, NULL, 0, 0,
        "@FILE|UPDATE=X,...",
        "points of the course of the learning rate, as --lr-schedule points: "
        "has them; @FILE reads them from a file, one UPDATE=X a line"),
    UINT(warmup, "warmup", S_STEP, "0", 0, MANY,
         "updates in which the learning rate rises linearly from 0"),
    UINT(lr_steps, "lr-steps", S_STEP, "0", 0, MANY,
         "updates until the learning rate has fallen to --lr-min; 0: --steps"),
    REAL(lr_min, "lr-min", S_STEP, "0", 0, BIG,
         "learning rate at the end; one-cycle: 0 is --lr / 250000"),
    UINT(lr_decay_steps, "lr-decay-steps", S_STEP, "0", 0, MANY,
         "updates at the end of wsd in which the learning rate falls"),
    CHOICE(lr_decay_shape, "lr-decay-shape", S_STEP, "linear",
           "linear|cosine|sqrt|exp", "shape of the decay of wsd"),
    UINT(lr_cycles, "lr-cycles", S_STEP, "1", 1, 1000,
         "cycles of cosine-restarts"),
    REAL(lr_power, "lr-power", S_STEP, "1", 1e-3, 1e3, "power of polynomial"),

    FILES(data, "data", T_DATA,
          "files of batches (.safetensors, or an index of such shards) or of "
          "tokens (any other name): FILE; FILE,FILE reads one after the other, "
          "FILE:0.7,FILE:0.3 draws samples in this proportion; FILE may be a "
          "pattern, 'shard-*.bin'"),
    CHOICE(token_dtype, "token-dtype", N_DATA, "uint8", "uint8|uint16|uint32",
           "dtype of the tokens in a token file; Megatron's index beside it "
           "(NAME.idx) has it, too"),
    UINT(seq_len, "seq-len", N_DATA, "0", 0, MANY,
         "tokens of a sample; 0: the length of the model's input"),
    TEXT(tokens_input, "tokens-input", N_DATA, NULL, "NAME",
         "model input that gets the tokens; default: input_ids, else the first "
         "integer input"),
    TEXT(targets_input, "targets-input", N_DATA, NULL, "NAME",
         "model input that gets the next tokens; default: labels, else the "
         "second integer input"),
    TEXT(pack, "pack", N_DATA, NULL, "TOKEN",
         "number of the token that ends a document: positions, mask and "
         "targets then do not cross documents (docs/files.md)"),
    TEXT(positions_input, "positions-input", N_DATA, NULL, "NAME",
         "model input that gets positions, within documents with --pack; "
         "default: position_ids"),
    TEXT(documents_input, "documents-input", N_DATA, NULL, "NAME",
         "model input that gets the numbers of documents; default: "
         "document_ids"),
    TEXT(
        mask_input, "mask-input", N_DATA, NULL, "NAME",
        "model input that gets the mask: tokens that each token may attend to, "
        "or ones; default: attention_mask"),
    CHOICE(data_at, "data-at", T_STEP | PSTD_OPT_PLAN, "all", "first|all",
           "ranks that read --data; first: rank 0, which sends the others what "
           "they need; all: each rank"),
    FLAG(shuffle, "shuffle", N_DATA, "read samples in random order, by --seed"),

    ROW(eval_data, "eval-data", 0, SETS, T_RUN | PSTD_OPT_PLAN, NULL, 0, 0,
        "[NAME=]FILES",
        "data on which the model is evaluated during training, every "
        "--eval-every steps and at the end; NAME=FILES, repeatable: several "
        "sets, each evaluated by itself; the first one decides (--keep-best, "
        "--patience)"),
    PATH(token_bytes, "token-bytes", T_RUN | PSTD_OPT_EVAL, "FILE",
         "a byte for each token of the vocabulary: how many bytes of text it "
         "stands for; evaluations then have their bits per byte"),
    PATH(eval_model, "eval-model", T_RUN | PSTD_OPT_PLAN | PSTD_OPT_SERVE,
         "FILE",
         "the same model, exported after model.eval() (.pt2): it is run "
         "instead in evaluations; needed if the two modes differ by more "
         "than dropout and batch norm"),
    EVERY(eval_every, "eval-every", T_RUN | PSTD_OPT_SET,
          "steps between evaluations, or passes over --data (1epoch, "
          "0.5epochs); 0: only at the end"),
    UINT(eval_batches, "eval-batches", T_RUN | PSTD_OPT_NUMBERS, "0", 0, MANY,
         "steps to evaluate, from the beginning of --eval-data; 0: all of it"),
    TEXT(eval_metric, "eval-metric", T_RUN | PSTD_OPT_NUMBERS, NULL,
         "[SET/]OUTPUT:max|min",
         "scalar output of the model by which evaluations are compared "
         "(--keep-best, --patience), instead of the loss; the best one is the "
         "largest or smallest: accuracy:max. SET/: on this set of --eval-data, "
         "not on the first; SET/loss: by its loss"),
    FLAG(keep_best, "keep-best", T_RUN,
         "keep a checkpoint of the step with the smallest loss on "
         "--eval-data (or the best --eval-metric), in the folder best of "
         "--checkpoint"),
    UINT(patience, "patience", T_RUN | PSTD_OPT_SET, "0", 0, MANY,
         "end the run after N evaluations in a row without a new best one; "
         "0: never"),

    UINT(steps, "steps", T_RUN | PSTD_OPT_SET, "1", 0, MANY,
         "steps of the whole run, including those before a resume"),
    REAL(epochs, "epochs", T_RUN, NULL, 1e-9, 1e9,
         "instead of --steps: passes over --data, also a fraction (0.5); the "
         "last step of an uneven pass takes rows of the next one"),
    PATH(checkpoint, "checkpoint", T_RUN | PSTD_OPT_SERVE | PSTD_OPT_LOAD,
         "DIR", "folder of checkpoints"),
    EVERY(checkpoint_every, "checkpoint-every", T_RUN | PSTD_OPT_SET,
          "steps between checkpoints, or passes over --data (1epoch); 0: only "
          "at the end"),
    REAL(checkpoint_cost, "checkpoint-cost", T_RUN, "0", 0, 100,
         "instead of --checkpoint-every: save as often as possible while saves "
         "take at most X percent of the run's time, as measured"),
    FLAG(checkpoint_sync, "checkpoint-sync", T_RUN,
         "steps wait until a checkpoint is written; default: they go on "
         "while a copy in memory is written"),
    UINT(keep, "keep", T_RUN | PSTD_OPT_SET, "2", 0, MANY,
         "newest checkpoints to keep; 0: all"),
    ROW(resume, "resume", 0, FROM, T_RUN, NULL, 0, 0, "STEP|auto",
        "go on from the newest good checkpoint, or from that of STEP (newer "
        "ones are moved to a folder beside it); auto: from the newest, or "
        "from the start if there is none"),
    FLAG(adopt, "adopt", T_RUN,
         "take over a --checkpoint folder of another run; its checkpoints "
         "are moved to a folder inside it"),
    PATH(checkpoint_fallback, "checkpoint-fallback", T_RUN, "DIR",
         "folder for checkpoints that cannot be written to --checkpoint, for "
         "instance on a full disk; --resume looks into both"),
    UINT(checkpoint_retry, "checkpoint-retry", T_RUN, "10", 0, 86400,
         "seconds for which a last checkpoint is tried again if it cannot be "
         "written"),
    FLAG(accept_lost_backward, "accept-lost-backward", T_RUN,
         "train a model exported with a torch.autograd.Function by the "
         "gradient of its forward: its backward is not in the file"),
    CHOICE(on_nan, "on-nan", T_RUN, "stop", "stop|skip|rollback",
           "if a loss or gradient is not finite; stop: end the run before that "
           "step; skip: leave the step out; rollback: go back to the newest "
           "checkpoint (and leave the step out if it fails again)"),
    UINT(nan_limit, "nan-limit", T_RUN, "10", 1, MANY,
         "end the run after N steps left out in a row, or N times back to "
         "the same checkpoint"),
    CHOICE(on_spike, "on-spike", T_RUN | PSTD_OPT_NUMBERS, "none",
           "none|stop|skip|rollback|rollback,skip-data",
           "if the loss or the norm of the gradients is far above those of "
           "the steps before: as --on-nan; rollback,skip-data: go back, and "
           "leave out the rows that were drawn since; none: report it"),
    UINT(spike_window, "spike-window", T_RUN | PSTD_OPT_NUMBERS, "100", 2, MANY,
         "number of steps that the mean and the deviation of losses and norms "
         "cover; older steps count exponentially less"),
    REAL(spike_threshold, "spike-threshold", T_RUN | PSTD_OPT_NUMBERS, "6", 0,
         BIG, "standard deviations above the mean that make a spike"),
    UINT(compare_replicas, "compare-replicas", T_RUN, "0", 0, MANY,
         "steps between comparisons of the copies that replicas hold: a "
         "difference ends the run and names rank and parameter; 0: only "
         "before checkpoints"),
    PATH(dump, "dump", T_RUN | PSTD_OPT_WRITTEN, "FILE",
         "write loss, outputs and gradients of the first step and the last "
         "parameters to FILE"),
    PATH(dump_fault, "dump-fault", T_RUN | PSTD_OPT_WRITTEN, "FILE",
         "if a step fails, write the microbatch that failed to FILE, as data "
         "to run it again; the newest one if there are several"),
    PATH(write_costs, "write-costs", T_RUN | PSTD_OPT_WRITTEN, "FILE",
         "write the times measured on these ranks to FILE, for --costs"),
    REAL(watchdog, "watchdog", T_LOCAL | PSTD_OPT_SERVE, NULL, 0, BIG,
         "seconds without progress of a rank after which the job ends and "
         "says what that rank was doing; 0: never; default: 60, but in steps "
         "10 times the longest recent step, at least 30"),
    UINT(log_every, "log-every", T_LOCAL | PSTD_OPT_SET, "0", 0, MANY,
         "steps between two step events; 0: each step, but at most 20 events "
         "a second"),

    ROW(grid, "ranks", 'n', GRID,
        PSTD_OPT_RANKS | PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_EQUAL, NULL,
        1, 4096, "[Rx]P",
        "ranks of the pipeline, and replicas of it that share a batch; "
        "default: one rank for each stage (penstockd: with --transport "
        "self)"),
    CHOICE(transport, "transport", PSTD_OPT_RANKS, NULL, "mpi|self",
           "how ranks exchange messages; self: all ranks are in one process"),
    TEXT(device, "device", PSTD_OPT_RANKS | PSTD_OPT_PLAN | PSTD_OPT_EQUAL,
         "cpu", "LIST",
         "device of the ranks: cpu, cuda (the GPU with the number of the rank "
         "on its host) or cuda:N; or a list of these with commas, one for each "
         "rank, the last one for all others"),
    FLAG(no_fallback, "no-fallback",
         PSTD_OPT_RANKS | PSTD_OPT_PLAN | PSTD_OPT_EQUAL,
         "refuse a model with operators that the device has no kernel for; "
         "otherwise these run on the host"),
    FLAG(
        no_graphs, "no-graphs", PSTD_OPT_RANKS | PSTD_OPT_PLAN,
        "launch each kernel of a GPU in each step; otherwise the kernels of an "
        "action are recorded in the second step, and replayed as a CUDA graph "
        "in later ones"),
    FLAG(verify_messages, "verify-messages", PSTD_OPT_RANKS | PSTD_OPT_EQUAL,
         "add a checksum (CRC32C) to messages between processes: a mismatch "
         "ends the job and names both ranks"),
    FLAG(core_files, "core-files", PSTD_OPT_RANKS,
         "let a process that crashes write a core file, which contains "
         "parameters, data and the environment"),
    PATH(log_dir, "log-dir", PSTD_OPT_RANKS, "DIR",
         "folder of log files, one for each rank: DIR/rank-N.log"),
    PATH(prom, "prom", PSTD_OPT_RANKS | PSTD_OPT_WRITTEN, "FILE",
         "file of metrics of rank 0, for the textfile collector of "
         "node-exporter; its name must end in .prom"),
    PATH(tensorboard, "tensorboard", PSTD_OPT_COURSE | PSTD_OPT_DAEMON, "DIR",
         "folder for TensorBoard: curves of losses, learning rate and speed, "
         "one file for each start of the job"),
    TEXT(run_id, "one-run", PSTD_OPT_DAEMON, NULL, "ID",
         "start the run that the options describe as soon as everything is "
         "loaded, and end after it; ID tells clients whose job this is"),
    FLAG(stay, "stay", PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "with --one-run: wait for runs instead; with --kept-run, a run that "
         "had not ended when the job did goes on when the job is started "
         "again"),
    FLAG(begin_paused, "begin-paused", PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "with --one-run: pause the run before its first step"),
    PATH(journal, "journal", PSTD_OPT_DAEMON, "FILE",
         "file of rank 0's events: a client that connects late gets all of "
         "them, and a job started again with this file continues their "
         "numbers"),
    PATH(kept_run, "kept-run", PSTD_OPT_DAEMON, "FILE",
         "with --stay: file in which rank 0 describes the current run"),
    REAL(client_timeout, "client-timeout", PSTD_OPT_RANKS, "10", 0.05, BIG,
         "seconds in which a client of the control socket must say Hello, "
         "finish a frame, and take an answer; it is disconnected after 30 "
         "times that without a request"),
    FLAG(die_with_client, "die-with-client", PSTD_OPT_RUN,
         "end the job when this client ends; default: the job goes on"),
    UINT(max_restarts, "max-restarts", PSTD_OPT_RUN, "0", 0, MANY,
         "start a job that died again from its newest checkpoint, at most N "
         "times without a newer one; such a job ends when this client ends"),
    UINT(min_ranks, "min-ranks", PSTD_OPT_COURSE, "0", 0, MANY,
         "with --max-restarts: a job that loses a rank twice in a row "
         "without a newer checkpoint goes on with fewer ranks, at least N, "
         "and places its stages anew; 0: never with fewer"),
    TEXT(hosts, "hosts", PSTD_OPT_HOSTS, NULL, "NAME[:SLOTS],...",
         "hosts to start ranks on, and how many ranks each may have; this "
         "host must be among them; without numbers ranks are divided evenly"),
    PATH(hostfile, "hostfile", PSTD_OPT_HOSTS, "FILE",
         "file of hosts, instead of --hosts; each line is NAME [slots=N]"),
    TEXT(interface, "interface", PSTD_OPT_RUN, NULL, "NAME|NETWORK/BITS,...",
         "the only network interfaces that messages between hosts use"),
    FLAG(die_with_parent, "die-with-parent", PSTD_OPT_DAEMON,
         "end when the parent process ends"),
    PATH(socket, "socket", PSTD_OPT_CONNECT, "PATH",
         "control socket of rank 0"),
    TEXT(job, "job", PSTD_OPT_CONNECT, NULL, "NAME",
         "name of the job; its sockets are in "
         "$XDG_RUNTIME_DIR/penstock/NAME, else /tmp/penstock-UID/NAME"),

    FLAG(serve, "serve", PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "with --one-run: answer requests for outputs instead of training"),
    UINT(queue, "queue", PSTD_OPT_SERVE | PSTD_OPT_DAEMON, "64", 1, 65536,
         "largest number of waiting requests; a client that asks beyond that "
         "must ask again"),
    REAL(batch_wait, "batch-wait", PSTD_OPT_SERVE | PSTD_OPT_DAEMON, "0", 0,
         10000,
         "milliseconds that a request waits for others to share its step, "
         "unless they fill the step earlier"),
    REAL(ask_timeout, "timeout", PSTD_OPT_ASK, "0", 0, BIG,
         "seconds to wait for an answer; 0: no limit"),

    ROW(output, "output", 'o', PATH,
        PSTD_OPT_OUTPUT | PSTD_OPT_ATTR | PSTD_OPT_WRITTEN, NULL, 0, 0, "PATH",
        "file to write"),
    UINT(stages, "stages", PSTD_OPT_SPLIT, "0", 0, 4096,
         "number of stages; 0: as the markers in the model say, else 1"),
    ROW(at, "at", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "NAME[:begin|:end]",
        "cut before this module or node, with :end after it; repeatable"),
    ROW(replicate, "replicate", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN",
        "keep a copy of this parameter in each stage that uses it, and sum "
        "the gradients; default for all parameters that --transmit does not "
        "name; repeatable"),
    ROW(transmit, "transmit", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN",
        "send this parameter in each step from the first stage that uses it "
        "to the others; repeatable"),
    ROW(owner, "owner", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN=STAGE",
        "stage that holds this buffer between steps, if several stages read "
        "and write it; it is passed on from microbatch to microbatch; "
        "repeatable"),
    ROW(swap, "swap", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN[@K]=MODULE.pt2",
        "replace this module, or only its call number K, by another one; "
        "repeatable"),
    FLAG(aliases, "aliases", PSTD_OPT_SPLIT | PSTD_OPT_SWAP,
         "replace a module also where the model has it under other names"),
    UINT(at_call, "at-call", PSTD_OPT_SWAP, NULL, 0, INT_MAX,
         "replace only this call of the module, counted from 0"),
    ROW(state, "state", 0, SOURCE, PSTD_OPT_SWAP | PSTD_OPT_ATTR, "reset", 0, 0,
        "reset|keep|map:FILE",
        "optimizer state of new parameters with the name and shape of old "
        "ones; map:FILE: {\"NEW\": \"OLD\", ...}: the new parameters that "
        "get states of old ones"),
    ROW(freeze, "freeze", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "PATTERN",
        "parameters not to train: names of parameters or modules, with * "
        "and ?; repeatable"),
    ROW(unfreeze, "unfreeze", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "PATTERN",
        "parameters to train although --freeze names them; repeatable"),
    ROW(lora, "lora", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0,
        "PATTERN:rank=R[,alpha=X][,dropout=P]",
        "linear layers that get a low-rank adapter: names of modules, with "
        "* and ?; all other parameters are frozen; alpha: 8; dropout of the "
        "adapter's input: 0; repeatable"),
    CHOICE(autocast, "autocast", PSTD_OPT_SPLIT, NULL, "bf16|f16",
           "compute as if the model had been exported under torch.autocast, "
           "with bf16 that for CUDA, with f16 that for CPUs: matmuls, "
           "convolutions and attention in 16 bits, losses in f32 (with bf16 "
           "also norms and softmax), activations and messages in the dtype "
           "that follows; parameters, their gradients and optimizer states "
           "stay f32"),
    CHOICE(params, "params", PSTD_OPT_SPLIT, NULL, "bf16",
           "keep trained parameters in bf16, without copies in f32; updates "
           "round them stochastically; gradients and optimizer states stay "
           "f32"),
    ROW(policy, "policy", 0, SOURCE, PSTD_OPT_SPLIT, NULL, 0, 0,
        "markers|layers|flops|memory|file:FILE",
        "where to cut without --at; markers: at the model's markers; "
        "layers: between layers; flops, memory: into --stages of equal work "
        "or memory; file:FILE: at the modules and nodes in a JSON list"),
    REAL(bandwidth, "bandwidth", PSTD_OPT_SPLIT, NULL, 1, BIG,
         "bytes per second between stages, for --policy; default: 1.25e10, "
         "or what --costs says"),
    TEXT(loss, "loss", PSTD_OPT_SPLIT, NULL, "SPEC",
         "output that is the loss (\"0\", \"logits.loss\", none); default: "
         "the first output if it is a floating-point scalar, else \"loss\""),
    TEXT(loss_fn, "loss-fn", PSTD_OPT_SPLIT, NULL, "NAME[:KEY=VALUE,...]",
         "loss to add to a model without one; its target becomes an input: "
         "cross_entropy, nll, mse, l1, smooth_l1, huber, bce_with_logits"),
    PATH(weights, "weights", PSTD_OPT_SPLIT, "FILE|FOLDER",
         "start values instead of the model's, by the names of its "
         "state_dict: a .safetensors file, an index of shards, a folder with "
         "either, or all shards that match a pattern, 'model-*.safetensors'"),
    FLAG(partial, "partial", PSTD_OPT_SPLIT,
         "keep the model's values of tensors that --weights lacks, and "
         "ignore tensors that the model lacks"),
    UINT(init_seed, "init-seed", PSTD_OPT_SPLIT, "0", 0, MANY,
         "make start values by this seed for tensors that were exported "
         "without, as PyTorch's modules begin (docs/files.md)"),
    REAL(init_std, "init-std", PSTD_OPT_SPLIT, "0", 0, BIG,
         "with --init-seed: matrices are normal with this standard deviation, "
         "biases 0; 0: as PyTorch's modules begin"),
    ROW(stage, "stage", 0, UINT, PSTD_OPT_SHOW, NULL, 0, 4096, "K",
        "show one stage: inputs and their sources, operators, outputs and "
        "their consumers"),
    CHOICE(format, "format", PSTD_OPT_SHOW, "text", "text|dot|svg",
           "format of a plan (of a .pt2 file: the plan that it makes)"),
    FLAG(modules, "modules", PSTD_OPT_SHOW, "show the modules of the model"),
    TEXT(module, "module", PSTD_OPT_SHOW, NULL, "FQN[@K]",
         "show the graph of one call of a module: call number K, else the "
         "first; each call inside of it is one line"),
    FLAG(kernels, "kernels", PSTD_OPT_SHOW,
         "show the kernel of each operator in a training step"),
    TEXT(after, "after", PSTD_OPT_SHOW, NULL, "PASS",
         "show the graph after this pass of the compiler, with the kernels "
         "and memory known by then; of --stage, else of stage 0"),
    FLAG(passes, "passes", PSTD_OPT_SHOW, "list the passes for --after"),
    FLAG(calls, "calls", PSTD_OPT_MODULES,
         "list each call, in the order in which they begin"),
    PATH(svg, "svg", PSTD_OPT_PICTURE | PSTD_OPT_WRITTEN, "FILE",
         "write a picture of a step to FILE: what each rank does when"),
    PATH(trace, "trace", PSTD_OPT_PICTURE | PSTD_OPT_WRITTEN, "FILE",
         "write the same to FILE for chrome://tracing and Perfetto"),
    PATH(csv, "csv", PSTD_OPT_PLAN | PSTD_OPT_WRITTEN, "FILE",
         "write the schedule to FILE in PyTorch's format; --schedule "
         "csv:FILE reads it"),
    FLAG(what_if, "what-if", PSTD_OPT_PLAN,
         "list the ways to need less memory, with what each saves and costs"),
    UINT(batches, "batches", PSTD_OPT_EVAL, "0", 0, MANY,
         "steps to evaluate, from the beginning of the file; 0: all of it"),
    FLAG(other_model, "other-model",
         PSTD_OPT_LOAD | PSTD_OPT_SERVE | PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "accept a checkpoint of another model whose tensors have the same "
         "names and shapes, for instance the one exported for training"),
    ROW(keep_random, "keep-random", 0, LIST, PSTD_OPT_LOAD, NULL, 0, 0,
        "MODULE",
        "keep what is random in these modules, dropout too; names or "
        "patterns (\"blocks.*.noise\"); repeatable"),
    ROW(n_tokens, "tokens", 0, UINT, PSTD_OPT_INFER, "100", 1, 0x1p32, "N",
        "tokens to generate"),
    TEXT(prompt, "prompt", PSTD_OPT_INFER, NULL, "TEXT",
         "text to continue (as bytes), or numbers of tokens"),
    PATH(prompt_file, "prompt-file", PSTD_OPT_INFER, "FILE",
         "file that contains the prompt"),
    REAL(temperature, "temperature", PSTD_OPT_INFER, "0", 0, BIG,
         "0: the likeliest token; 1: random, by the model's probabilities"),
    ROW(lines, "lines", 0, UINT, PSTD_OPT_LOG, "20", 1, 1024, "N",
        "number of events to show"),
    ROW(from, "from", 0, UINT, PSTD_OPT_WATCH, "0", 0, MANY, "SEQ",
        "number of the first event to show; 0: only new events"),
    FLAG(now, "now", PSTD_OPT_STOP, "end without a checkpoint"),
    FLAG(no_wait, "no-wait", PSTD_OPT_STOP, "do not wait for the end"),
    FLAG(detach, "detach", PSTD_OPT_DETACH,
         "return as soon as the work is accepted or the run has begun"),
    FLAG(use_ema, "use-ema",
         PSTD_OPT_WEIGHTS | PSTD_OPT_LOAD | PSTD_OPT_SERVE | PSTD_OPT_DAEMON |
             PSTD_OPT_EQUAL,
         "take the averaged parameters of a checkpoint (run --ema)"),
    FLAG(merge, "merge", PSTD_OPT_WEIGHTS,
         "write the model as before split --lora, with the adapters added to "
         "its weights"),
    FLAG(adapter, "adapter", PSTD_OPT_WEIGHTS,
         "write only the adapters, in the format of peft: -o is a folder, or "
         "a file that gets adapter_config.json beside it"),
    FLAG(verify, "verify",
         T_LOCAL | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_SHOW |
             PSTD_OPT_CHECKPOINTS,
         "check the compiled program against the graph: the memory of each "
         "operand, and that nothing is overwritten before it is read"),
    FLAG(before, "before", PSTD_OPT_FLIGHT,
         "show the previous start of the job instead of the newest one"),
    ROW(pin, "pin", 0, LIST, PSTD_OPT_CHECKPOINTS, NULL, 0, 0, "STEP",
        "keep the checkpoint of this step for ever; repeatable"),
    ROW(unpin, "unpin", 0, LIST, PSTD_OPT_CHECKPOINTS, NULL, 0, 0, "STEP",
        "let the checkpoint of this step be removed again; repeatable"),
    ROW(remove, "remove", 0, LIST, PSTD_OPT_CHECKPOINTS, NULL, 0, 0, "STEP",
        "remove the checkpoint of this step, but never the newest good one; "
        "repeatable"),
    FLAG(reference, "reference", PSTD_OPT_REFERENCE,
         "run the whole model as one stage in one process; any cut gives "
         "equal results"),
    FLAG(list, "list", PSTD_OPT_EXPLAIN, "list all ids"),
    FLAG(quiet, "quiet", PSTD_OPT_QUIET,
         "show no progress, only the last line"),
    FLAG(json, "json", PSTD_OPT_JSON,
         "print one JSON object on standard output"),
    ROW(input_gradients, "input-gradients", 0, LIST, PSTD_OPT_LIBRARY, NULL, 0,
        0, "NAME",
        "input whose gradient each step keeps, or a glob; repeatable"),
    ROW(help, "help", 'h', FLAG, PSTD_OPT_ALL, NULL, 0, 0, NULL,
        "show this text"),
};

_Static_assert(PST_COUNT(rows) <= PSTD_MAX_OPTIONS, "too many options");

const struct pstd_option *pstd_options(size_t *ret_n)
{
    *ret_n = PST_COUNT(rows);
    return rows;
}
