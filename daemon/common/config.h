// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_COMMON_CONFIG_H
#define PENSTOCK_DAEMON_COMMON_CONFIG_H
/*
 * Options of penstockd and of every command of penstock: one row each in
 * options.c. A row defines the command line, the environment variable, --help,
 * the dump, and how a Train request carries the option.
 *
 * Any thread, one at a time. A config owns all its texts.
 */
#include "daemon/common/options/every.h"
#include "daemon/common/options/ramp.h"
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/str.h"

#include <stdbool.h>
#include <stdint.h>

/* Groups of options: a command accepts the options of its groups. Some groups
 * hold a single option, for commands that accept it without related ones. */
#define PSTD_GROUP(n)   (UINT64_C(1) << (n))
#define PSTD_OPT_ALL    PSTD_GROUP(0) /* --help, which every command has */
#define PSTD_OPT_TRAIN  PSTD_GROUP(1) /* options of a run (Train) */
#define PSTD_OPT_STEP   PSTD_GROUP(2) /* TRAIN options that shape a step */
#define PSTD_OPT_DATA   PSTD_GROUP(3) /* TRAIN options that name data */
#define PSTD_OPT_RANKS  PSTD_GROUP(4) /* options of the rank processes */
#define PSTD_OPT_DAEMON PSTD_GROUP(5) /* for penstockd only */
/* options that name a job: --socket --job */
#define PSTD_OPT_CONNECT PSTD_GROUP(6)
#define PSTD_OPT_JSON    PSTD_GROUP(7)
#define PSTD_OPT_QUIET   PSTD_GROUP(8)
#define PSTD_OPT_SPLIT   PSTD_GROUP(9)
#define PSTD_OPT_OUTPUT  PSTD_GROUP(10)
#define PSTD_OPT_SHOW    PSTD_GROUP(11)
/* option --checkpoint of eval and infer */
#define PSTD_OPT_LOAD   PSTD_GROUP(12)
#define PSTD_OPT_EVAL   PSTD_GROUP(13)
#define PSTD_OPT_INFER  PSTD_GROUP(14)
#define PSTD_OPT_LOG    PSTD_GROUP(15)
#define PSTD_OPT_WATCH  PSTD_GROUP(16)
#define PSTD_OPT_STOP   PSTD_GROUP(17)
#define PSTD_OPT_DETACH PSTD_GROUP(18)
#define PSTD_OPT_PLAN   PSTD_GROUP(19)
#define PSTD_OPT_VERIFY PSTD_GROUP(20)
/* options of pictures: --svg --trace */
#define PSTD_OPT_PICTURE   PSTD_GROUP(21)
#define PSTD_OPT_REFERENCE PSTD_GROUP(22)
/* options of a job that a client starts */
#define PSTD_OPT_RUN         PSTD_GROUP(23)
#define PSTD_OPT_CHECKPOINTS PSTD_GROUP(24)
#define PSTD_OPT_MODULES     PSTD_GROUP(25)
#define PSTD_OPT_SWAP        PSTD_GROUP(26)
#define PSTD_OPT_WEIGHTS     PSTD_GROUP(27)
#define PSTD_OPT_ATTR        PSTD_GROUP(28)
#define PSTD_OPT_FLIGHT      PSTD_GROUP(29)
/* TRAIN options that must be equal on all ranks */
#define PSTD_OPT_EQUAL PSTD_GROUP(30)
/* options that name hosts: --hosts --hostfile */
#define PSTD_OPT_HOSTS   PSTD_GROUP(31)
#define PSTD_OPT_EXPLAIN PSTD_GROUP(32)
#define PSTD_OPT_SERVE   PSTD_GROUP(33) /* options of a served model */
#define PSTD_OPT_ASK     PSTD_GROUP(34)
#define PSTD_OPT_COURSE  PSTD_GROUP(35) /* options of a training job */
#define PSTD_OPT_NUMBERS PSTD_GROUP(36) /* options that change results */
#define PSTD_OPT_SET     PSTD_GROUP(37) /* options that `set` can change */
#define PSTD_OPT_WRITTEN PSTD_GROUP(38) /* paths of files to write */
/* options that only the library uses */
#define PSTD_OPT_LIBRARY PSTD_GROUP(39)
#define PSTD_OPT_OPS     PSTD_GROUP(40)

