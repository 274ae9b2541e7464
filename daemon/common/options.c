// SPDX-License-Identifier: Apache-2.0
/* The table of all options. */
#include "daemon/common/config.h"

/* Options that must be equal on all ranks, and (T_LOCAL) those that may
 * differ. */
#define T_STEP  (PSTD_OPT_TRAIN | PSTD_OPT_STEP | PSTD_OPT_EQUAL)
#define T_DATA  (PSTD_OPT_TRAIN | PSTD_OPT_DATA | PSTD_OPT_EQUAL)
#define T_RUN   (PSTD_OPT_TRAIN | PSTD_OPT_EQUAL)
#define T_LOCAL PSTD_OPT_TRAIN
/* Options that a resume may change, but that change the results. Checkpoints
 * themselves record model, seed and optimizer. */
#define N_STEP (T_STEP | PSTD_OPT_NUMBERS)
#define N_DATA (T_DATA | PSTD_OPT_NUMBERS)
/* Commands that run a step without training. */
#define C_STEP (PSTD_OPT_VERIFY | PSTD_OPT_EVAL | PSTD_OPT_INFER)

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
#define UINT(member, name, groups, start, min, max, help)                      \
    ROW(member, name, 0, UINT, groups, start, min, max, "N", help)
#define REAL(member, name, groups, start, min, max, help)                      \
    ROW(member, name, 0, REAL, groups, start, min, max, "X", help)

#define MANY 0x1p53
#define BIG  1e30

