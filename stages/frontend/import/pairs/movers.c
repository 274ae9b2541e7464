// SPDX-License-Identifier: Apache-2.0
/*
 * Operators that treat real and imaginary parts alike. They keep their own rows
 * on pairs, with arguments adapted so that they do not touch the last
 * dimension.
 */
#include "stages/frontend/import/import.h"
#include "stages/ops/core/op.h"

#include <string.h>

static const struct pst_mover {
    const char *name;
    bool adds_dim;      /* a negative dimension counts from the end of the
                           result */
    const char *append; /* list argument to append `last` to; NULL: none */
    /* the number to append; 0: the index of the pair's dimension */
    int64_t last;
    bool every; /* without an argument `dim` it applies to all dimensions; a
                 * tensor without dimensions stays as it is */
} movers[] = {
    {"aten.view.default", false, "size", 2, false},
    {"aten.reshape.default", false, "shape", 2, false},
    {"aten._unsafe_view.default", false, "size", 2, false},
    {"aten.expand.default", false, "size", 2, false},
    {"aten.broadcast_to.default", false, "size", 2, false},
    {"aten.repeat.default", false, "repeats", 1, false},
    {"aten.tile.default", false, "dims", 1, false},
    {"aten.permute.default", false, "dims", 0, false},
    {"aten.zeros.default", false, "size", 2, false},
    {"aten.new_zeros.default", false, "size", 2, false},
    {"aten.empty.memory_format", false, "size", 2, false},
    {"aten.new_empty.default", false, "size", 2, false},
    {"aten.full.default", false, "size", 2, false},
    {"aten.new_full.default", false, "size", 2, false},
    {"aten.zeros_like.default", false, NULL, 0, false},
    {"aten.empty_like.default", false, NULL, 0, false},
    {"aten.transpose.int", false, NULL, 0, false},
    {"aten.movedim.int", false, NULL, 0, false},
    {"aten.movedim.intlist", false, NULL, 0, false},
    {"aten.unsqueeze.default", true, NULL, 0, false},
    {"aten.squeeze.default", false, NULL, 0, false},
    {"aten.squeeze.dim", false, NULL, 0, false},
    {"aten.squeeze.dims", false, NULL, 0, false},
    {"aten.flatten.using_ints", false, NULL, 0, false},
    {"aten.unflatten.int", false, NULL, 0, false},
    {"aten.slice.Tensor", false, NULL, 0, false},
    {"aten.narrow.default", false, NULL, 0, false},
    {"aten.select.int", false, NULL, 0, false},
    {"aten.slice_scatter.default", false, NULL, 0, false},
    {"aten.select_scatter.default", false, NULL, 0, false},
    {"aten.index_select.default", false, NULL, 0, false},
    {"aten.index.Tensor", false, NULL, 0, false},
    {"aten.index_put.default", false, NULL, 0, false},
    {"aten.index_add.default", false, NULL, 0, false},
    {"aten.index_copy.default", false, NULL, 0, false},
    {"aten.split.Tensor", false, NULL, 0, false},
    {"aten.split_with_sizes.default", false, NULL, 0, false},
    {"aten.chunk.default", false, NULL, 0, false},
    {"aten.tensor_split.sections", false, NULL, 0, false},
    {"aten.tensor_split.indices", false, NULL, 0, false},
    {"aten.unbind.int", false, NULL, 0, false},
    {"aten.cat.default", false, NULL, 0, false},
    {"aten.stack.default", true, NULL, 0, false},
    {"aten.flip.default", false, NULL, 0, false},
    {"aten.roll.default", false, NULL, 0, false},
    {"aten.clone.default", false, NULL, 0, false},
    {"aten.contiguous.default", false, NULL, 0, false},
    {"aten.alias.default", false, NULL, 0, false},
    {"aten.detach.default", false, NULL, 0, false},
    {"aten.lift_fresh_copy.default", false, NULL, 0, false},
    {"aten.positive.default", false, NULL, 0, false},
    {"aten.expand_as.default", false, NULL, 0, false},
    {"aten.view_as.default", false, NULL, 0, false},
    {"aten.reshape_as.default", false, NULL, 0, false},
    {"aten.broadcast_tensors.default", false, NULL, 0, false},
    {"aten.copy.default", false, NULL, 0, false},
    {"aten.zero.default", false, NULL, 0, false},
    {"aten.nan_to_num.default", false, NULL, 0, false},
    {"aten.cumsum.default", false, NULL, 0, false},
    {"aten.sum.dim_IntList", false, NULL, 0, true},
    {"aten.mean.dim", false, NULL, 0, true},
    {"aten.prod.dim_int", false, NULL, 0, false},
    {"aten.fft_fftshift.default", false, NULL, 0, true},
    {"aten.fft_ifftshift.default", false, NULL, 0, true},
};

