// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_PLAN_H
#define PENSTOCK_STAGES_SPLIT_PLAN_H
/*
 * A plan: a model cut into stages. In memory it is made by pst_split or
 * pst_plan_load; on disk it is a directory with plan.pb and
 * stage-NNN.safetensors. Read-only once made. Its arena owns everything but the
 * graphs, which the plan owns.
 */
#include "stages/files/checkpoint/state_names.h"
#include "stages/files/data.h"
#include "stages/frontend/model.h"
#include "stages/graph/graph.h"

#define PST_PLAN_VERSION    9
#define PST_PLAN_MAX_STAGES 4096

struct pst_plan_file;
struct pst_plan_given;
struct pst_rates;

enum pst_source_kind { PST_SOURCE_MODEL_INPUT, PST_SOURCE_EDGE };

/* Source of stage->graph->inputs[i]. */
struct pst_stage_input {
    enum pst_source_kind kind;
    unsigned index; /* index in plan->inputs or in plan->edges */
};

/*
 * A value computed in one stage and used in a later one. It is sent once from
 * producer to consumer for every microbatch, and its gradient is sent back.
 *
 * The parts of a gradient keep sums in the order of the uncut graph
 * (autodiff.h): the last consumer stage (highest index) that has a gradient
 * adds up its own contributions and sends one part; every other consumer stage
 * sends each contribution as a separate part. The producer adds all parts:
 * those of the highest stage first, and those of one stage in the order part 0,
 * 1, ...
 */
struct pst_edge {
    unsigned id;
    /* index in the graph->outputs of from_stage */
    unsigned from_stage, from_output;
    /* index in the graph->inputs of to_stage */
    unsigned to_stage, to_input;
    const char *value; /* name of the value in the uncut graph */
    /* meta as sent and received; keeps dense strides */
    struct pst_meta meta;
    unsigned grad_parts; /* number of gradient messages; 0: none */
    /* true if the value is computed from a parameter with a gradient, or from a
     * model input of a floating dtype; other values have no gradient */
    bool depends;
    /* FQN of a buffer: the value is the buffer's content for the next
     * microbatch of an earlier stage; NULL: an ordinary value */
    const char *carries;
};

struct pst_stage {
    unsigned index;
    /* forward only; outputs: values of edges in the order of their first use,
     * then buffer updates */
    struct pst_graph *graph;
    struct pst_stage_input *inputs; /* one for each of graph->inputs */
    /* floating-point operations of one forward */
    double flops;
    size_t param_bytes, out_bytes;
    const char *weights; /* file name in the plan's directory */
    uint64_t weights_size;
    char weights_digest[33]; /* digest of the weights file; "": never saved */
};

struct pst_plan_input {
    const char *name;     /* argument name in the model */
    struct pst_meta meta; /* meta of one microbatch */
    /* size expressions by dimension (struct pst_value) */
    const char *const *dims;
    /* dimension divided into microbatches; -1: not divided */
    int chunk;
};

/*
 * A part of the gradient of a model input, which a stage computes and keeps for
 * each microbatch of a step (pst_plan_keep_gradients). Parts are divided as for
 * the gradient of an edge: the last stage with a part adds up its own
 * contributions; in every other stage each contribution is a separate part.
 */
struct pst_input_part {
    unsigned input; /* index in plan->inputs */
    unsigned stage;
    unsigned output; /* index in graph->outputs of the stage's joint graph */
};

/* One leaf of the model's flattened outputs. */
struct pst_plan_output {
    const char *path;
    bool is_tensor;
    struct pst_arg literal; /* value of an output that is not a tensor */
    int stage;              /* stage that computes it; -1: a model input */
    /* index in that stage's graph->outputs; for a model input, in inputs */
    unsigned output;
    struct pst_meta meta;
};

/* Returns the stage that has the output; stage 0 for a model input. */
static inline unsigned pst_plan_output_stage(const struct pst_plan_output *o)
{
    return o->stage < 0 ? 0 : (unsigned)o->stage;
}

