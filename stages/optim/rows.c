// SPDX-License-Identifier: Apache-2.0
#include "stages/optim/rows.h"

#include "stages/graph/low.h"

#include "stages/base/plural.h"
#include "stages/base/str.h"

#include "stages/ops/cpu/states.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static const struct pst_optim *const rows[] = {
#define PST_OPTIM(id) &pst_optim_##id,
#include "stages/optim/optims.def"
#undef PST_OPTIM
};

static const char *const names[] = {
#define PST_OPTIM(id) #id,
#include "stages/optim/optims.def"
#undef PST_OPTIM
};

static const char average[] = "ema";
/* Suffix of the name of an 8-bit state in the name of its scales. */
static const char scale[] = "-scale";
static const char *const stores[] = {"f32", "bf16", "int8"};

_Static_assert(PST_COUNT(stores) == PST_N_STORES, "each store has a name");
_Static_assert(PST_OPTIM_BLOCK == PST_STATES_BLOCK &&
                   PST_OPTIM_PIECE % PST_OPTIM_BLOCK == 0,
               "pieces of an update consist of blocks");

bool pst_optim_is_average(const char *name)
{
    return strncmp(name, "ema.", sizeof(average)) == 0;
}

static const struct pst_optim *find_optim(const char *name,
                                          struct pst_diag *diag)
{
    struct pst_str list = {0};
    int near;

    for (size_t i = 0; i < PST_COUNT(rows); i++)
        if (strcmp(rows[i]->name, name) == 0)
            return rows[i];
    for (size_t i = 0; i < PST_COUNT(names); i++)
        pst_str_addf(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    near = pst_nearest(name, names, PST_COUNT(names));
    pst_diag_set(diag, PST_E_OPTIMIZER_UNKNOWN,
                 "no optimizer \"%.40s\"%s%s%s; there are %s", name,
                 near >= 0 ? ", did you mean \"" : "",
                 near >= 0 ? names[near] : "", near >= 0 ? "\"?" : "",
                 pst_str_text(&list));
    pst_str_fini(&list);
    return NULL;
}

enum pst_status pst_optim_defaults(const char *name,
                                   struct pst_optim_options *ret,
                                   struct pst_diag *diag)
{
    const struct pst_optim *optim = find_optim(name, diag);

    if (optim == NULL)
        return PST_ERR_USAGE;
    *ret = optim->defaults;
    ret->row = optim->task != NULL ? optim : NULL;
    return PST_OK;
}

const struct pst_optim *const *pst_optim_rows(size_t *ret_n)
{
    *ret_n = PST_COUNT(rows);
    return rows;
}

_Static_assert(PST_COUNT(rows) <= PST_OPTIM_MAX_ROWS, "too many rows");

unsigned pst_optim_index(const struct pst_optim *optim)
{
    unsigned i = 0;

    while (i + 1 < PST_COUNT(rows) && rows[i] != optim)
        i++;
    return i;
}

const char *pst_optim_state_of(const char *name)
{
    if (pst_optim_is_average(name))
        return name + sizeof(average);
    for (size_t i = 0; i < PST_COUNT(rows); i++)
        for (unsigned k = 0; k < rows[i]->n_states; k++) {
            const size_t n = strlen(rows[i]->states[k]);

            if (strncmp(name, rows[i]->states[k], n) != 0)
                continue;
            if (name[n] == '.')
                return name + n + 1;
            if (pst_has_prefix(name + n, scale) &&
                name[n + strlen(scale)] == '.')
                return name + n + strlen(scale) + 1;
        }
    return NULL;
}

const char *pst_optim_own_average_of(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(rows); i++) {
        const unsigned k = rows[i]->average;
        const size_t n = k > 0 ? strlen(rows[i]->states[k - 1]) : 0;

        if (k > 0 && strncmp(name, rows[i]->states[k - 1], n) == 0 &&
            name[n] == '.')
            return name + n + 1;
    }
    return NULL;
}

bool pst_optim_has(const struct pst_optim *optim, const char *option)
{
    for (size_t i = 0; optim->options[i] != NULL; i++)
        if (strcmp(optim->options[i], option) == 0)
            return true;
    return false;
}

const char *pst_optim_name(const struct pst_optim_options *options)
{
    return options->row != NULL ? options->row->name : pst_optim_none.name;
}

unsigned pst_optim_n_states(const struct pst_optim *optim,
                            const struct pst_optim_options *options)
{
    return optim->count_states != NULL ? optim->count_states(options)
                                       : optim->n_states;
}