enum pstd_option_type {
    PSTD_FLAG, /* bool */
    PSTD_UINT, /* uint64_t */
    PSTD_REAL, /* double; NaN if it has no default and is not given */
    PSTD_MIB,  /* double, in MiB: "1.5", "1536KiB", "2G" */
    PSTD_TEXT, /* const char *, NULL if it has no default and is not given */
    /* TEXT: a name, or "a:PATH" if `value` has the choice "a:FILE" or
     * "a:FOLDER"; the path is made absolute when sent (pstd_option_path) */
    PSTD_SOURCE,
    PSTD_POINTS, /* TEXT: points, or @FILE, which becomes the points of the file
                    (options/points.h) */
    /* TEXT that is one of the choices in `value`; a choice "a:B" is "a:"
     * followed by any text */
    PSTD_CHOICE,
    PSTD_PATH,  /* TEXT; made absolute when sent */
    PSTD_FILES, /* TEXT: a list of data files (stages/files/data/list.h); names
                   are made absolute when sent */
    PSTD_SETS,  /* TEXT: FILES, or joined NAME=FILES of each use of the option
                   (options/sets.h) */
    PSTD_PATHS, /* TEXT: paths separated by ':' (pstd_path_length); each use of
                   the option adds to those that are set; made absolute when
                   sent */
    PSTD_RULES, /* TEXT: rules separated by ';'; each use of the option adds
                   to those that are set */
    PSTD_LIST,  /* struct pstd_list, one entry per use */
    PSTD_GRID,  /* struct pstd_grid: "P" or "RxP" */
    PSTD_FROM,  /* struct pstd_from: NAME, NAME=STEP or NAME=auto */
    PSTD_RAMP,  /* struct pstd_ramp: "N" or "COUNT:STEP,..." */
    PSTD_EVERY, /* struct pstd_every: "N" or "Xepochs" */
};

/* Replicas of a pipeline, and ranks of each; 0: not given. */
struct pstd_grid {
    uint64_t replicas, ranks;
};

/* Whether to resume from a checkpoint, and from which one. */
struct pstd_from {
    bool on;
    /* --resume=auto: resumes only if there is a checkpoint; `on` is true until
     * that is checked */
    bool if_any;
    uint64_t step; /* step of the checkpoint; 0: the newest good one */
};

struct pstd_list {
    const char **at;
    size_t n;
};

struct pstd_option {
    const char *name; /* "lr-min", without dashes */
    char letter;      /* letter of the short option, such as 'n'; 0: none */
    enum pstd_option_type type;
    uint64_t groups;
    size_t at;         /* offset in struct pstd_config */
    const char *start; /* default as text, or NULL */
    double min, max;   /* limits of UINT, REAL and MIB; both 0: no limits */
    const char *value; /* name of the value in --help: "N", "none|sgd" */
    const char *help;
};

#define PSTD_MAX_OPTIONS 256

// NOLINTNEXTLINE(clang-analyzer-optin.performance.Padding): sorted by topic
struct pstd_config {
    struct pst_arena arena;
    /* by row: the option was set explicitly, not by a default */
    bool given[PSTD_MAX_OPTIONS];

    /* Options that shape a step. */
    const char *schedule, *place, *costs, *recompute, *stash, *shard,
        *gather_dtype, *shard_layout;
    double memory_limit;
    bool overcommit, verify;
    struct pstd_ramp microbatches;
    uint64_t microbatch_size, batch, threads, seed;
    uint64_t unshard_window, stash_keep;
    const char *microbatch_weights, *chunk, *size;
    const char *dtype;
    const char *bind;
    const char *plugin; /* paths */
    const char *missing;
    bool check_plugins;
    const char *device; /* list by rank (stages/ops/devices.h) */
    bool no_fallback, no_chunked_loss, no_chains, no_graphs, tf32;
    const char *optimizer, *group, *no_decay;
    double lr, momentum, dampening, beta1, beta2, eps, weight_decay;
    double alpha, rho, lr_decay;
    bool nesterov, centered, match_rms_adamw;
    uint64_t ns_steps;
    double beta2_decay, eps2, clip_threshold, ema;
    const char *state_dtype;
    bool use_ema;
    double clip_norm, clip_value;
    const char *loss_scale;
    const char *lr_schedule, *lr_points, *lr_decay_shape;
    uint64_t lr_steps, warmup, lr_decay_steps, lr_cycles;
    double lr_min, lr_power;

    /* Options of the data. */
    const char *data, *token_dtype, *tokens_input, *targets_input;
    const char *pack, *positions_input, *documents_input, *mask_input;
    uint64_t seq_len;
    bool shuffle;
    const char *data_at;

    /* Options of the evaluations of a run. */
    const char *eval_data, *eval_model, *eval_metric, *token_bytes;
    struct pstd_every eval_every;
    uint64_t eval_batches, patience;
    bool keep_best;