/* One tensor of the model's state, with all its names. */
struct pst_plan_param {
    const char *fqn;
    const char **aliases;
    unsigned n_aliases;
    /* Names of parts of the tensor. nameless: only parts have names in the
     * model, and fqn is made up. */
    struct pst_named_window *windows;
    unsigned n_windows;
    bool nameless;
    enum pst_value_kind kind; /* PST_VALUE_PARAM, _BUFFER or _CONST */
    /* the last dimension has the real and the imaginary part */
    bool is_complex;
    struct pst_meta meta;
    /* The model has the tensor in a 16-bit dtype (`rounds`). The plan keeps it
     * in f32, because it is trained, and every reader rounds it. */
    bool rounded;
    enum pst_dtype rounds;
    bool requires_grad, persistent;
    /* Number of steps of the run when the tensor's optimizer state began. Only
     * set in plans that older versions wrote into checkpoints; since then it is
     * in the manifest. */
    uint64_t since;
    /* The values in a running job differ from the model's: the tensor was set
     * or cast, belongs to a replaced module, or was trained before it was
     * frozen. */
    bool changed;
    unsigned *stages; /* stages that read it, ascending; none: unused */
    /* by index in `stages`: number of the stage's contributions to the gradient
     */
    unsigned *uses;
    unsigned n_stages;
    unsigned owner_stage; /* stage whose weights file has the tensor */
    /* For a buffer that several stages write: each microbatch starts with the
     * value that the previous one left in stage `writer`, the last stage that
     * writes or reads the buffer. Edges carry the value to the stages that
     * start with it. For the first microbatch of a step, all of these have it
     * already. */
    bool carried;
    unsigned writer;
    /* For a parameter that several stages read. False: each of them has a copy,
     * an all-reduce sums the gradients, and each makes the same update. True:
     * only the owner has the parameter; it sends the value and receives the
     * gradients. */
    bool transmit;
};

struct pst_plan {
    struct pst_arena arena;
    const char *name;
    char model_digest[33]; /* digest of the .pt2 file */
    /* digest of plan.pb's content: the same on all ranks */
    char digest[33];
    /* digest of given start values (pst_plan_digest_made); "": none are given,
     * or it was not computed */
    char values_digest[33];
    /* Hash of what the model computes (frontend/identity.h); "": unknown. */
    char identity[33];
    /* if a running job has replaced modules in this plan (which no directory
     * has): model_digest of the original plan; else "" */
    char base_digest[33];
    char base_identity[33]; /* identity of the original plan; or "" */
    struct PST_VEC(struct pst_stage) stages;
    struct PST_VEC(struct pst_edge) edges; /* by id */
    struct PST_VEC(struct pst_plan_input) inputs;
    struct PST_VEC(struct pst_plan_output) outputs;
    struct PST_VEC(struct pst_plan_param) params; /* in model order */
    struct pst_adapters adapters;                 /* adapters among params */
    /* every name of a parameter -> index in params, + 1 */
    struct pst_map names;
    /* by input: true if training steps keep its gradient; NULL: none is kept */
    bool *wants;
    /* The parts of the kept gradients; the parts of an input are adjacent.
     * Their sum in this order is the gradient, which is zero without parts. */
    struct PST_VEC(struct pst_input_part) parts;
    bool parts_known; /* `parts` is final: joints are checked against it */
    /* cache by stage; NULL: none is cached; private */
    struct pst_joint **joints;
    /* grad_parts and uses are final: joints are checked against them */
    bool counted;
    int loss; /* index in outputs; -1: no loss */
    /* --loss-fn that added the loss; NULL: the model has its own loss, or this
     * plan was made from another one (pst_plan_root) */
    const char *loss_fn;
    /* symbols of sizes and their values in this plan */
    struct pst_symbols symbols;
    /* reason why symbolic sizes cannot be changed; or NULL */
    const char *fixed;
    bool evaluates;       /* exported in eval mode (struct pst_model) */
    const char *autocast; /* dtype of --autocast (struct pst_model) */
    /* source lines whose backward is missing (struct pst_model) */
    const char *lost;
    bool writes; /* the program writes values in place (struct pst_model) */
    struct PST_VEC(const char *) notes;
    /* description of the times that chose the cut; NULL: it was not chosen by
     * time, or the plan was loaded */
    const char *cut_by;
    const char *dir; /* directory that the plan was loaded from; or NULL */
    /* Reads the start value of params[i], contiguous, for a plan without
     * directory and model; or NULL. */
    enum pst_status (*read)(void *ctx, unsigned i, void *dst,
                            struct pst_diag *diag);
    void *read_ctx;
    /* source of start values if the plan was not loaded; or NULL */
    struct pst_model *model;
    /* for a joined or bound plan: the plan that has the data of the params */
    struct pst_plan *parent;
    struct pst_plan_file *files; /* open weight files, by stage; private */
    /* values given by the user in place of the model's; private */
    struct pst_plan_given *given;
};

/* Reads the start value of plan->params[i], like pst_plan_read_param. */
typedef enum pst_status (*pst_param_fn)(void *ctx, unsigned i, void *dst,
                                        struct pst_diag *diag);

/* Measured seconds of one microbatch, forward and backward. */
struct pst_split_cost {
    /* a module path (all its nodes), one call of a module ("n@1"), or one
     * node */
    const char *name;
    double seconds;
};