const char *pst_optim_state_name(const struct pst_optim_options *options,
                                 unsigned k, char buffer[PST_OPTIM_NAME])
{
    if (k == PST_OPTIM_EMA)
        return average;
    if (k < PST_OPTIM_SCALES)
        return options->row->states[k];
    (void)snprintf(buffer, PST_OPTIM_NAME, "%s%s",
                   options->row->states[k - PST_OPTIM_SCALES], scale);
    return buffer;
}

const char *pst_optim_store_name(enum pst_optim_store store)
{
    return stores[store];
}

bool pst_optim_store_find(const char *name, enum pst_optim_store *ret)
{
    for (int i = 0; i < PST_N_STORES; i++)
        if (strcmp(name, stores[i]) == 0) {
            *ret = (enum pst_optim_store)i;
            return true;
        }
    return false;
}

bool pst_optim_is_packed(const struct pst_optim_options *options, unsigned k)
{
    const struct pst_optim *row = options->row;

    return row != NULL && row->signs != NULL &&
           options->store != PST_STORE_F32 &&
           k < pst_optim_n_states(row, options) && row->signs[k] != 'p';
}

static int64_t count_blocks(int64_t n)
{
    return n / PST_OPTIM_BLOCK + (n % PST_OPTIM_BLOCK > 0);
}

/* Sets *ret to the dtype and shape of the scales of state k, one f32 per block.
 * Returns false if the state has no scales. */
static bool describe_scales(const struct pst_optim_options *options, unsigned k,
                            const struct pst_meta *param, struct pst_meta *ret)
{
    const int64_t n = count_blocks(pst_meta_numel(param));

    if (options->store != PST_STORE_INT8 || !pst_optim_is_packed(options, k))
        return false;
    *ret = pst_meta_make(PST_F32, 1, &n);
    return true;
}

bool pst_optim_state(const struct pst_optim_options *options, unsigned k,
                     const struct pst_meta *param, struct pst_meta *ret)
{
    const struct pst_optim *row = options->row;
    const bool is_average = k == PST_OPTIM_EMA;

    if (k >= PST_OPTIM_SCALES)
        return describe_scales(options, k - PST_OPTIM_SCALES, param, ret);
    if (row == NULL || (is_average ? options->ema == 0
                                   : k >= pst_optim_n_states(row, options)))
        return false;
    if (row->state != NULL && !is_average)
        return pst_meta_numel(param) > 0 && row->state(k, param, ret);
    *ret = *param;
    ret->dtype = pst_dtype_of_grad(param->dtype);
    if (pst_optim_is_packed(options, k))
        ret->dtype = options->store == PST_STORE_BF16 ? PST_BF16 : PST_U8;
    pst_meta_set_contiguous(ret);
    return true;
}

size_t pst_optim_bytes(const struct pst_optim_options *options, unsigned k,
                       int64_t n)
{
    if (k >= PST_OPTIM_SCALES)
        return (size_t)count_blocks(n) * sizeof(float);
    if (!pst_optim_is_packed(options, k))
        return (size_t)n * sizeof(float);
    return (size_t)n * (options->store == PST_STORE_BF16 ? 2 : 1);
}

size_t pst_optim_state_bytes(const struct pst_optim_options *options,
                             const struct pst_meta *param)
{
    struct pst_meta meta;
    size_t bytes = 0;

    for (unsigned k = 0; k < PST_OPTIM_ALL_STATES; k++)
        if (pst_optim_state(options, k, param, &meta))
            bytes += pst_meta_bytes(&meta);
    return bytes;
}

size_t pst_optim_work(const struct pst_optim_options *options,
                      const struct pst_meta *param)
{
    const int64_t n = PST_MIN(pst_meta_numel(param), (int64_t)PST_OPTIM_PIECE);
    size_t packed = 0;

    if (options->row != NULL && options->row->work != NULL)
        return options->row->work(param);
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
        packed += pst_optim_is_packed(options, k);
    packed += options->row != NULL && param->dtype == PST_BF16;
    return packed > 0 ? PST_OPTIM_DRAW + packed * (size_t)n * sizeof(float) : 0;
}