    /* Options of a run. */
    uint64_t steps;
    double epochs; /* NaN: not given */
    /* true if `steps` was computed from --epochs; no option sets this member */
    bool steps_counted;
    const char *checkpoint, *checkpoint_fallback;
    double checkpoint_cost;
    struct pstd_every checkpoint_every;
    uint64_t checkpoint_retry, keep, log_every;
    struct pstd_from resume;
    bool adopt, other_model, checkpoint_sync, accept_lost_backward;
    const char *dump, *dump_fault;
    const char *on_nan, *on_spike;
    uint64_t nan_limit, compare_replicas, spike_window;
    double spike_threshold;
    double watchdog;
    const char *write_costs;

    /* Options of ranks and daemon. */
    struct pstd_grid grid;
    const char *transport, *log_dir, *prom, *tensorboard, *socket, *job;
    bool verify_messages, core_files;
    const char *run_id, *journal, *kept_run;
    bool begin_paused;
    bool stay;
    double client_timeout;
    bool die_with_parent, die_with_client;
    uint64_t max_restarts, min_ranks;
    const char *hosts, *hostfile, *interface;

    /* Options of a served model. */
    bool serve;
    uint64_t queue;
    double batch_wait, ask_timeout;

    /* Options of commands of penstock. */
    bool help, json, quiet, reference, list;
    const char *output, *policy, *loss, *loss_fn, *weights;
    bool partial;
    uint64_t init_seed;
    double init_std;
    double bandwidth;
    uint64_t stages;
    struct pstd_list at, replicate, transmit, owner, keep_random, swap, freeze,
        unfreeze, lora;
    struct pstd_list read; /* files that options were read from */
    const char *autocast;  /* "bf16", "f16" or NULL */
    const char *params;    /* "bf16" or NULL */
    bool aliases;
    uint64_t at_call;
    const char *state;
    uint64_t stage;
    const char *format;
    bool modules, kernels, passes, calls;
    const char *module; /* FQN[@K]: call K of the module FQN */
    const char *after;
    const char *svg, *trace, *csv;
    bool what_if;
    uint64_t batches, n_tokens;
    const char *prompt, *prompt_file;
    double temperature;
    uint64_t lines, from;
    bool now, detach, no_wait;
    bool merge, adapter, before;
    struct pstd_list pin, unpin, remove;
    struct pstd_list input_gradients;

    const char **args; /* positional arguments, in order */
    size_t n_args;
};

