// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPTIM_OPTIM_H
#define PENSTOCK_STAGES_OPTIM_OPTIM_H
/*
 * Optimizers as rows of a table; learning rates; clipping. Formulas are those
 * of torch.optim (single tensor), or of the papers for lion and lamb, in f32;
 * devices implement the kernels. The caller allocates the states, zero-filled
 * before the first step. Pure functions.
 */
#include "stages/device/device.h"
#include "stages/optim/rate.h"

#define PST_OPTIM_MAX_STATES  4
#define PST_OPTIM_MAX_OPTIONS 6
/* The averaged parameter (--ema) counts as one more state, and so do the scales
 * of each 8-bit state: those of state k are state PST_OPTIM_SCALES + k. */
#define PST_OPTIM_EMA        PST_OPTIM_MAX_STATES
#define PST_OPTIM_SCALES     (PST_OPTIM_EMA + 1)
#define PST_OPTIM_ALL_STATES (PST_OPTIM_SCALES + PST_OPTIM_MAX_STATES)
#define PST_OPTIM_MAX_ROWS   16
/* Number of consecutive elements of an 8-bit state with a common scale; blocks
 * begin at the parameter's first element. */
#define PST_OPTIM_BLOCK 256
/* Elements that an update converts at a time if its states are not f32. */
#define PST_OPTIM_PIECE 65536
/* Bytes at the beginning of the scratch, for a struct pst_states_draw. */
#define PST_OPTIM_DRAW 64

/* How the states of an optimizer are kept between updates. */
enum pst_optim_store {
    PST_STORE_F32,
    PST_STORE_BF16, /* rounded stochastically */
    PST_STORE_INT8, /* codes of a dynamic map, with a scale per block */
    PST_N_STORES
};

struct pst_optim;

struct pst_optim_options {
    const struct pst_optim *row; /* NULL: parameters are not updated */
    double lr, weight_decay;
    double momentum, dampening;
    bool nesterov;
    double beta1, beta2, eps;
    double alpha, rho, lr_decay;
    bool centered;
    double ns_steps; /* iterations of muon; a whole number */
    bool match_rms_adamw;
    double beta2_decay, eps2, clip_threshold; /* adafactor */
    /* how states are stored that have 's' or 'u' in row->signs */
    enum pst_optim_store store;
    double ema;       /* decay of the averaged parameters; 0: there are none */
    double clip_norm; /* largest norm of the gradients; 0: no clipping */
    /* Number, from 1 on, of the --group rule that set clip_norm, which then
     * limits the norm of that rule's parameters. 0: clip_norm limits the norm
     * of all parameters without such a rule. */
    unsigned clip_rule;
    double clip_value; /* largest element of a gradient; 0: no limit */
    enum pst_lr_schedule lr_schedule;
    uint64_t warmup_steps; /* updates over which the rate rises from 0 to lr */
    uint64_t total_steps;  /* update at which the fall of the rate ends */
    double min_lr_ratio;   /* last rate / lr */
    uint64_t lr_cycles;    /* cosine-restarts: number of cycles */
    double lr_power;       /* polynomial: exponent */
    uint64_t lr_decay_steps; /* wsd: updates in which the rate falls */
    enum pst_lr_shape lr_shape;
    unsigned n_lr_points; /* number of lr_points, whose updates ascend */
    struct pst_lr_point lr_points[PST_LR_MAX_POINTS];
};

struct pst_optim {
    const char *name, *summary;
    unsigned n_states; /* state tensors */
    /* Prefixes of the states' names in checkpoints: "adamw.m". */
    const char *states[PST_OPTIM_MAX_STATES];
    /* defaults of PyTorch or, if it lacks the optimizer, of the authors */
    struct pst_optim_options defaults;
    /* 1 + index of a state that is an average of the parameter: outside of
     * training it is used in place of the parameter. It has no content before
     * the first update. 0: there is none. */
    unsigned average;
    /* Per state: 's' if it can be kept in fewer bits, 'u' if it also is never
     * negative, 'p' if it holds a value of the parameter: it stays f32, begins
     * as the parameter in its first update, and is set when the parameter is
     * set. NULL: all stay f32. */
    const char *signs;
    /* Options besides lr, weight-decay and clip-norm, such as "beta1";
     * NULL-terminated. Any other option is refused. */
    const char *options[PST_OPTIM_MAX_OPTIONS + 1];
    /* Number of states in use, the first ones; NULL: always all. */
    unsigned (*count_states)(const struct pst_optim_options *options);
    /* An update needs all elements of the parameter at once: replicas do not
     * divide it, and the task gets its meta and scratch (device.h). */
    bool whole;
    bool real_only;     /* it has no update for complex parameters */
    bool matrices_only; /* it has an update for two dimensions only */
    /* Name of the default optimizer of the parameters that this one is not
     * meant for (groups.h); NULL: it is meant for all. */
    const char *others;
    /* Only if whole. Sets ret to the meta of state k of a parameter that has
     * elements; false: the parameter has no such state. NULL: all are like the
     * parameter. */
    bool (*state)(unsigned k, const struct pst_meta *param,
                  struct pst_meta *ret);
    /* Returns the bytes of scratch of an update; NULL: none. */
    size_t (*work)(const struct pst_meta *param);
    /* Name of the device's task that updates elements (stages/device/device.h);
     * NULL: none. */
    const char *task;
    /* Sets the arguments of an update except lr and grad_scale; updates of the
     * parameter count from 0. */
    void (*numbers)(const struct pst_optim_options *options, uint64_t update,
                    struct pst_update *ret);
};