enum pst_status pst_optim_fits(const struct pst_optim_options *options,
                               const char *fqn, const struct pst_meta *meta,
                               bool is_complex, struct pst_diag *diag)
{
    const struct pst_optim *row = options->row;

    if (row == NULL)
        return PST_OK;
    if (row->real_only && is_complex)
        return pst_diag_set(diag, PST_E_OPTIMIZER_GROUP,
                            "parameter '%.200s' is complex: optimizer %s has "
                            "no update for it, give it another one, such as "
                            "--group '%.200s:optimizer=adamw'",
                            fqn, row->name, fqn);
    if (row->matrices_only && meta->rank != 2)
        return pst_diag_set(diag, PST_E_OPTIMIZER_GROUP,
                            "parameter '%.200s' has %u dimension%s: optimizer "
                            "%s updates matrices only, give it another one, "
                            "such as --group '%.200s:optimizer=adamw'",
                            fqn, meta->rank, pst_plural(meta->rank), row->name,
                            fqn);
    return PST_OK;
}

/* An option's value and its valid range. */
struct range {
    const char *option;
    double value, min, max;
    bool below; /* the value must be less than max, else max is valid too */
};

static enum pst_status check_ranges(const struct pst_optim_options *options,
                                    struct pst_diag *diag)
{
    const struct range ranges[] = {
        {"lr", options->lr, 0, INFINITY, true},
        {"weight-decay", options->weight_decay, 0, INFINITY, true},
        {"momentum", options->momentum, 0, INFINITY, true},
        {"dampening", options->dampening, 0, 1, false},
        {"beta1", options->beta1, 0, 1, true},
        {"beta2", options->beta2, 0, 1, true},
        {"eps", options->eps, 0, INFINITY, true},
        {"alpha", options->alpha, 0, 1, true},
        {"rho", options->rho, 0, 1, false},
        {"lr-decay", options->lr_decay, 0, INFINITY, true},
        {"clip-norm", options->clip_norm, 0, INFINITY, true},
        {"clip-value", options->clip_value, 0, INFINITY, true},
        {"ns-steps", options->ns_steps, 0, 100, true},
        {"beta2-decay", options->beta2_decay, -INFINITY, 0, false},
        {"eps2", options->eps2, 0, INFINITY, true},
        {"clip-threshold", options->clip_threshold, 0, INFINITY, true},
        {"ema", options->ema, 0, 1, true},
        {"min-lr-ratio", options->min_lr_ratio, 0, 1, false},
    };

    for (size_t i = 0; i < PST_COUNT(ranges); i++) {
        const struct range *r = &ranges[i];
        char value[32], max[32];

        /* NaN is in no range. */
        if (r->value >= r->min &&
            (r->below ? r->value < r->max : r->value <= r->max))
            continue;
        pst_format_f64(r->value, value);
        pst_format_f64(r->max, max);
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "%s is %s, but must be %g or more and %s%s",
                            r->option, value, r->min,
                            r->below ? "less than " : "at most ",
                            isinf(r->max) ? "infinite" : max);
    }
    return PST_OK;
}

enum pst_status pst_optim_check(const struct pst_optim_options *options,
                                struct pst_diag *diag)
{
    enum pst_status status = check_ranges(options, diag);

    if (status != PST_OK)
        return status;
    if (options->row != NULL && pst_optim_has(options->row, "clip-threshold") &&
        options->clip_threshold < 1)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "clip-threshold is %g, but must be 1 or more",
                            options->clip_threshold);
    if (options->ns_steps != floor(options->ns_steps))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "ns-steps is %g, but must be a whole number",
                            options->ns_steps);
    if (options->nesterov && options->row != NULL &&
        pst_optim_has(options->row, "dampening") &&
        (options->momentum == 0 || options->dampening > 0))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "nesterov needs a momentum and no dampening");
    return pst_lr_check(options, diag);
}

enum pst_status pst_optim_check_device(const struct pst_optim_options *options,
                                       const char *device,
                                       struct pst_diag *diag)
{
    if (options->clip_value > 0 && strcmp(device, "cuda") == 0)
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "the device cuda does not limit the elements of "
                            "gradients: leave out --clip-value, or use "
                            "--clip-norm or --device cpu");
    return PST_OK;
}

struct pst_update pst_optim_update(const struct pst_optim *optim,
                                   const struct pst_optim_options *options,
                                   uint64_t updates, uint64_t since,
                                   double grad_scale)
{
    struct pst_update ret = {.weight_decay = options->weight_decay};

    if (optim->numbers != NULL)
        optim->numbers(options, updates - PST_MIN(updates, since), &ret);
    ret.lr = pst_lr_at(options, updates);
    if (optim->average > 0)
        ret.share =
            pst_lr_share_of_top(options, PST_MIN(updates, since), updates);
    ret.grad_scale = grad_scale;
    ret.clip_value = options->clip_value;
    return ret;
}

/* --- none ----------------------------------------------------------------- */

const struct pst_optim pst_optim_none = {
    .name = "none",
    .summary = "parameters stay as they are",
};
