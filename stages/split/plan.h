// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_SPLIT_PLAN_H
#define PENSTOCK_STAGES_SPLIT_PLAN_H
/*
 * A plan: a model cut into stages. In memory after pst_split or pst_plan_load;
 * on disk a directory with plan.pb and stage-NNN.safetensors.
 * Read-only once made. Owned by its arena; graphs are owned by the plan.
 */
#include "stages/files/data.h"
#include "stages/files/state_names.h"
#include "stages/frontend/model.h"
#include "stages/graph/graph.h"

#define PST_PLAN_VERSION    9
#define PST_PLAN_MAX_STAGES 4096

struct pst_plan_file;
struct pst_plan_given;
struct pst_rates;

enum pst_source_kind { PST_SOURCE_MODEL_INPUT, PST_SOURCE_EDGE };

/* Where stage->graph->inputs[i] comes from. */
struct pst_stage_input {
    enum pst_source_kind kind;
    unsigned index; /* into plan->inputs or plan->edges */
};

/*
 * A value made in one stage and used in a later one: sent once from producer
 * to consumer for every microbatch, and its gradient the other way.
 *
 * Gradient parts keep sums in the order of the uncut graph (autodiff.h): the
 * last consumer stage (highest index) that has a gradient adds up its own
 * contributions and sends one part; every other consumer stage sends each
 * contribution as a part of its own, and the producer adds all parts: highest
 * stage first, within a stage in the order part 0, 1, ...
 */
struct pst_edge {
    unsigned id;
    unsigned from_stage, from_output; /* index in from's graph->outputs */
    unsigned to_stage, to_input;      /* index in to's graph->inputs */
    const char *value;                /* its name in the uncut graph */
    struct pst_meta meta; /* as sent and received; dense strides are kept */
    unsigned grad_parts;  /* messages of the backward direction; 0: none */
    /* FQN of the buffer whose new value it is, for the next microbatch of a
     * lower stage; NULL: a value like others. */
    const char *carries;
};

struct pst_stage {
    unsigned index;
    struct pst_graph *graph; /* forward only; outputs: edges' values first used
                                order, then buffer updates */
    struct pst_stage_input *inputs; /* graph->inputs.n of them */
    double flops;                   /* of one forward */
    size_t param_bytes, out_bytes;
    const char *weights; /* file in the plan's folder */
    uint64_t weights_size;
    char weights_digest[33]; /* of the file; "": never saved */
};

struct pst_plan_input {
    const char *name;        /* the model's own argument name */
    struct pst_meta meta;    /* of one microbatch */
    const char *const *dims; /* free sizes, as in struct pst_value */
    int chunk; /* dimension that is divided into microbatches, -1: none */
};

/* One leaf of the model's flattened outputs. */
struct pst_plan_output {
    const char *path;
    bool is_tensor;
    struct pst_arg literal; /* if not a tensor */
    int stage;              /* where it is made; -1: a model input */
    unsigned output;        /* index in that stage's graph->outputs, or input */
    struct pst_meta meta;
};

/* The stage whose rank has the output: a model input counts as stage 0's. */
static inline unsigned pst_plan_output_stage(const struct pst_plan_output *o)
{
    return o->stage < 0 ? 0 : (unsigned)o->stage;
}

/* One tensor of the model's state, whatever its names. */
struct pst_plan_param {
    const char *fqn;
    const char **aliases;
    unsigned n_aliases;
    /* Further names, of parts of it. nameless: fqn is none of the model's
     * names, only these are. */
    struct pst_named_window *windows;
    unsigned n_windows;
    bool nameless;
    enum pst_value_kind kind; /* PARAM, BUFFER, CONST */
    bool is_complex; /* its last dimension has the two parts of a number */
    struct pst_meta meta;
    /* The model has it narrower than it is kept, because it is trained: all
     * that read it convert it to this dtype first. */
    bool rounded;
    enum pst_dtype rounds;
    bool requires_grad, persistent;
    /* Steps when its optimizer's states began, in the plans that older programs
     * wrote into checkpoints; newer ones have it in the manifest. */
    uint64_t since;
    /* A running job has other values of it than the model had: it was set or
     * cast, came with another module, or was trained before it was frozen. */
    bool changed;
    unsigned *stages; /* that read it, ascending; none: unused */
    unsigned *uses;   /* contributions to its gradient in each of them */
    unsigned n_stages;
    unsigned home; /* stage whose file holds it */
    /* A buffer that several stages write: each microbatch begins with what the
     * one before has left in stage `writer`, the last that writes or reads it.
     * Edges take it to those that begin with it; before the first microbatch of
     * a step all of them have it. */
    bool carried;
    unsigned writer;
    /* Of a parameter that several stages read. False: each of them has a copy,
     * gradients are summed by a reduction, optimizers make the same step. True:
     * home alone owns it, sends its value and receives the gradients. */
    bool transmit;
};