/* Sets *ret to the defaults of an optimizer; for "none", ret->row is NULL.
 * PST_ERR_USAGE for an unknown name; the error lists the names. */
enum pst_status pst_optim_defaults(const char *name,
                                   struct pst_optim_options *ret,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Sets an option of an update by its name: "lr", "beta1" ..., or "optimizer",
 * which also sets the other options to that optimizer's defaults, except for
 * clipping, `ema` and the learning rate schedule. PST_ERR_USAGE for an unknown
 * name, one that the optimizer does not have, and a value that cannot be read;
 * check ranges with pst_optim_check. */
enum pst_status pst_optim_set(struct pst_optim_options *options,
                              const char *name, const char *value,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Returns all rows, "none" first. */
const struct pst_optim *const *pst_optim_rows(size_t *ret_n);
/* Returns the row's index in pst_optim_rows(). */
unsigned pst_optim_index(const struct pst_optim *optim);
/* Returns the FQN in the name of a state, such as "h.0.weight" in
 * "adamw.m.h.0.weight" and "ema.h.0.weight"; NULL if the name begins with no
 * state of any row. */
const char *pst_optim_state_of(const char *name);
/* True for the name of an averaged parameter: "ema.h.0.weight". */
bool pst_optim_is_average(const char *name);
/* Returns the FQN in the name of a state that is an optimizer's own average of
 * a parameter, such as "h.0.weight" in "schedulefree.x.h.0.weight"; NULL for
 * other names. */
const char *pst_optim_own_average_of(const char *name);
bool pst_optim_has(const struct pst_optim *optim, const char *option);
/* Returns the number of states that the options need: SGD has one only with
 * momentum. */
unsigned pst_optim_n_states(const struct pst_optim *optim,
                            const struct pst_optim_options *options);
#define PST_OPTIM_NAME 48
/* Returns the prefix of a state's name in checkpoints: "adamw.m", "ema",
 * "adamw.m-scale". The result may point to the buffer. */
const char *pst_optim_state_name(const struct pst_optim_options *options,
                                 unsigned k, char buffer[PST_OPTIM_NAME]);
/* Sets ret to the contiguous meta of state k of a parameter, k <
 * PST_OPTIM_ALL_STATES; false: it has no such state. If the optimizer is not
 * `whole`, states other than scales have the parameter's shape. A state has no
 * elements if the parameter has none: no update reads it, and adafactor's
 * column means of (0, 12) would be means of no rows. */
bool pst_optim_state(const struct pst_optim_options *options, unsigned k,
                     const struct pst_meta *param, struct pst_meta *ret);
/* True if state k is kept in fewer bits than f32. */
bool pst_optim_is_packed(const struct pst_optim_options *options, unsigned k);
/* Returns the bytes of state k of the first n elements of a parameter. n of an
 * 8-bit state's scales is a multiple of PST_OPTIM_BLOCK or the parameter's end.
 * Not for optimizers that are whole. */
size_t pst_optim_bytes(const struct pst_optim_options *options, unsigned k,
                       int64_t n);
/* Returns "f32", "bf16" or "int8". */
const char *pst_optim_store_name(enum pst_optim_store store);
/* Finds the store by this name; false: there is none. */
bool pst_optim_store_find(const char *name, enum pst_optim_store *ret);
/* Returns the bytes of all states of a parameter. */
size_t pst_optim_state_bytes(const struct pst_optim_options *options,
                             const struct pst_meta *param);
/* Returns the bytes of scratch of the parameter's update: those of the row, or,
 * if states are packed or the parameter is bf16, PST_OPTIM_DRAW and a piece in
 * f32 of each of these tensors. */
size_t pst_optim_work(const struct pst_optim_options *options,
                      const struct pst_meta *param);
/* Returns the optimizer's name, "none" without a row. */
const char *pst_optim_name(const struct pst_optim_options *options);
/* Refuses a parameter that the optimizer has no update for, by its name. The
 * rank of a complex one counts the dimension of its two parts. */
enum pst_status pst_optim_fits(const struct pst_optim_options *options,
                               const char *fqn, const struct pst_meta *meta,
                               bool is_complex,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* Checks ranges; the error names the option. */
enum pst_status pst_optim_check(const struct pst_optim_options *options,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Refuses what updates on that device (struct pst_device.name) cannot do. */
enum pst_status pst_optim_check_device(const struct pst_optim_options *options,
                                       const char *device,
                                       struct pst_diag *diag) PST_MUST_CHECK;

/* Returns all arguments of an update after `updates` updates of the run, for
 * parameters whose states were initialized after `since` of these; the gradient
 * is multiplied by grad_scale first. Skipped steps are not counted as updates.
 */
struct pst_update pst_optim_update(const struct pst_optim *optim,
                                   const struct pst_optim_options *options,
                                   uint64_t updates, uint64_t since,
                                   double grad_scale);
/* Like torch.nn.utils.clip_grad_norm_: min(1, max_norm / (norm + 1e-6)). */
double pst_clip_scale(double norm, double max_norm);

#endif