/* Sets all defaults. */
enum pst_status pstd_config_init(struct pstd_config *config,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstd_config_fini(struct pstd_config *config);
/* Initialises `to` as a deep copy of `from`. */
enum pst_status pstd_config_copy(struct pstd_config *to,
                                 const struct pstd_config *from,
                                 struct pst_diag *diag) PST_MUST_CHECK;

/* Sets the options of the groups for which there is an environment variable:
 * PENSTOCK_LR_MIN is --lr-min. */
enum pst_status pstd_config_env(struct pstd_config *config, uint64_t groups,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Function called for an environment variable PENSTOCK_... that nothing reads.
 * near: the name that may have been intended, or NULL. */
typedef void (*pstd_unread_fn)(void *ctx, const char *variable,
                               const char *near);
/* Calls fn for each variable PENSTOCK_... that nothing reads. */
void pstd_config_env_unread(pstd_unread_fn fn, void *ctx);
/* Parses arguments; argv[0] is skipped. Accepts "--name value", "--name=value"
 * and "-n value"; "--" ends the options. "@FILE" before "--" reads options from
 * a file; options among the arguments override them. PST_ERR_USAGE: unknown
 * option; the error names the nearest one. */
enum pst_status pstd_config_parse(struct pstd_config *config, uint64_t groups,
                                  int argc, char *const *argv,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Reads a file of options: `name = value` lines, a subset of TOML. _text:
 * reads its text of `size` bytes, which ends with NUL, and changes it. */
enum pst_status pstd_config_read(struct pstd_config *config, uint64_t groups,
                                 const char *path,
                                 struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pstd_config_read_text(struct pstd_config *config,
                                      uint64_t groups, const char *path,
                                      char *text, size_t size,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Sets one option. name: without dashes, as in Train requests. */
enum pst_status pstd_config_set(struct pstd_config *config, uint64_t groups,
                                const char *name, const char *value,
                                struct pst_diag *diag) PST_MUST_CHECK;

/* Sets an option that may change while a run goes on (PSTD_OPT_SET), as
 * pstd_config_set does. PST_ERR_USAGE also for other options of a run, and for
 * a value that is empty or not UTF-8, which a checkpoint could not record. */
enum pst_status pstd_config_set_running(struct pstd_config *config,
                                        const char *name, const char *value,
                                        struct pst_diag *diag) PST_MUST_CHECK;
/* Sets several options from "name\0value\0..." of size bytes, which ends with
 * NUL. */
enum pst_status pstd_config_set_all(struct pstd_config *config, uint64_t groups,
                                    const char *text, size_t size,
                                    struct pst_diag *diag) PST_MUST_CHECK;

/* True if the job does not end by itself: it serves, or waits for runs. */
static inline bool pstd_stays(const struct pstd_config *config)
{
    return config->serve || config->stay;
}
/* True if the number of steps follows from --epochs, and is not known yet since
 * the data are not open. */
bool pstd_needs_epochs(const struct pstd_config *config);
/* Stores the number of steps that follows from --epochs; --steps still counts
 * as not given. */
void pstd_set_steps(struct pstd_config *config, uint64_t steps);
/* Return the number of ranks of a pipeline (`otherwise` if not given) and the
 * number of replicas of the pipeline. */
unsigned pstd_ranks(const struct pstd_config *config, unsigned otherwise);
unsigned pstd_replicas(const struct pstd_config *config);

const struct pstd_option *pstd_options(size_t *ret_n);
/* Function called for an option. title: the heading before it, or NULL. */
typedef void (*pstd_option_fn)(void *ctx, const struct pstd_option *row,
                               const char *title);
/* Calls visit for each option of the groups, in the order of --help. If there
 * are many, the most used ones come first, then the others by theme, each under
 * a heading. */
void pstd_options_visit(uint64_t groups, pstd_option_fn visit, void *ctx);
/* Returns our option for an option of another trainer, such as "--lr X" for
 * "learning-rate". NULL: the name is not known. */
const char *pstd_option_from_trainer(const char *name);
/* Returns the row of these groups with that name; NULL: there is none. */
const struct pstd_option *pstd_option_find(uint64_t groups, const char *name);
/* True if the option was given: PSTD_GIVEN(config, ranks). */
bool pstd_config_given(const struct pstd_config *config, size_t at);
#define PSTD_GIVEN(config, member)                                             \
    pstd_config_given(config, offsetof(struct pstd_config, member))

/* Resets a text option without a default to not given: PSTD_DROP(config,
 * place). */
void pstd_config_drop(struct pstd_config *config, size_t at);
#define PSTD_DROP(config, member)                                              \
    pstd_config_drop(config, offsetof(struct pstd_config, member))

/* Returns the address of the value of a row in a config. */
void *pstd_config_member(const struct pstd_config *config,
                         const struct pstd_option *row);

/* Returns the length of the first of several paths with ':' between. A path may
 * contain ':' itself: the shortest one that is a file counts, or if none is,
 * all until the first ':'. */
size_t pstd_path_length(const char *paths);
/* Returns the path within the text of a PATH or SOURCE row, up to its end; NULL
 * if the text is a name, or the row of another type. */
const char *pstd_option_path(const struct pstd_option *row, const char *text);
/* Formats the value of one row as text for pstd_config_set; paths become
 * absolute. False: the row has no value or is a list. */
bool pstd_config_text(const struct pstd_config *config,
                      const struct pstd_option *row, struct pst_str *out);
/* Help text of an option for one command. A member that is NULL keeps the text
 * of the option's row. A list ends with a NULL name. */
struct pstd_option_help {
    const char *name;  /* the option, without dashes */
    const char *help;  /* its effect in this command */
    const char *value; /* the values that this command takes */
    const char *start; /* default, as text */
};

/* Returns the help text of a row in a command. own: the command's list of own
 * texts, or NULL. */
struct pstd_option_help pstd_option_help(const struct pstd_option *row,
                                         const struct pstd_option_help *own);
/* Appends a line for each option of the groups: "--schedule NAME   order of
 * forwards and backwards ... [1f1b]", and headings (pstd_options_visit). own:
 * the command's list of own texts, or NULL. */
void pstd_config_help(uint64_t groups, const struct pstd_option_help *own,
                      struct pst_str *out);
/* Appends the options of these groups that were given, as one line:
 * lr=0.1 group="norms:lr=1 ...". Values with blanks, quotes or backslashes are
 * quoted, with a backslash before quotes and backslashes. */
void pstd_config_given_text(const struct pstd_config *config, uint64_t groups,
                            struct pst_str *out);
/* Returns the next option of a line that pstd_config_given_text has written,
 * which it splits in place; *at moves to the next option. False: the line has
 * ended, or the rest of it has another form. */
bool pstd_config_next_given(char **at, const char **ret_name,
                            const char **ret_value);
struct pst_facts; /* stages/run/facts.h */
/* Adds the options of these groups to `facts`, which ranks compare with each
 * other. Of a path only its presence is added: a file may have another name on
 * each host, and its content is compared where it is read. */
void pstd_config_facts(const struct pstd_config *config, uint64_t groups,
                       struct pst_facts *facts);
/* Appends "schedule=1f1b" lines for the rows of these groups, for logs and
 * tests. */
void pstd_config_dump(const struct pstd_config *config, uint64_t groups,
                      struct pst_str *out);

#endif
