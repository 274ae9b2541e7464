// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/carried.h"

#include <stdio.h>
#include <string.h>

#include "stages/base/host/fault.h"
#include "stages/layout/layout.h"
#include "stages/run/engine.h"
#include "stages/split/split.h"
#include "stages/split/store/pack.h"

#define TAG       PST_TAG_EXEC
#define MAX_TRIES 20 /* tries in a folder whose checkpoints disappear */

/* --- saving --------------------------------------------------------------- */

static struct pst_plan *root_of(const struct pst_engine *engine)
{
    struct pst_plan *plan = engine->grid->plan;

    while (plan->parent != NULL)
        plan = plan->parent;
    return plan;
}

static bool is_carried(const struct pst_engine *engine)
{
    return root_of(engine)->base_digest[0] != '\0';
}

/* True if this rank owns the value and no entry of a checkpoint has it
 * (entries.c). */
static bool is_not_saved(const struct pst_engine *engine, struct pst_rank *r,
                         const struct pst_rank_param *p)
{
    const struct pst_plan_param *param =
        &engine->grid->plan->params.at[p->index];

    return pst_engine_owner(engine, (unsigned)p->index) ==
               pst_role_number(pst_rank_role(r)) &&
           (param->kind == PST_VALUE_CONST ||
            (param->kind == PST_VALUE_BUFFER && !param->persistent &&
             !p->updated));
}

const char *pst_carried_model(const struct pst_engine *engine)
{
    const struct pst_plan *root = root_of(engine);

    return root->base_digest[0] != '\0' ? root->base_digest
                                        : root->model_digest;
}

const char *pst_carried_identity(const struct pst_engine *engine)
{
    const struct pst_plan *root = root_of(engine);

    return root->base_digest[0] != '\0' ? root->base_identity : root->identity;
}

bool pst_carried_is_in(const struct pst_checkpoint *ckpt)
{
    return pst_checkpoint_find(ckpt, PST_CARRIED_PLAN) != NULL;
}

static enum pst_status unpack_plan(const struct pst_checkpoint *ckpt,
                                   struct pst_plan **ret, struct pst_diag *diag)
{
    const struct pst_safetensors_entry *e =
        pst_checkpoint_find(ckpt, PST_CARRIED_PLAN);
    enum pst_status status;
    void *data;

    if (e->bytes > PST_PLAN_MAX_FILE)
        return pst_diag_set(diag, PST_E_CHECKPOINT_PLAN_TOO_LARGE,
                            "the plan in the checkpoint is too large");
    data = pst_alloc(TAG, PST_MAX(e->bytes, (size_t)1));
    if (data == NULL)
        return pst_diag_nomem(diag, e->bytes);
    status = pst_safetensors_read(e, 0, e->bytes, data, diag);
    if (status == PST_OK)
        status = pst_plan_unpack(data, e->bytes, ret, diag);
    pst_free(data);
    return status;
}

enum pst_status pst_carried_check(const struct pst_engine *engine,
                                  const struct pst_checkpoint *ckpt,
                                  struct pst_diag *diag)
{
    struct pst_plan *plan = NULL;
    enum pst_status status;
    bool same;

    if (!pst_carried_is_in(ckpt) && !is_carried(engine))
        return PST_OK;
    if (!pst_carried_is_in(ckpt))
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                            "the checkpoint of step %llu is from before the "
                            "model was changed",
                            (unsigned long long)ckpt->info.step);
    status = unpack_plan(ckpt, &plan, diag);
    if (status != PST_OK)
        return status;
    /* The plans must be equal, else modules of equal shapes could be swapped.
     */
    same = strcmp(plan->model_digest, root_of(engine)->model_digest) == 0;
    pst_plan_free(plan);
    if (same)
        return PST_OK;
    return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                        "the model was changed in the run of the checkpoint of "
                        "step %llu, and this plan is not what it then was",
                        (unsigned long long)ckpt->info.step);
}

static struct pst_meta bytes_meta(size_t n)
{
    struct pst_meta meta = {.dtype = PST_U8, .rank = 1, .size = {(int64_t)n}};

    pst_meta_set_contiguous(&meta);
    return meta;
}

static enum pst_status each_of_plan(const struct pst_engine *engine,
                                    pst_carried_fn fn, void *ctx,
                                    struct pst_diag *diag)
{
    struct pst_meta meta = bytes_meta(32);
    void *plan = NULL;
    size_t size = 0;
    enum pst_status status = pst_plan_pack(root_of(engine), &plan, &size, diag);

    if (status == PST_OK)
        status = fn(ctx, PST_CARRIED_BASE, &meta, root_of(engine)->base_digest,
                    0, diag);
    meta = bytes_meta(size);
    if (status == PST_OK)
        status = fn(ctx, PST_CARRIED_PLAN, &meta, plan, 0, diag);
    pst_free(plan);
    return status;
}

enum pst_status pst_carried_each(const struct pst_engine *engine,
                                 struct pst_rank *r, pst_carried_fn fn,
                                 void *ctx, struct pst_diag *diag)
{
    const struct pst_layout *layout = pst_rank_layout(r);
    enum pst_status status = PST_OK;

    if (!is_carried(engine))
        return PST_OK;
    if (pst_role_number(pst_rank_role(r)) == 0)
        status = each_of_plan(engine, fn, ctx, diag);
    for (size_t i = 0; i < layout->params.n && status == PST_OK; i++) {
        const struct pst_rank_param *p = &layout->params.at[i];
        const struct pst_plan_param *param =
            &engine->grid->plan->params.at[p->index];
        struct pst_str name = {0};

        if (!is_not_saved(engine, r, p))
            continue;
        pst_str_addf(&name, "const.%s", param->fqn);
        status = name.failed
                     ? pst_diag_nomem(diag, name.len)
                     : fn(ctx, name.text, &param->meta, NULL, p->data, diag);
        pst_str_fini(&name);
    }
    return status;
}