const struct pst_mover *pst_import_mover(const char *name)
{
    for (size_t i = 0; i < PST_COUNT(movers); i++)
        if (strcmp(movers[i].name, name) == 0)
            return &movers[i];
    return NULL;
}

/* Returns the rank of the first tensor, without the dimension of the pair; -1
 * if there is no tensor. */
static int64_t rank_of(const struct pst_schema *schema,
                       const struct pst_arg *args)
{
    for (unsigned i = 0; i < schema->n_args; i++) {
        if (args[i].kind == PST_ARG_VALUE)
            return (int64_t)args[i].value->meta.rank - 1;
        for (unsigned k = 0; args[i].kind == PST_ARG_VALUES && k < args[i].n;
             k++)
            if (args[i].values[k] != NULL) /* NULL: not indexed */
                return (int64_t)args[i].values[k]->meta.rank - 1;
    }
    return -1;
}

static bool names_dims(const char *name)
{
    static const char *const names[] = {
        "dim",         "dims",      "dim0",    "dim1",  "source",
        "destination", "start_dim", "end_dim", "axis0", "axis1"};

    for (size_t i = 0; i < PST_COUNT(names); i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* Replaces a list by a copy with capacity for one more number, and returns its
 * numbers; NULL if out of memory. */
static int64_t *copy_ints(struct pst_import *import, struct pst_arg *arg)
{
    struct pst_arena *arena = &import->build.graph->arena;
    int64_t *ints = pst_arena_calloc(arena, arg->n + 1, sizeof(*ints));
    const char **exprs = pst_arena_calloc(arena, arg->n + 1, sizeof(*exprs));

    if (ints == NULL || exprs == NULL)
        return NULL;
    for (unsigned i = 0; i < arg->n; i++) {
        ints[i] = arg->ints[i];
        exprs[i] = arg->exprs != NULL ? arg->exprs[i] : NULL;
    }
    arg->ints = ints;
    arg->exprs = arg->exprs != NULL ? exprs : NULL;
    return ints;
}

/* Sets the argument to all dimensions but that of the pair, for reductions and
 * shifts without the argument. */
static bool every_dim(struct pst_import *import, int64_t rank,
                      struct pst_arg *arg)
{
    int64_t *ints = pst_arena_calloc(&import->build.graph->arena,
                                     (size_t)rank + 1, sizeof(*ints));

    for (int64_t d = 0; ints != NULL && d < rank; d++)
        ints[d] = d;
    if (ints != NULL)
        *arg = pst_ints(ints, (unsigned)rank);
    return ints != NULL;
}

/* True if the argument names a dimension of a tensor without dimensions.
 * PyTorch accepts 0 and -1 there, but here they would mean the dimension of the
 * pair. */
static bool names_the_pair(const struct pst_mover *m, int64_t rank,
                           const char *name, const struct pst_arg *arg)
{
    if (rank != 0 || m->adds_dim || m->every || !names_dims(name) ||
        m->append != NULL)
        return false;
    return arg->kind == PST_ARG_INT ||
           (arg->kind == PST_ARG_INTS && arg->n > 0);
}

enum pst_status pst_import_adapt_dims(struct pst_import *import,
                                      const struct pst_mover *m,
                                      const struct pst_schema *schema,
                                      struct pst_arg *args)
{
    const int64_t found = rank_of(schema, args);
    const int64_t rank = PST_MAX(found, 0);
    const int64_t dims = rank + m->adds_dim;

    for (unsigned i = 0; i < schema->n_args; i++) {
        struct pst_arg *arg = &args[i];
        const char *name = schema->args[i].name;
        const bool append = m->append != NULL && strcmp(m->append, name) == 0;
        int64_t *ints;

        if (names_the_pair(m, found, name, arg))
            return pst_diag_set(import->diag, PST_E_OP_NOT_SUPPORTED,
                                "%s: a dimension of a complex number that has "
                                "none",
                                schema->name);
        if (names_dims(name) && arg->kind == PST_ARG_INT && arg->i < 0)
            arg->i += dims;
        if (m->every && strcmp(name, "dim") == 0 &&
            (arg->kind != PST_ARG_INTS || arg->n == 0 || found == 0) &&
            !every_dim(import, rank, arg))
            return pst_diag_nomem(import->diag, (size_t)rank * sizeof(*ints));
        if (arg->kind != PST_ARG_INTS || (!append && !names_dims(name)))
            continue;
        ints = copy_ints(import, arg);
        if (ints == NULL)
            return pst_diag_nomem(import->diag, arg->n * sizeof(*ints));
        for (unsigned k = 0; k < arg->n && names_dims(name); k++)
            if (ints[k] < 0)
                ints[k] += dims;
        if (append)
            ints[arg->n++] = m->last == 0 ? rank : m->last;
    }
    return PST_OK;
}