struct pst_plan {
    struct pst_arena arena;
    const char *name;
    char model_digest[33]; /* of the .pt2 */
    char digest[33];       /* of plan.pb's content: equal on all ranks */
    /* Of what the model computes (frontend/identity.h); "": not known. */
    char identity[33];
    /* Of a plan in which a running job has replaced modules, which is in no
     * folder: the model_digest of the one that it began with; else "". */
    char base_digest[33];
    char base_identity[33]; /* that plan's */
    struct PST_VEC(struct pst_stage) stages;
    struct PST_VEC(struct pst_edge) edges; /* by id */
    struct PST_VEC(struct pst_plan_input) inputs;
    struct PST_VEC(struct pst_plan_output) outputs;
    struct PST_VEC(struct pst_plan_param) params; /* model order */
    struct pst_adapters adapters;                 /* on weights among params */
    struct pst_map names;      /* of params: every name -> index + 1 */
    struct pst_joint **joints; /* by stage, NULL: none waits; private */
    bool counted; /* grad_parts and uses are known: joints are held to them */
    int loss;     /* index in outputs of what is trained on, -1: none */
    const char *loss_fn; /* that added it; NULL: it is the model's, or of a plan
                            that another one was made of (pst_plan_root) */
    struct pst_symbols symbols; /* free sizes, as they are in this plan */
    const char *fixed; /* why other sizes cannot be had all the same, or NULL */
    bool evaluates;    /* exported in eval mode: struct pst_model */
    const char *lost;  /* backwards that the file has not: struct pst_model */
    bool writes;       /* it writes values in place: struct pst_model */
    struct PST_VEC(const char *) notes;
    const char *cut_by; /* times that chose the cut, just now; or NULL */
    const char *dir;    /* where it was loaded from, or NULL */
    /* Gives start values of params[i], contiguous, to a plan that has neither
     * folder nor model; or NULL. */
    enum pst_status (*read)(void *ctx, unsigned i, void *dst,
                            struct pst_diag *diag);
    void *read_ctx;
    struct pst_model *model; /* source of the data if not loaded; or NULL */
    struct pst_plan
        *parent; /* joined and bound plans: of the same params, has the data */
    struct pst_plan_file *files;  /* open weight files, by stage; private */
    struct pst_plan_given *given; /* values instead of the model's; private */
};

/* Measured: seconds of one microbatch, forward and backward. */
struct pst_split_cost {
    const char *name; /* of all nodes with this module path, of one call of it
                         ("n@1"), or of one node */
    double seconds;
};

struct pst_split_options {
    /* "markers", "layers", "flops", "memory"; NULL: markers if there are any,
     * else flops */
    const char *policy;
    unsigned stages;       /* 0: as the markers, names or layers say, or 1 */
    const char *const *at; /* "NAME", "NAME:begin", "NAME:end": of modules, at
                              every call or at one ("n@1"), or of nodes */
    size_t n_at;
    const struct pst_rates *rates; /* by which costs are estimated; NULL:
                                      pst_rates_reference */
    double bandwidth; /* bytes in a second from stage to stage; 0: as rates */
    const struct pst_split_cost *costs; /* instead of estimates, if stages are
                                           chosen by time */
    size_t n_costs;
    const char *const *transmit; /* parameters that their home sends, by any of
                                    their names; all others are replicated */
    size_t n_transmit;
    const char *const *replicate; /* what must not be among those */
    size_t n_replicate;
    const char *const *owner; /* "FQN=STAGE": of a buffer that several stages
                                 write, which of them has it */
    size_t n_owner;
    const char *loss; /* "0", "logits.loss", "none"; NULL: the default rule */
    const char *loss_fn; /* "mse", "nll:output=PATH": a loss to add; or NULL */
};

/* Takes no ownership of model, but the plan borrows it until freed. */
enum pst_status pst_split(struct pst_model *model,
                          const struct pst_split_options *options,
                          struct pst_plan **ret,
                          struct pst_diag *diag) PST_MUST_CHECK;
void pst_plan_free(struct pst_plan *plan);

/*
 * Start values from a file or folder of safetensors (files/given.h) instead of
 * the model's, by any of a tensor's names; only headers are read here. For a
 * plan that pst_split has made. A missing or unknown name is PST_ERR_INPUT
 * unless partial: then the model's values stay, and a note names it. A narrower
 * floating dtype is widened, another dtype or shape is PST_ERR_SHAPE.
 */