/* --- resuming ------------------------------------------------------------- */

/* Returns the saved value of a parameter, buffer or constant; NULL: none. */
static const struct pst_safetensors_entry *find_saved(
    const struct pst_carried *c, const struct pst_plan_param *param)
{
    static const char *const prefixes[] = {"const.", PST_CHECKPOINT_PARAM,
                                           PST_CHECKPOINT_BUFFER};
    const struct pst_safetensors_entry *e = NULL;

    for (size_t i = 0; i < PST_COUNT(prefixes) && e == NULL; i++) {
        struct pst_str name = {0};

        pst_str_addf(&name, "%s%s", prefixes[i], param->fqn);
        e = name.failed ? NULL : pst_checkpoint_find(c->ckpt, name.text);
        pst_str_fini(&name);
    }
    return e != NULL && pst_meta_same(&e->meta, &param->meta) ? e : NULL;
}

static enum pst_status read_start_value(void *ctx, unsigned i, void *dst,
                                        struct pst_diag *diag)
{
    const struct pst_carried *c = ctx;
    const struct pst_plan_param *param = &c->plan->params.at[i];
    const struct pst_safetensors_entry *e = find_saved(c, param);

    if (e != NULL)
        return pst_safetensors_read(e, 0, e->bytes, dst, diag);
    return pst_diag_set(diag, PST_E_CHECKPOINT_DAMAGED,
                        "the checkpoint has no '%s'", param->fqn);
}

static enum pst_status check_base(const struct pst_carried *c,
                                  struct pst_diag *diag)
{
    const struct pst_safetensors_entry *e =
        pst_checkpoint_find(c->ckpt, PST_CARRIED_BASE);
    char digest[33] = "";
    enum pst_status status = PST_OK;

    if (e != NULL && e->bytes == 32)
        status = pst_safetensors_read(e, 0, 32, digest, diag);
    if (status != PST_OK || strcmp(digest, c->base->model_digest) == 0)
        return status;
    if (c->base->identity[0] != '\0' &&
        strcmp(c->ckpt->info.identity, c->base->identity) == 0)
        return PST_OK;
    return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_MODEL,
                        "the checkpoint of step %llu is of the model "
                        "\"%.100s\" (digest %s), whose run has changed it, "
                        "and this is another one, \"%.100s\" (digest %s)",
                        (unsigned long long)c->ckpt->info.step,
                        c->ckpt->info.name, digest, c->base->name,
                        c->base->model_digest);
}

static enum pst_status read_plan(struct pst_carried *c, struct pst_diag *diag)
{
    enum pst_status status = unpack_plan(c->ckpt, &c->plan, diag);

    /* The checkpoint's plan is not needed if the base is the same plan. */
    if (status != PST_OK ||
        strcmp(c->plan->model_digest, c->base->model_digest) == 0)
        return status;
    status = check_base(c, diag);
    if (status == PST_OK)
        status = pst_plan_check(c->plan, diag);
    if (status != PST_OK)
        return status;
    memcpy(c->plan->base_digest, c->base->model_digest,
           sizeof(c->plan->base_digest));
    memcpy(c->plan->base_identity, c->base->identity,
           sizeof(c->plan->base_identity));
    c->plan->read = read_start_value;
    c->plan->read_ctx = c;
    pst_plan_measure(c->plan);
    return PST_OK;
}

enum pst_status pst_carried_open(struct pst_plan *base, const char *dir,
                                 uint64_t step, struct pst_carried **ret,
                                 struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir, .step = step};
    struct pst_carried *c = pst_calloc(TAG, 1, sizeof(*c));
    enum pst_status status;

    *ret = NULL;
    if (c == NULL)
        return pst_diag_nomem(diag, sizeof(*c));
    c->base = base;
    status = pst_checkpoint_open(&query, &c->ckpt, diag);
    if (status == PST_OK && pst_carried_is_in(c->ckpt))
        status = read_plan(c, diag);
    if (status == PST_OK && c->plan != NULL && c->plan->read != NULL)
        *ret = c;
    else
        pst_carried_close(c);
    return status;
}

enum pst_status pst_carried_open_newest(struct pst_plan *base, const char *dir,
                                        uint64_t *ret_step,
                                        struct pst_carried **ret,
                                        struct pst_diag *diag)
{
    const struct pst_checkpoint_query query = {.dir = dir,
                                               .step = PST_CHECKPOINT_LATEST};
    enum pst_status status = PST_OK;

    for (unsigned k = 0; k < MAX_TRIES; k++) {
        struct pst_checkpoint *ckpt;
        bool any;

        *ret = NULL;
        *ret_step = PST_CHECKPOINT_LATEST;
        if (pst_checkpoint_open(&query, &ckpt, NULL) != PST_OK)
            return PST_OK;
        *ret_step = ckpt->info.step;
        any = pst_carried_is_in(ckpt);
        pst_checkpoint_close(ckpt);
        pst_fault_point("carried");
        status =
            any ? pst_carried_open(base, dir, *ret_step, ret, diag) : PST_OK;
        if (status == PST_OK || !pst_checkpoint_is_rest(dir, *ret_step))
            break;
    }
    return status;
}

void pst_carried_close(struct pst_carried *carried)
{
    if (carried == NULL)
        return;
    pst_plan_free(carried->plan);
    pst_checkpoint_close(carried->ckpt);
    pst_free(carried);
}
