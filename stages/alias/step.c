// SPDX-License-Identifier: Apache-2.0
#include "stages/alias/step.h"

#include "stages/base/host/cpu.h"
#include "stages/frontend/functional/overlap.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define TAG PST_TAG_EXEC

struct leaf {
    char *name;
    int64_t n;
    uint64_t steps;
    bool stepped; /* updated in the last call */
    float *value, *grad, *states[PST_OPTIM_MAX_STATES];
    void *work; /* scratch of the update */
};

struct pst_alias_leaves {
    const struct pst_optim_options *options;
    pst_task_fn task;
    struct PST_VEC(struct leaf) at;
};

enum pst_status pst_alias_leaves_new(const struct pst_optim_options *options,
                                     struct pst_alias_leaves **ret,
                                     struct pst_diag *diag)
{
    struct pst_alias_leaves *leaves = pst_calloc(TAG, 1, sizeof(*leaves));
    enum pst_status status = PST_OK;

    if (leaves == NULL)
        return pst_diag_nomem(diag, sizeof(*leaves));
    leaves->options = options;
    if (options->row != NULL && options->row->task != NULL)
        status = pst_device_task(&pst_device_cpu, options->row->task,
                                 &leaves->task, diag);
    if (status == PST_OK)
        status = pst_optim_check(options, diag);
    if (status != PST_OK) {
        pst_alias_leaves_free(leaves);
        return status;
    }
    *ret = leaves;
    return PST_OK;
}

void pst_alias_leaves_free(struct pst_alias_leaves *leaves)
{
    if (leaves == NULL)
        return;
    for (size_t i = 0; i < leaves->at.n; i++) {
        struct leaf *leaf = &leaves->at.at[i];

        pst_free(leaf->name);
        pst_free(leaf->value);
        pst_free(leaf->grad);
        pst_free(leaf->work);
        for (unsigned k = 0; k < PST_OPTIM_MAX_STATES; k++)
            pst_free(leaf->states[k]);
    }
    pst_vec_fini(&leaves->at);
    pst_free(leaves);
}

static struct leaf *find_leaf(const struct pst_alias_leaves *leaves,
                              const char *name)
{
    for (size_t i = 0; i < leaves->at.n; i++)
        if (strcmp(leaves->at.at[i].name, name) == 0)
            return &leaves->at.at[i];
    return NULL;
}

const void *pst_alias_leaves_value(const struct pst_alias_leaves *leaves,
                                   const char *name)
{
    const struct leaf *leaf = find_leaf(leaves, name);

    return leaf != NULL && leaf->stepped ? leaf->value : NULL;
}

static const void *grad_of(const struct pst_dump *grads, const char *name)
{
    const struct pst_dump_item *item;
    char text[512];

    (void)snprintf(text, sizeof(text), "grad.%s", name);
    item = pst_dump_find(grads, text);
    return item != NULL ? item->data : NULL;
}

static enum pst_status alloc_leaf(struct leaf *leaf,
                                  const struct pst_optim_options *options,
                                  const struct pst_meta *meta,
                                  struct pst_diag *diag)
{
    const size_t n = (size_t)leaf->n + 1;
    struct pst_meta state;
    bool found;

    leaf->value = pst_calloc(TAG, n, sizeof(float));
    leaf->grad = pst_calloc(TAG, n, sizeof(float));
    leaf->work = pst_alloc(TAG, pst_optim_work(options, meta) + 1);
    found = leaf->value != NULL && leaf->grad != NULL && leaf->work != NULL;
    for (unsigned k = 0; k < PST_OPTIM_MAX_STATES && found; k++) {
        if (!pst_optim_state(options, k, meta, &state))
            continue;
        leaf->states[k] =
            pst_calloc(TAG, (size_t)pst_meta_numel(&state) + 1, sizeof(float));
        found = leaf->states[k] != NULL;
    }
    return found ? PST_OK : pst_diag_nomem(diag, n * sizeof(float));
}

static enum pst_status add_leaf(struct pst_alias_leaves *leaves,
                                const char *name, const struct pst_meta *meta,
                                struct pst_diag *diag)
{
    struct leaf leaf = {.name = pst_strdup(TAG, name),
                        .n = pst_meta_numel(meta)};

    if (leaf.name == NULL || !pst_vec_push(TAG, &leaves->at, leaf)) {
        pst_free(leaf.name);
        return pst_diag_nomem(diag, sizeof(leaf));
    }
    return alloc_leaf(&leaves->at.at[leaves->at.n - 1], leaves->options, meta,
                      diag);
}

static enum pst_status prepare_leaf(struct pst_alias_leaves *leaves,
                                    const struct pst_alias_program_operand *o,
                                    struct pst_diag *diag)
{
    const int64_t n = pst_meta_numel(&o->as.meta);
    const struct leaf *leaf = find_leaf(leaves, o->leaf);
    bool overlaps;
    enum pst_status status =
        pst_window_overlaps_itself(&o->as.meta, &overlaps, diag);