enum pst_status pst_plan_give(struct pst_plan *plan, const char *path,
                              bool partial,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* Written beside dir (DIR.tmp-PID), then put in its place: after an error what
 * was there is there still. An existing directory that holds something else
 * than a plan is refused. Fills the stages' weights_size and weights_digest. */
enum pst_status pst_plan_save(struct pst_plan *plan, const char *dir,
                              struct pst_diag *diag) PST_MUST_CHECK;
enum pst_status pst_plan_load(const char *dir, struct pst_plan **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/*
 * Copies the start value of params[i] (contiguous, meta.dtype) to dst, from
 * the plan's own file or from the model. The first read of a file compares its
 * digest: a rank pays for the files that it needs.
 */
enum pst_status pst_plan_read_param(struct pst_plan *plan, unsigned i,
                                    void *dst,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* The entry of params[i] in its file, whose digest is compared; of a plan that
 * was loaded. Lives until the plan is freed. */
enum pst_status pst_plan_entry(struct pst_plan *plan, unsigned i,
                               const struct pst_safetensors_entry **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Whether its names are keys of the model's state_dict. */
bool pst_plan_is_state(const struct pst_plan_param *param);
/* "param.FQN", "buffer.FQN": its name in checkpoints. */
void pst_plan_tensor_name(const struct pst_plan_param *param,
                          struct pst_str *ret);
/* The tensors that training has other values of than the model had. */
enum pst_status pst_plan_changed(const struct pst_plan *plan,
                                 struct pst_state_names *ret,
                                 struct pst_diag *diag) PST_MUST_CHECK;
/* The plan that joined and bound ones were made of in the end. */
const struct pst_plan *pst_plan_root(const struct pst_plan *plan);
/* Of the model: plans that are made of another one have that one's. */
const struct pst_adapters *pst_plan_adapters(const struct pst_plan *plan);
/* Inputs of `to` are divided into microbatches as those of the same names are
 * in `from`: an evaluation is given its data under the --chunk of the training.
 */
void pst_plan_chunk_as(const struct pst_plan *from, struct pst_plan *to);
/* Adds all keys of the model's state_dict. */
enum pst_status pst_plan_names(const struct pst_plan *plan,
                               struct pst_state_names *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Whether it can be trained on, as PyTorch's backward() would: one floating
 * number at every size of the batch. */
bool pst_plan_may_be_loss(const struct pst_value *value);
/* Does a stage, or an output of the model, read that model input? */
bool pst_plan_reads_input(const struct pst_plan *plan, unsigned input);
/* The integers of an input that the model has rows or classes for, as far as it
 * is plain from its operators. */
enum pst_status pst_plan_bound(const struct pst_plan *plan, unsigned input,
                               struct pst_data_bound *ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Index in plan->params by any of its names, -1 if unknown. */
int pst_plan_find_param(const struct pst_plan *plan, const char *fqn);
/* Contributions that a stage makes to the gradient of a parameter. */
unsigned pst_plan_uses(const struct pst_plan_param *param, unsigned stage);
/* Edges from one output of a stage: *ret_n of them, by consumer, from the index
 * that is returned. */
size_t pst_plan_edges_of(const struct pst_plan *plan, unsigned stage,
                         unsigned output, size_t *ret_n);

/*
 * The training graph of one stage: a copy of the forward graph with backward
 * nodes. Called at split (to fill edges' grad_parts, last stage first) and on
 * each rank.
 */
struct pst_joint_seed {
    struct pst_value *seed; /* kind SEED */
    int edge;               /* -1: the seed of the loss (one element) */
    unsigned part;
};
struct pst_joint_grad {
    struct pst_value *value;
    unsigned edge, part;
};
struct pst_joint {
    struct pst_graph *graph; /* owned */
    struct PST_VEC(struct pst_joint_seed) seeds;
    struct PST_VEC(struct pst_joint_grad) input_grads; /* to be sent */
    struct PST_VEC(struct pst_value *) grads; /* kind GRAD, one per parameter
                                                 that something reaches */
};
/* Seeds: the loss if it is made here, and the parts of every outgoing edge
 * (grad_parts must be known for them), in the order of the contract above. */
enum pst_status pst_joint_new(const struct pst_plan *plan, unsigned stage,
                              struct pst_joint **ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
void pst_joint_free(struct pst_joint *joint);
/* The joint of a stage, made once and kept in the plan: borrowed until it is
 * taken or the plan freed. One thread at a time. */
enum pst_status pst_joint_look(const struct pst_plan *plan, unsigned stage,
                               const struct pst_joint **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* The kept one, or a new one if there is none. Returns owned. Any thread. */
enum pst_status pst_joint_take(const struct pst_plan *plan, unsigned stage,
                               struct pst_joint **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Frees those that nobody has taken. Any thread. */
void pst_joint_drop(const struct pst_plan *plan);

/* The table of stages for people; the graph of a stage as text. */
void pst_plan_print(const struct pst_plan *plan, struct pst_str *out);
void pst_plan_print_json(const struct pst_plan *plan, struct pst_str *out);
/* One stage: inputs with their sources, state, operators, outputs with their
 * consumers. */
void pst_plan_describe_stage(const struct pst_plan *plan, unsigned stage,
                             struct pst_str *out);
/* Pictures of stages, edges with bytes, shared parameters. */
void pst_plan_draw_dot(const struct pst_plan *plan, struct pst_str *out);
void pst_plan_draw_svg(const struct pst_plan *plan, struct pst_str *out);
void pst_plan_print_stage(const struct pst_plan *plan, unsigned stage,
                          struct pst_str *out);

#endif