static const struct pstd_option rows[] = {
    ROW(schedule, "schedule", 0, SOURCE,
        T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_SERVE, "1f1b", 0, 0,
        "NAME",
        "in which order forwards and backwards run: gpipe, 1f1b, "
        "interleaved-1f1b, zb-h1, ... (penstockd --help lists all), auto; or "
        "csv:FILE with lists of your own"),
    TEXT(place, "place",
         T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_SERVE, NULL,
         "STAGE=RANK,...",
         "where each stage is, also FIRST-LAST=RANK; without it the schedule "
         "decides"),
    TEXT(recompute, "recompute", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY,
         "auto", "WHAT,...",
         "what the backward makes again instead of keeping it: none, "
         "attention, block, full, names of modules, marked (regions of "
         "torch.utils.checkpoint), twice (for I and for W); STAGE=WHAT for one "
         "stage; auto: what "
         "--memory-limit makes necessary, without a limit what is marked"),
    TEXT(stash, "stash", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY, "none",
         "ram|disk:FOLDER",
         "where microbatches wait for their backward for whose stash there are "
         "no slots (--stash-keep)"),
    UINT(
        stash_keep, "stash-keep", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_VERIFY, "0",
        0, 65536,
        "with --stash: slots that each stage has; 0: 2, or with --memory-limit "
        "as many as fit, and no stash outside if all do"),
    TEXT(shard, "shard", T_STEP | PSTD_OPT_PLAN, "none", "WHAT,...",
         "what each of R replicas (-n RxP) has an R-th of: none; zero1: states "
         "of the optimizer; zero2: gradients too; zero3: values too; NAME=MODE "
         "for a module or parameter, STAGE=MODE for a stage; auto: what "
         "--memory-limit makes necessary"),
    CHOICE(
        shard_layout, "shard-layout", T_STEP | PSTD_OPT_PLAN, "flat",
        "flat|rows",
        "how --shard divides: flat: vectors of many parameters, by elements; "
        "rows: each parameter by its first dimension"),
    CHOICE(gather_dtype, "gather-dtype", N_STEP | PSTD_OPT_PLAN, "f32",
           "f32|bf16",
           "with zero3: as what values travel and are read; each owner updates "
           "f32, gradients stay f32"),
    UINT(unshard_window, "unshard-window", T_STEP | PSTD_OPT_PLAN, "1", 0, 64,
         "with zero3: groups of parameters that are gathered ahead of their "
         "use"),
    PATH(costs, "costs", T_STEP | PSTD_OPT_PLAN | PSTD_OPT_SPLIT, "FILE",
         "times that run --write-costs has measured, instead of estimates"),
    ROW(memory_limit, "memory-limit", 0, MIB,
        T_STEP | PSTD_OPT_SERVE | PSTD_OPT_PLAN, "0", 0, BIG, "MIB",
        "what a rank may have, in MiB or with a unit (2GiB); auto chooses by "
        "it; 0: any"),
    FLAG(overcommit, "overcommit", T_STEP | PSTD_OPT_SERVE | C_STEP,
         "begin also if less memory is left than the ranks will use"),
    ROW(microbatches, "microbatches", 'm', UINT,
        N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN, "1", 1, 65536, "N",
        "microbatches of a step (gradient accumulation); a step takes N times "
        "the rows of one"),
    UINT(microbatch_size, "microbatch-size",
         N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_INFER, "0",
         0, 0x1p31,
         "rows of a microbatch, for models with a free batch dimension; 0: as "
         "exported"),
    UINT(batch, "batch", N_STEP | C_STEP | PSTD_OPT_PLAN, "0", 0, 0x1p31,
         "rows of a step instead, divided among its microbatches as evenly as "
         "can be"),
    CHOICE(microbatch_weights, "microbatch-weights", N_STEP | PSTD_OPT_EVAL,
           "rows", "rows|equal|tokens",
           "how much a microbatch counts: by its rows, as any other, by the "
           "targets that the loss does not ignore"),
    TEXT(chunk, "chunk",
         N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_INFER,
         NULL, "NAME=DIM|replicate,...",
         "dimension of an input that is divided into microbatches, or that "
         "each gets it whole; if not given: 0"),
    TEXT(size, "size",
         N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_INFER,
         NULL, "NAME.DIM=SIZE,...",
         "sizes of inputs besides the rows, for models that leave them free; "
         "others are as exported"),
    UINT(threads, "threads", T_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN,
         "0", 0, 1024, "kernel threads of a rank; 0: its share of the cores"),
    UINT(seed, "seed", T_STEP | C_STEP | PSTD_OPT_SPLIT, "0", 0, MANY,
         "of everything random"),
    CHOICE(dtype, "dtype", N_STEP | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN,
           "f32", "f32|bf16",
           "bf16: factors of matrix products are rounded to bf16; parameters, "
           "sums and states stay f32"),
    TEXT(optimizer, "optimizer", T_STEP | PSTD_OPT_PLAN, "adamw", "NAME",
         "what moves the parameters: none, sgd, adamw"),
    REAL(lr, "lr", N_STEP, NULL, 0, BIG,
         "learning rate; what is not given of this and the next seven is "
         "PyTorch's default"),
    REAL(momentum, "momentum", N_STEP | PSTD_OPT_PLAN, NULL, 0, BIG, "sgd"),
    REAL(dampening, "dampening", N_STEP, NULL, -BIG, BIG, "sgd"),
    FLAG(nesterov, "nesterov", N_STEP, "sgd"),
    REAL(beta1, "beta1", N_STEP, NULL, 0, 1, "adamw"),
    REAL(beta2, "beta2", N_STEP, NULL, 0, 1, "adamw"),
    REAL(eps, "eps", N_STEP, NULL, 0, BIG, "adamw"),
    REAL(weight_decay, "weight-decay", N_STEP, NULL, 0, BIG, "sgd, adamw"),
    REAL(clip_norm, "clip-norm", N_STEP, "0", 0, BIG,
         "greatest norm of all gradients together; 0: any"),
    CHOICE(lr_schedule, "lr-schedule", N_STEP, "constant",
           "constant|linear|cosine", "course of the learning rate"),
    UINT(warmup, "warmup", N_STEP, "0", 0, MANY,
         "updates in which the rate rises linearly from 0"),
    UINT(lr_steps, "lr-steps", N_STEP, "0", 0, MANY,
         "updates until the rate has fallen to --lr-min; 0: --steps"),
    REAL(lr_min, "lr-min", N_STEP, "0", 0, BIG, "rate at the end"),

    PATH(data, "data", T_DATA, "FILE",
         "batches (.safetensors) or tokens (any other file)"),
    CHOICE(token_dtype, "token-dtype", N_DATA, "uint8", "uint8|uint16|uint32",
           "of a token file"),
    UINT(seq_len, "seq-len", N_DATA, "0", 0, MANY,
         "tokens of a sample; 0: as the model's input"),
    TEXT(tokens_input, "tokens-input", N_DATA, NULL, "NAME",
         "input that gets tokens; if not given: the first integer one"),
    TEXT(targets_input, "targets-input", N_DATA, NULL, "NAME",
         "input that gets the next tokens; if not given: the second one"),
    CHOICE(data_at, "data-at", T_STEP | PSTD_OPT_PLAN, "all", "first|all",
           "ranks that read --data: rank 0, which sends the others what they "
           "need, or all"),
    FLAG(shuffle, "shuffle", N_DATA, "samples in random order, by --seed"),

    PATH(eval_data, "eval-data", T_RUN | PSTD_OPT_PLAN, "FILE",
         "what the model is evaluated on while it is trained, as eval does it: "
         "every --eval-every steps and at the end"),
    PATH(
        eval_model, "eval-model", T_RUN | PSTD_OPT_PLAN | PSTD_OPT_SERVE,
        "FILE",
        "the model as it was exported after model.eval() (.pt2), with the same "
        "tensors: run instead, for a model whose modes differ by more than "
        "dropout and batch norm"),
    UINT(eval_every, "eval-every", T_RUN, "0", 0, MANY,
         "steps between evaluations; 0: only at the end"),
    UINT(eval_batches, "eval-batches", T_RUN | PSTD_OPT_NUMBERS, "0", 0, MANY,
         "steps to evaluate, from the beginning of --eval-data; 0: all of it"),
    FLAG(keep_best, "keep-best", T_RUN,
         "a checkpoint of the step with the smallest loss there, in the folder "
         "best of --checkpoint"),
    UINT(patience, "patience", T_RUN, "0", 0, MANY,
         "end the run when so many evaluations in a row were not better than "
         "the best one; 0: never"),

    UINT(steps, "steps", T_RUN, "1", 0, MANY,
         "steps in all, those before a resume included"),
    PATH(checkpoint, "checkpoint", T_RUN | PSTD_OPT_SERVE | PSTD_OPT_LOAD,
         "DIR", "folder of checkpoints"),
    UINT(checkpoint_every, "checkpoint-every", T_RUN, "0", 0, MANY,
         "steps between checkpoints; 0: only at the end"),
    REAL(checkpoint_cost, "checkpoint-cost", T_RUN, "0", 0, 100,
         "instead of --checkpoint-every: checkpoints as often as they take no "
         "more than X percent of the run's time, which is measured"),
    FLAG(checkpoint_sync, "checkpoint-sync", T_RUN,
         "steps wait until a checkpoint is written; else they go on, and it is "
         "written of a copy in memory"),
    UINT(keep, "keep", T_RUN, "2", 0, MANY, "newest checkpoints kept; 0: all"),
    ROW(resume, "resume", 0, FROM, T_RUN, NULL, 0, 0, "STEP|auto",
        "go on from the newest good checkpoint, or from that of STEP; newer "
        "ones then move into a folder beside it; auto: from the newest, or "
        "from the start if there is none"),
    FLAG(adopt, "adopt", T_RUN,
         "take over a --checkpoint folder of another run, whose checkpoints "
         "move into a folder inside it"),
    PATH(checkpoint_fallback, "checkpoint-fallback", T_RUN, "DIR",
         "where a checkpoint goes that --checkpoint cannot take, as on a full "
         "disk; --resume looks into both"),
    UINT(checkpoint_retry, "checkpoint-retry", T_RUN, "10", 0, 86400,
         "seconds in which a last checkpoint that cannot be written is tried "
         "again"),
    FLAG(accept_lost_backward, "accept-lost-backward", T_RUN,
         "train a model that was exported with a torch.autograd.Function by "
         "the gradient of its forward: the file has no other"),
    CHOICE(on_nan, "on-nan", T_RUN, "stop", "stop|skip|rollback",
           "when a loss or gradient is not finite: end the run before that "
           "step, leave it out, or go back to the newest checkpoint (and leave "
           "it out if it fails again)"),
    UINT(nan_limit, "nan-limit", T_RUN, "10", 1, MANY,
         "steps left out in a row, and ways back to one checkpoint, after "
         "which the run ends all the same"),
    UINT(compare_replicas, "compare-replicas", T_RUN, "0", 0, MANY,
         "steps between comparisons of what replicas have copies of: one that "
         "differs ends the run and names rank and parameter; 0: only before "
         "checkpoints"),
    PATH(dump, "dump", T_RUN, "FILE",
         "loss, outputs and gradients of the first step, then the parameters"),
    PATH(dump_fault, "dump-fault", T_RUN, "FILE",
         "the microbatch with which a step could not be made, as data to run "
         "it again; the newest one, if there are several"),
    PATH(write_costs, "write-costs", T_RUN, "FILE",
         "what the parts of a step cost on these ranks, for --costs"),
    REAL(watchdog, "watchdog", T_LOCAL | PSTD_OPT_SERVE, NULL, 0, BIG,
         "seconds that a rank may stand still before the job ends and names it "
         "and what it was doing; 0: for ever; if not given: 60, and in steps, "
         "once there were some, 10 times the longest of the newest, at least "
         "30"),
    UINT(log_every, "log-every", T_LOCAL, "0", 0, MANY,
         "steps between two step events; 0: all, but at most 20 a second"),

    ROW(grid, "ranks", 'n', GRID,
        PSTD_OPT_RANKS | PSTD_OPT_PLAN | PSTD_OPT_VERIFY | PSTD_OPT_EQUAL, NULL,
        1, 4096, "[Rx]P",
        "ranks of the pipeline, and how many replicas of it share a batch; if "
        "not given: one rank a stage (penstockd: with --transport self)"),
    CHOICE(transport, "transport", PSTD_OPT_RANKS, NULL, "mpi|self",
           "how ranks talk; self: all of them in one process"),
    TEXT(device, "device", PSTD_OPT_RANKS | PSTD_OPT_EQUAL, "cpu", "LIST",
         "what ranks compute on: cpu, cuda (the GPU with the number of the "
         "rank on its host) or cuda:N; or a list of these with commas, one "
         "for each rank, the last one for all others"),
    FLAG(verify_messages, "verify-messages", PSTD_OPT_RANKS | PSTD_OPT_EQUAL,
         "messages between processes have a checksum (CRC32C): one that came "
         "otherwise than it was sent ends the job, and names both ranks"),
    FLAG(core_files, "core-files", PSTD_OPT_RANKS,
         "a process that crashes may leave a core file, in which parameters, "
         "data and the environment are"),
    PATH(log_dir, "log-dir", PSTD_OPT_RANKS, "DIR",
         "one log file per rank: DIR/rank-N.log"),
    PATH(prom, "prom", PSTD_OPT_RANKS, "FILE",
         "numbers of rank 0, for the textfile collector of node-exporter: a "
         "name that ends in .prom"),
    PATH(tensorboard, "tensorboard", PSTD_OPT_COURSE | PSTD_OPT_DAEMON, "DIR",
         "curves of losses, rates and speed for TensorBoard; a file of each "
         "start of the job"),
    TEXT(run_id, "one-run", PSTD_OPT_DAEMON, NULL, "ID",
         "begin the run that the options describe as soon as all is loaded, "
         "and end behind it; ID tells clients whose job this is"),
    FLAG(stay, "stay", PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "with --one-run and --journal: wait for runs instead; one that was "
         "being made when the job ended goes on when it is started again"),
    FLAG(begin_paused, "begin-paused", PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "with --one-run: the run is paused before its first step"),
    PATH(journal, "journal", PSTD_OPT_DAEMON, "FILE",
         "of rank 0's events: who watches late gets all of them, and a job "
         "that is started again with the same file goes on with their "
         "numbers"),
    REAL(
        client_timeout, "client-timeout", PSTD_OPT_RANKS, "10", 0.05, BIG,
        "seconds that a client of the control socket has to say Hello, to "
        "finish a frame and to take an answer; 30 times that to ask something"),
    FLAG(die_with_client, "die-with-client", PSTD_OPT_RUN,
         "the job ends when this client does; else it goes on to its end"),
    UINT(max_restarts, "max-restarts", PSTD_OPT_RUN, "0", 0, MANY,
         "a job that died is started again from its newest checkpoint, so many "
         "times without a newer one; the job ends with this client then"),
    UINT(min_ranks, "min-ranks", PSTD_OPT_COURSE, "0", 0, MANY,
         "with --max-restarts: a job that has lost a rank twice in a row "
         "without a newer checkpoint goes on with fewer ranks, so many at "
         "least; its stages are placed anew; 0: with as many as ever"),
    TEXT(hosts, "hosts", PSTD_OPT_HOSTS, NULL, "NAME[:SLOTS],...",
         "hosts for the ranks, this one among them, and how many each may "
         "have; without numbers ranks are divided evenly"),
    PATH(hostfile, "hostfile", PSTD_OPT_HOSTS, "FILE",
         "the same from a file with lines NAME [slots=N]"),
    TEXT(interface, "interface", PSTD_OPT_RUN, NULL, "NAME|NETWORK/BITS,...",
         "messages between hosts by these network interfaces alone"),
    FLAG(die_with_parent, "die-with-parent", PSTD_OPT_DAEMON,
         "end when the process that started this one ends"),
    PATH(socket, "socket", PSTD_OPT_CONNECT, "PATH",
         "control socket of rank 0"),
    TEXT(job, "job", PSTD_OPT_CONNECT, NULL, "NAME",
         "name of the job; its sockets are in "
         "$XDG_RUNTIME_DIR/penstock/NAME, else /tmp/penstock-UID/NAME"),

    FLAG(serve, "serve", PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
         "with --one-run: answer requests for outputs instead of training"),
    UINT(queue, "queue", PSTD_OPT_SERVE | PSTD_OPT_DAEMON, "64", 1, 65536,
         "requests that may wait; who asks beyond that is told to ask again"),
    REAL(batch_wait, "batch-wait", PSTD_OPT_SERVE | PSTD_OPT_DAEMON, "0", 0,
         10000,
         "milliseconds that a request waits for others to share its step, "
         "unless they fill one before"),
    REAL(ask_timeout, "timeout", PSTD_OPT_ASK, "0", 0, BIG,
         "seconds to wait for an answer; 0: for ever"),

    ROW(output, "output", 'o', PATH, PSTD_OPT_OUTPUT | PSTD_OPT_ATTR, NULL, 0,
        0, "PATH",
        "what to write: split, the folder of a plan; infer, weights, attr get, "
        "ask, a .safetensors; ask also a .json"),
    UINT(stages, "stages", PSTD_OPT_SPLIT, "0", 0, 4096,
         "number of stages; 0: as the markers in the model say, else 1"),
    ROW(at, "at", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "NAME[:begin|:end]",
        "cut before (or behind) this module or node; repeatable"),
    ROW(replicate, "replicate", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN",
        "a parameter of several stages has a copy in each, gradients are "
        "summed; what all do that --transmit does not name; repeatable"),
    ROW(transmit, "transmit", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN",
        "a parameter of several stages is sent by the first of them to the "
        "others in each step; repeatable"),
    ROW(owner, "owner", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN=STAGE",
        "a buffer that several stages write and read travels from microbatch "
        "to microbatch; this stage has it between steps; repeatable"),
    ROW(swap, "swap", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "FQN[@K]=MODULE.pt2",
        "another module in the place of this one, or of its call number K; "
        "repeatable"),
    FLAG(aliases, "aliases", PSTD_OPT_SPLIT | PSTD_OPT_SWAP,
         "of another module: also where the model has the old one under other "
         "names"),
    UINT(at_call, "at-call", PSTD_OPT_SWAP, NULL, 0, 0x1p31,
         "at this call of the module alone"),
    TEXT(state, "state", PSTD_OPT_SWAP | PSTD_OPT_ATTR, "reset",
         "reset|keep|map:FILE",
         "of the optimizer, for parameters with the names and shapes of old "
         "ones; attr set keeps it if not told otherwise; of swap also a file "
         "that says whose states new parameters go on with: {\"NEW\": "
         "\"OLD\", ...}"),
    ROW(freeze, "freeze", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "PATTERN",
        "parameters that are not trained: names of theirs or of modules, with "
        "* and ?; repeatable"),
    ROW(unfreeze, "unfreeze", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0, "PATTERN",
        "and such that are, behind --freeze; repeatable"),
    ROW(lora, "lora", 0, LIST, PSTD_OPT_SPLIT, NULL, 0, 0,
        "PATTERN:rank=R[,alpha=X]",
        "linear layers that get a low-rank adapter: names of modules, with * "
        "and ?; all other parameters are frozen; alpha: 8; repeatable"),
    TEXT(policy, "policy", PSTD_OPT_SPLIT, NULL,
         "markers|layers|flops|memory|file:FILE",
         "where to cut if --at does not say: at the model's markers, between "
         "layers, into --stages of equal work or memory, at the names of "
         "modules and nodes in a JSON list"),
    REAL(bandwidth, "bandwidth", PSTD_OPT_SPLIT, NULL, 1, BIG,
         "bytes in a second from stage to stage, for --policy; if not given: "
         "1.25e10, or what --costs says"),
    TEXT(loss, "loss", PSTD_OPT_SPLIT, NULL, "SPEC",
         "output that is the loss (\"0\", \"logits.loss\", none); if not "
         "given: the first output if it is a floating scalar, or \"loss\""),
    TEXT(loss_fn, "loss-fn", PSTD_OPT_SPLIT, NULL, "NAME[:KEY=VALUE,...]",
         "loss to add to a model without one, with its target as an input: "
         "cross_entropy, nll, mse, l1, smooth_l1, huber, bce_with_logits"),
    PATH(weights, "weights", PSTD_OPT_SPLIT, "FILE|FOLDER",
         "start values instead of the model's, by the names of its state_dict: "
         "a .safetensors, or a folder with an index and its shards"),
    FLAG(partial, "partial", PSTD_OPT_SPLIT,
         "names that --weights lacks stay as the model has them, others that "
         "it has are passed over"),
    ROW(stage, "stage", 0, UINT, PSTD_OPT_SHOW, NULL, 0, 4096, "K",
        "one stage: inputs with their sources, operators, outputs with their "
        "consumers"),
    CHOICE(format, "format", PSTD_OPT_SHOW, "text", "text|dot|svg",
           "how to show a plan (or the one that a .pt2 file makes)"),
    FLAG(modules, "modules", PSTD_OPT_SHOW, "the modules of the model"),
    TEXT(
        module, "module", PSTD_OPT_SHOW, NULL, "FQN[@K]",
        "the graph of one call of a module: the one with this number, else the "
        "first; calls in it are one line each"),
    FLAG(kernels, "kernels", PSTD_OPT_SHOW,
         "the kernel of each operator in a training step"),
    TEXT(after, "after", PSTD_OPT_SHOW, NULL, "PASS",
         "the graph behind this pass of the compiler, with the kernels and "
         "places that are known there; of --stage, else of stage 0"),
    FLAG(passes, "passes", PSTD_OPT_SHOW, "the passes that --after takes"),
    FLAG(calls, "calls", PSTD_OPT_MODULES,
         "each call, in the order in which they begin"),
    PATH(svg, "svg", PSTD_OPT_PICTURE, "FILE",
         "picture of a step: who does what when"),
    PATH(trace, "trace", PSTD_OPT_PICTURE, "FILE",
         "the same for chrome://tracing and Perfetto"),
    PATH(csv, "csv", PSTD_OPT_PLAN, "FILE",
         "the schedule in PyTorch's grammar; --schedule csv:FILE reads it"),
    FLAG(what_if, "what-if", PSTD_OPT_PLAN,
         "what each way to need less memory would save and cost"),
    UINT(batches, "batches", PSTD_OPT_EVAL, "0", 0, MANY,
         "steps to evaluate, from the beginning of the file; 0: all of it"),
    FLAG(
        other_model, "other-model",
        PSTD_OPT_LOAD | PSTD_OPT_SERVE | PSTD_OPT_DAEMON | PSTD_OPT_EQUAL,
        "take a checkpoint of another model whose tensors have these names and "
        "shapes, as of one that was exported to train"),
    ROW(keep_random, "keep-random", 0, LIST, PSTD_OPT_LOAD, NULL, 0, 0,
        "MODULE",
        "what is random in these modules stays so, dropout too; a pattern "
        "(\"blocks.*.noise\"); repeatable"),
    ROW(n_tokens, "tokens", 0, UINT, PSTD_OPT_INFER, "100", 1, 0x1p32, "N",
        "tokens to generate"),
    TEXT(prompt, "prompt", PSTD_OPT_INFER, NULL, "TEXT",
         "bytes to go on from, or numbers of tokens"),
    PATH(prompt_file, "prompt-file", PSTD_OPT_INFER, "FILE",
         "the same from a file"),
    REAL(temperature, "temperature", PSTD_OPT_INFER, "0", 0, BIG,
         "0: the likeliest token; 1: as the model says"),
    ROW(lines, "lines", 0, UINT, PSTD_OPT_LOG, "20", 1, 1024, "N",
        "newest events"),
    ROW(from, "from", 0, UINT, PSTD_OPT_WATCH, "0", 0, MANY, "SEQ",
        "first event wanted; 0: from now on"),
    FLAG(now, "now", PSTD_OPT_STOP, "without a checkpoint"),
    FLAG(no_wait, "no-wait", PSTD_OPT_STOP, "do not wait for the end"),
    FLAG(detach, "detach", PSTD_OPT_DETACH,
         "return when the work was accepted, or the run has begun"),
    FLAG(merge, "merge", PSTD_OPT_WEIGHTS,
         "the model as it was before split --lora, with what its adapters add "
         "in the weights"),
    FLAG(adapter, "adapter", PSTD_OPT_WEIGHTS,
         "the adapters alone, as peft has them: -o is a folder, or a file with "
         "adapter_config.json beside it"),
    FLAG(verify, "verify",
         T_LOCAL | PSTD_OPT_SERVE | C_STEP | PSTD_OPT_PLAN | PSTD_OPT_SHOW |
             PSTD_OPT_CHECKPOINTS,
         "check all of it: of checkpoints every byte, exit code 65 if one is "
         "damaged; of what the compiler makes every operand's window and who "
         "writes over what, found again from the graph"),
    FLAG(before, "before", PSTD_OPT_FLIGHT,
         "of the start before the newest one"),
    ROW(pin, "pin", 0, LIST, PSTD_OPT_CHECKPOINTS, NULL, 0, 0, "STEP",
        "keep the checkpoint of that step for ever; repeatable"),
    ROW(unpin, "unpin", 0, LIST, PSTD_OPT_CHECKPOINTS, NULL, 0, 0, "STEP",
        "no more; repeatable"),
    ROW(remove, "remove", 0, LIST, PSTD_OPT_CHECKPOINTS, NULL, 0, 0, "STEP",
        "remove it, but never the newest good one; repeatable"),
    FLAG(reference, "reference", PSTD_OPT_REFERENCE,
         "the whole model as one stage in one process: what any cut equals"),
    FLAG(list, "list", PSTD_OPT_EXPLAIN, "all ids"),
    FLAG(quiet, "quiet", PSTD_OPT_QUIET, "no progress, the last line alone"),
    FLAG(json, "json", PSTD_OPT_JSON, "one JSON object on standard output"),
    ROW(help, "help", 'h', FLAG, PSTD_OPT_ALL, NULL, 0, 0, NULL, "this text"),
};

_Static_assert(PST_COUNT(rows) <= PSTD_MAX_OPTIONS, "too many options");

const struct pstd_option *pstd_options(size_t *ret_n)
{
    *ret_n = PST_COUNT(rows);
    return rows;
}