    if (status != PST_OK)
        return status;
    if (o->read_only)
        return pst_diag_set(diag, PST_E_ALIAS_READ_ONLY,
                            "E_READ_ONLY: the optimizer writes leaf \"%s\", "
                            "which is read-only",
                            o->leaf);
    if (overlaps || o->as.meta.dtype != PST_F32)
        return pst_diag_set(diag, PST_E_ALIAS_SHARED_WRITE,
                            overlaps ? "E_SELF_OVERLAP: several elements of "
                                       "leaf \"%s\" share memory; it has no "
                                       "step"
                                     : "leaf \"%s\" is not f32; it has no step",
                            o->leaf);
    if (leaf == NULL)
        status =
            pst_optim_fits(leaves->options, o->leaf, &o->as.meta, false, diag);
    if (status != PST_OK)
        return status;
    if (leaf == NULL)
        return add_leaf(leaves, o->leaf, &o->as.meta, diag);
    return leaf->n == n
               ? PST_OK
               : pst_diag_set(diag, PST_E_ALIAS_LEAF,
                              "leaf \"%s\" has %lld elements now, not %lld",
                              o->leaf, (long long)n, (long long)leaf->n);
}

/* True if operand i is the first operand of its leaf, and the leaf has a
 * gradient: the step updates each leaf once. */
static bool takes_part(const struct pst_alias_program_operand *operands,
                       unsigned i, const struct pst_dump *grads)
{
    if (operands[i].leaf == NULL || grad_of(grads, operands[i].leaf) == NULL)
        return false;
    for (unsigned k = 0; k < i; k++)
        if (operands[k].leaf != NULL &&
            strcmp(operands[k].leaf, operands[i].leaf) == 0)
            return false;
    return true;
}

enum pst_status pst_alias_leaves_prepare(
    struct pst_alias_leaves *leaves,
    const struct pst_alias_program_operand *operands, unsigned n,
    const struct pst_dump *grads, struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned i = 0; i < n && status == PST_OK; i++)
        if (takes_part(operands, i, grads))
            status = prepare_leaf(leaves, &operands[i], diag);
    return status;
}

/* Returns the factor that clips the norm of all gradients together to
 * options->clip_norm; 1 without clipping. */
static double scale_of(const struct pst_alias_leaves *leaves,
                       const struct pst_alias_program_operand *operands,
                       unsigned n, const struct pst_dump *grads)
{
    double sum = 0;

    for (unsigned i = 0; i < n; i++) {
        const float *g = NULL;

        if (takes_part(operands, i, grads))
            g = grad_of(grads, operands[i].leaf);
        for (int64_t k = 0;
             g != NULL && k < pst_meta_numel(&operands[i].as.meta); k++)
            sum += (double)g[k] * (double)g[k];
    }
    return leaves->options->clip_norm > 0
               ? pst_clip_scale(sqrt(sum), leaves->options->clip_norm)
               : 1.0;
}

static void step_leaf(const struct pst_alias_leaves *leaves, struct leaf *leaf,
                      const struct pst_alias_operand *as, void *data,
                      const void *grad, double scale)
{
    struct pst_update update = pst_optim_update(
        leaves->options->row, leaves->options, leaf->steps, 0, scale);
    void *from[3 + PST_OPTIM_MAX_STATES] = {
        leaf->grad, [1 + PST_OPTIM_MAX_STATES] = leaf->work};
    struct pst_meta plain = as->meta;
    struct pst_task task = {.dtype = PST_F32,
                            .n = leaf->n,
                            .to = leaf->value,
                            .from = from,
                            .n_from = PST_COUNT(from),
                            .meta = &plain,
                            .update = &update,
                            .isa = pst_cpu_isa()};

    memcpy(&from[1], leaf->states, sizeof(leaf->states));
    memcpy(leaf->grad, grad, (size_t)leaf->n * sizeof(float));
    pst_meta_set_contiguous(&plain);
    pst_copy_strided(&as->meta, data, &plain, leaf->value);
    leaves->task(&task);
    pst_copy_strided(&plain, leaf->value, &as->meta, data);
    leaf->stepped = true;
    leaf->steps++;
}

void pst_alias_leaves_step(struct pst_alias_leaves *leaves,
                           const struct pst_alias_program_operand *operands,
                           unsigned n, const struct pst_call_storage *storages,
                           const struct pst_dump *grads)
{
    const double scale = scale_of(leaves, operands, n, grads);

    for (size_t i = 0; i < leaves->at.n; i++)
        leaves->at.at[i].stepped = false;
    for (unsigned i = 0; i < n && leaves->task != NULL; i++) {
        const struct pst_alias_operand *as = &operands[i].as;

        if (takes_part(operands, i, grads))
            step_leaf(leaves, find_leaf(leaves, operands[i].leaf), as,
                      (char *)storages[as->storage].data +
                          as->offset * (int64_t)sizeof(float),
                      grad_of(grads, operands[i].leaf), scale);
    }
}