struct pst_split_options {
    /* "markers", "layers", "flops" or "memory"; NULL: markers if the model has
     * any, else flops */
    const char *policy;
    /* 0: as many as markers, names or layers determine, if there are any, else
     * 1 */
    unsigned stages;
    /* cuts: "NAME", "NAME:begin" or "NAME:end". NAME is a module (cut at every
     * call), one call ("n@1") or a node */
    const char *const *at;
    size_t n_at;
    /* rates for cost estimates; NULL: pst_rates_reference */
    const struct pst_rates *rates;
    double bandwidth; /* bytes per second between stages; 0: as in `rates` */
    /* measured times, which replace estimates if the policy cuts by time */
    const struct pst_split_cost *costs;
    size_t n_costs;
    /* parameters (any of their names) that their owner sends to the other
     * stages that read them; all other shared parameters are replicated */
    const char *const *transmit;
    size_t n_transmit;
    const char *const *replicate; /* parameters that must not be transmitted */
    size_t n_replicate;
    const char *const *owner; /* "FQN=STAGE": owner of a buffer that several
                                 stages write */
    size_t n_owner;
    /* the output that is the loss: "0", "logits.loss", "none"; NULL: default
     * (loss.c) */
    const char *loss;
    const char *loss_fn; /* loss to add, such as "mse", "nll:output=PATH"; or
                            NULL */
};

/* Cuts a model. The plan borrows model until it is freed. */
enum pst_status pst_split(struct pst_model *model,
                          const struct pst_split_options *options,
                          struct pst_plan **ret,
                          struct pst_diag *diag) PST_MUST_CHECK;
void pst_plan_free(struct pst_plan *plan);

/*
 * Replaces the model's start values by those in a file or folder of safetensors
 * (files/given.h). A tensor may have any of its names there. Only headers are
 * read in this call. For a plan made by pst_split. A missing or unknown name is
 * PST_ERR_INPUT; if partial, it is reported in a note, and tensors without a
 * new value keep the model's. A smaller floating dtype is upcast; any other
 * difference of dtype or shape is PST_ERR_SHAPE.
 */
