// SPDX-License-Identifier: Apache-2.0
/*
 * Casts as torch.autocast inserts them (autocast.def), in regions of the file
 * and in whole models. f64 is never cast, nor are complex numbers.
 */
#include "stages/frontend/import/import.h"
#include "stages/graph/schema.h"
#include "stages/ops/core/op.h"
#include "stages/ops/core/rows.h"

#include <stdlib.h>
#include <string.h>

struct row {
    const char *name;
    enum pst_autocast region, cuda, cpu;
};

static const struct row rows[] = {
#define ROW(name, region, cuda, cpu)                                           \
    {#name, PST_AUTOCAST_##region, PST_AUTOCAST_##cuda, PST_AUTOCAST_##cpu},
#include "stages/frontend/import/autocast.def"
#undef ROW
};

enum pst_autocast pst_import_autocast_kind(enum pst_autocast_lists lists,
                                           const char *target)
{
    const char *name = strchr(target, '.');
    const size_t n = name != NULL ? strcspn(name + 1, ".") : 0;

    for (size_t i = 0; i < PST_COUNT(rows) && n > 0; i++)
        if (strlen(rows[i].name) == n &&
            strncmp(rows[i].name, name + 1, n) == 0)
            return lists == PST_AUTOCAST_CUDA     ? rows[i].cuda
                   : lists == PST_AUTOCAST_CPU    ? rows[i].cpu
                   : lists == PST_AUTOCAST_REGION ? rows[i].region
                                                  : PST_AUTOCAST_KEEP;
    return PST_AUTOCAST_KEEP;
}

/* True for the dtypes that autocast casts. */
static bool is_cast(enum pst_dtype dtype)
{
    return pst_dtype_kind(dtype) == PST_KIND_FLOAT && dtype != PST_F64;
}

static bool is_eligible(const struct pst_value *v)
{
    return v != NULL && is_cast(v->meta.dtype);
}

bool pst_import_may_cast(const struct pst_import *import, enum pst_dtype file,
                         enum pst_dtype ours)
{
    return import->model->autocast != NULL && is_cast(file) && is_cast(ours);
}

static struct pst_value *cast_value(struct pst_import *import,
                                    struct pst_value *v, enum pst_dtype dtype)
{
    if (!is_eligible(v) || v->meta.dtype == dtype)
        return v;
    import->model->n_casts++;
    return pst_emit(&import->build, &pst_op__to_copy,
                    PST_ARGS(pst_v(v), pst_dtype_arg(dtype)));
}

/* Calls `each` for every tensor among the arguments; entries may be NULL. */
static void visit_tensors(struct pst_arg *args, unsigned n_args,
                          void (*each)(void *ctx, struct pst_value **slot),
                          void *ctx)
{
    for (unsigned i = 0; i < n_args; i++) {
        if (args[i].kind == PST_ARG_VALUE)
            each(ctx, &args[i].value);
        for (unsigned k = 0; args[i].kind == PST_ARG_VALUES && k < args[i].n;
             k++)
            each(ctx, &args[i].values[k]);
    }
}

static void find_wider(void *ctx, struct pst_value **slot)
{
    enum pst_dtype *dtype = ctx;

    if (is_eligible(*slot) && (*slot)->meta.dtype != *dtype)
        *dtype = PST_F32;
}

struct caster {
    struct pst_import *import;
    enum pst_dtype dtype;
};

static void cast_slot(void *ctx, struct pst_value **slot)
{
    const struct caster *c = ctx;
    struct pst_value *v = cast_value(c->import, *slot, c->dtype);

    if (v != NULL)
        *slot = v;
}

/* Sets the argument dtype to f32; false if the operator has none, or if the
 * node has set it. */
static bool set_option(struct pst_import *import,
                       const struct pst_schema *schema, struct pst_arg *args)
{
    const int dtype = pst_schema_arg(schema, "dtype");

    if (dtype < 0 || schema->n_args == 0 || args[0].kind != PST_ARG_VALUE ||
        !is_eligible(args[0].value))
        return false;
    if (args[dtype].kind == PST_ARG_NONE &&
        args[0].value->meta.dtype != PST_F32) {
        import->model->n_casts++;
        args[dtype] = pst_dtype_arg(PST_F32);
    }
    return true;
}

enum pst_status pst_import_autocast(struct pst_import *import,
                                    const struct pst_scope *scope,
                                    const char *target, enum pst_dtype result,
                                    const struct pst_schema *schema,
                                    struct pst_arg *args)
{
    struct caster c = {import, scope->low};

    switch (pst_import_autocast_kind(scope->autocast, target)) {
    case PST_AUTOCAST_KEEP:
        return PST_OK;
    case PST_AUTOCAST_LOW:
        break;
    case PST_AUTOCAST_OPTION:
        if (set_option(import, schema, args))
            return PST_OK;
        c.dtype = PST_F32;
        break;
    case PST_AUTOCAST_F32:
        c.dtype = PST_F32;
        break;
    case PST_AUTOCAST_WIDEST:
        visit_tensors(args, schema->n_args, find_wider, &c.dtype);
        break;
    case PST_AUTOCAST_RESULT:
        if (result != PST_F32 && result != scope->low)
            return PST_OK;
        c.dtype = result;
        break;
    }
    visit_tensors(args, schema->n_args, cast_slot, &c);
    return import->build.status;
}

enum pst_status pst_import_autocast_write(struct pst_import *import,
                                          const struct pst_op *op,
                                          struct pst_arg *args)
{
    const struct pst_value *written = args[0].value;

    if (import->model->autocast == NULL || op != &pst_op_index_put ||
        args[2].kind != PST_ARG_VALUE || !is_eligible(written))
        return PST_OK;
    args[2].value = cast_value(import, args[2].value, written->meta.dtype);
    return import->build.status;
}

/* Reads the node's arguments: device, dtype or None, enabled, cache. */
bool pst_import_autocast_mode(const struct pst_doc_node *node,
                              enum pst_autocast_lists *lists,
                              enum pst_dtype *dtype)
{
    const struct pst_doc_arg *device = pst_doc_arg_at(node, 0, PST_DOC_STRING);
    const struct pst_doc_arg *low =
        pst_doc_arg_at(node, 1, PST_DOC_SCALAR_TYPE);
    const struct pst_doc_arg *flag = pst_doc_arg_at(node, 2, PST_DOC_BOOL);

    *lists = PST_AUTOCAST_OFF;
    if (flag != NULL && !flag->number.b)
        return true;
    if (flag == NULL || device == NULL || strcmp(device->name, "cpu") != 0)
        return false;
    *lists = PST_AUTOCAST_REGION;
    *dtype = PST_BF16;
    return low == NULL || (pst_dtype_from_pt2(low->code, dtype) &&
                           (*dtype == PST_BF16 || *dtype == PST_F16));
}