enum pst_status pst_plan_set_weights(struct pst_plan *plan, const char *path,
                                     bool partial,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Sets plan->digest and plan->values_digest of a plan made by pst_split. The
 * first is of the plan's text without file names, the second of its start
 * values (only samples if more than 1 GiB of values are given). Ranks that made
 * equal plans get equal digests. */
enum pst_status pst_plan_digest_made(struct pst_plan *plan,
                                     struct pst_diag *diag) PST_MUST_CHECK;

/* Writes the plan to DIR.tmp-PID, then renames that to dir: an error leaves the
 * old plan as it was. An existing directory without a plan must be empty. Sets
 * weights_size and weights_digest of the stages. */
enum pst_status pst_plan_save(struct pst_plan *plan, const char *dir,
                              struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_plan_load(const char *dir, struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Copies the start value of params[i] (contiguous, meta.dtype) to dst, from the
 * plan's own file or from the model. The first read from a file compares the
 * file's digest, so a rank reads only the files that it needs.
 */
enum pst_status pst_plan_read_param(struct pst_plan *plan, unsigned i,
                                    void *dst,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the entry of params[i] in its weights file after comparing the file's
 * digest. Only for a plan that was loaded. The entry lives until the plan is
 * freed. */
enum pst_status pst_plan_entry(struct pst_plan *plan, unsigned i,
                               const struct pst_safetensors_entry **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if --autocast makes the plan compute in bf16. */
bool pst_plan_casts_bf16(const struct pst_plan *plan);
/* True if the tensor's names are keys of the model's state_dict. */
bool pst_plan_is_state(const struct pst_plan_param *param);
/* Returns the tensor's name in checkpoints: "param.FQN", "buffer.FQN". */
void pst_plan_tensor_name(const struct pst_plan_param *param,
                          struct pst_str *ret);
/* Adds to *ret the tensors whose values in a running job differ from the
 * model's. */
enum pst_status pst_plan_changed(const struct pst_plan *plan,
                                 struct pst_state_names *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the original of a joined or bound plan; of any other, the plan
 * itself. */
const struct pst_plan *pst_plan_root(const struct pst_plan *plan);
/* Returns the model's adapters, which are stored in the original plan. */
const struct pst_adapters *pst_plan_adapters(const struct pst_plan *plan);
/* Divides the inputs of `to` into microbatches like the inputs of the same
 * names in `from`: --chunk of a training also applies to its evaluation. */
void pst_plan_chunk_as(const struct pst_plan *from, struct pst_plan *to);
/* Adds all keys of the model's state_dict to *ret. */
enum pst_status pst_plan_names(const struct pst_plan *plan,
                               struct pst_state_names *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if the value can be a loss, as for PyTorch's backward(): one
 * floating-point number at every batch size. */
bool pst_plan_may_be_loss(const struct pst_value *value);
/* True if a stage or an output of the model reads this model input. */
bool pst_plan_reads_input(const struct pst_plan *plan, unsigned input);
/* Finds the range of valid integers of an input (rows of a table, classes), if
 * the operators that read the input determine it. */
enum pst_status pst_plan_bound(const struct pst_plan *plan, unsigned input,
                               struct pst_data_bound *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the index in plan->params of the tensor with this name; -1: none. */
int pst_plan_find_param(const struct pst_plan *plan, const char *fqn);
struct pst_plugin;
/* True if an operator of the stages comes from the plugin. */
bool pst_plan_has_plugin(const struct pst_plan *plan,
                         const struct pst_plugin *plugin);
/* Returns the number of a stage's contributions to a parameter's gradient. */
unsigned pst_plan_uses(const struct pst_plan_param *param, unsigned stage);
/* Returns the index of the first edge of one output of a stage; *ret_n is the
 * number of its edges, which are adjacent and in the order of consumers. */
size_t pst_plan_edges_of(const struct pst_plan *plan, unsigned stage,
                         unsigned output, size_t *ret_n);

/*
 * The training graph of one stage: a copy of the forward graph with backward
 * nodes. Built when a model is split (last stage first, to fill the edges'
 * grad_parts) and on each rank.
 */
struct pst_joint_seed {
    struct pst_value *seed; /* value of kind SEED */
    /* edge of this gradient; -1: seed of the loss (one element) */
    int edge;
    unsigned part;
};
struct pst_joint_grad {
    struct pst_value *value;
    unsigned edge, part;
};
struct pst_joint {
    struct pst_graph *graph; /* forward and backward; owned */
    struct PST_VEC(struct pst_joint_seed) seeds;
    /* gradients to be sent */
    struct PST_VEC(struct pst_joint_grad) input_grads;
    /* gradients that the stage keeps: these outputs of the graph follow those
     * of the forward, sorted by model input */
    struct PST_VEC(struct pst_input_part) parts;
    /* kind GRAD: one for each parameter that has a gradient */
    struct PST_VEC(struct pst_value *) grads;
};
/* Builds a joint. Its seeds are that of the loss, if this stage computes the
 * loss, and one for each gradient part of every outgoing edge, in the order
 * described at struct pst_edge. The grad_parts of these edges must be known. */
enum pst_status pst_joint_new(const struct pst_plan *plan, unsigned stage,
                              struct pst_joint **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Builds the joint of a variant of the stage's graph with the same inputs and
 * outputs; outputs that are not needed may be NONE. Takes the graph, also on
 * failure. */
enum pst_status pst_joint_of(const struct pst_plan *plan, unsigned stage,
                             struct pst_graph *graph, struct pst_joint **ret,
                             struct pst_diag *diag) PST_MUST_CHECK;
void pst_joint_free(struct pst_joint *joint);
/* Returns the stage's joint, which is built once and cached in the plan. It is
 * borrowed until it is taken or the plan is freed. One thread at a time. */
enum pst_status pst_joint_find(const struct pst_plan *plan, unsigned stage,
                               const struct pst_joint **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Takes the cached joint out of the plan, or builds one. Returns owned. Any
 * thread. */
enum pst_status pst_joint_take(const struct pst_plan *plan, unsigned stage,
                               struct pst_joint **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Frees the cached joints. Any thread. */
void pst_joint_free_cached(const struct pst_plan *plan);

/*
 * Chooses the model inputs whose gradients training steps keep: sets wants and
 * parts, and drops the cached joints. names: names of inputs, or globs that
 * match floating-point inputs; empty: no gradient is kept. For a plan with a
 * loss, before an engine uses it. After an error no gradient is kept.
 * PST_ERR_NOT_FOUND: no such input; PST_ERR_UNSUPPORTED: its dtype has no
 * gradient.
 */
enum pst_status pst_plan_keep_gradients(struct pst_plan *plan,
                                        const char *const *names, size_t n,
                                        struct pst_diag *diag) PST_MUST_CHECK;

/* Print the table of stages, as text and as JSON. */
void pst_plan_print(const struct pst_plan *plan, struct pst_str *out);
void pst_plan_print_json(const struct pst_plan *plan, struct pst_str *out);
/* Prints one stage: inputs with their sources, state, operators, outputs with
 * their consumers. */
void pst_plan_describe_stage(const struct pst_plan *plan, unsigned stage,
                             struct pst_str *out);
/* Draw the stages, edges with their bytes, and shared parameters. */
void pst_plan_draw_dot(const struct pst_plan *plan, struct pst_str *out);
void pst_plan_draw_svg(const struct pst_plan *plan, struct pst_str *out);
void pst_plan_print_stage(const struct pst_plan *plan, unsigned stage,
                          struct pst_str *out);

#endif
