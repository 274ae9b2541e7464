// SPDX-License-Identifier: Apache-2.0
/* Matches the arguments and results of a file with those of a call. */
#include "stages/modules/frames.h"

#include "stages/base/str.h"
#include "stages/graph/text/print.h"

#include <stdio.h>
#include <string.h>

struct matcher {
    const struct pst_frame *frame;
    const struct pst_frame_leaves *arguments, *results;
    struct pst_arena *arena;
    struct pst_match *ret;
    struct pst_diag *diag;
};

/* --- leaves --------------------------------------------------------------- */

static bool is_tensor(const struct pst_leaf *leaf)
{
    return leaf->arg.kind == PST_ARG_VALUE || leaf->arg.kind == PST_ARG_IGNORED;
}

static unsigned count_tensors(const struct pst_frame_leaves *leaves)
{
    unsigned n = 0;

    for (size_t i = 0; i < leaves->at.n; i++)
        n += is_tensor(&leaves->at.at[i]);
    return n;
}

/* True if the shapes can be equal: a symbolic size of the file matches any
 * size. Whether they are consistent is checked later (unify.h). */
static bool may_have_shape(const struct pst_value *file,
                           const struct pst_value *call)
{
    bool ret = file->meta.rank == call->meta.rank;

    for (unsigned d = 0; d < file->meta.rank && ret; d++)
        ret = file->meta.size[d] == call->meta.size[d] ||
              (file->dims != NULL && file->dims[d] != NULL);
    return ret;
}

/* True if a leaf of the file can be a leaf of the call. */
static bool fits_leaf(const struct pst_leaf *a, const struct pst_leaf *b)
{
    if (a->arg.kind == PST_ARG_IGNORED || b->arg.kind == PST_ARG_IGNORED)
        return is_tensor(a) && is_tensor(b);
    if (a->arg.kind != PST_ARG_VALUE || b->arg.kind != PST_ARG_VALUE)
        return pst_arg_same(&a->arg, &b->arg);
    return a->arg.value->meta.dtype == b->arg.value->meta.dtype &&
           may_have_shape(a->arg.value, b->arg.value);
}

static void print_tensor(void *ctx, const struct pst_value *value,
                         struct pst_str *out)
{
    (void)ctx, (void)value;
    pst_str_add(out, "tensor");
}

static void add_leaf(const struct pst_leaf *leaf, struct pst_str *out)
{
    char text[PST_META_TEXT];

    pst_str_addf(out, "%s: ", leaf->path);
    if (leaf->arg.kind == PST_ARG_VALUE)
        pst_str_add(out, pst_meta_text(&leaf->arg.value->meta, text));
    else if (leaf->arg.kind == PST_ARG_IGNORED)
        pst_str_add(out, "unused");
    else
        pst_arg_print(&leaf->arg, print_tensor, NULL, out);
}

static void add_leaves(const struct pst_frame_leaves *leaves,
                       struct pst_str *out)
{
    pst_str_add(out, "(");
    for (size_t i = 0; i < leaves->at.n; i++) {
        pst_str_add(out, i > 0 ? ", " : "");
        add_leaf(&leaves->at.at[i], out);
    }
    pst_str_add(out, ")");
}

static enum pst_status refuse_signature(const struct matcher *m,
                                        const char *why)
{
    const struct pst_module_call *call = m->frame->call;
    struct pst_str text = {0};
    enum pst_status status;

    pst_str_addf(&text, "module \"%s\": %s: it takes ", call->name, why);
    add_leaves(&m->frame->ins, &text);
    pst_str_add(&text, " and returns ");
    add_leaves(&m->frame->outs, &text);
    pst_str_add(&text, "; the file's module takes ");
    add_leaves(m->arguments, &text);
    pst_str_add(&text, " and returns ");
    add_leaves(m->results, &text);
    status =
        pst_diag_set(m->diag, PST_E_SWAP_INTERFACE, "%s", pst_str_text(&text));
    pst_str_fini(&text);
    return status;
}

/* --- arguments ------------------------------------------------------------ */

/* Returns the index of the next tensor from i on. */
static size_t next_tensor(const struct pst_frame_leaves *leaves, size_t i)
{
    while (i < leaves->at.n && !is_tensor(&leaves->at.at[i]))
        i++;
    return i;
}

/* Matches the tensors of the file and the call in order. */
static bool match_in_order(const struct matcher *m)
{
    const struct pst_frame_leaves *ins = &m->frame->ins;
    size_t k = 0;
    unsigned n = 0;

    for (size_t i = 0; i < m->arguments->at.n; i++) {
        if (!is_tensor(&m->arguments->at.at[i]))
            continue;
        k = next_tensor(ins, k);
        if (k == ins->at.n ||
            !fits_leaf(&m->arguments->at.at[i], &ins->at.at[k]))
            return false;
        m->ret->ins[n++] = (int)k++;
    }
    return true;
}

/* True if the shapes are equal at the export's values of symbolic sizes. */
static bool is_exact(const struct pst_leaf *a, const struct pst_leaf *b)
{
    return a->arg.kind == PST_ARG_VALUE && b->arg.kind == PST_ARG_VALUE &&
           pst_meta_same_shape(&a->arg.value->meta, &b->arg.value->meta);
}

enum match_by { NAMES, SHAPES, FREE_SHAPES };

/* Matches each tensor of the file with the only one of the call that fits and
 * has the same name (NAMES) or shape (SHAPES). Returns false if several or none
 * match, or if a tensor of the call would be used twice. */
static bool match_all_by(const struct matcher *m, enum match_by what)
{
    const struct pst_frame_leaves *ins = &m->frame->ins;
    unsigned n = 0;

    for (size_t i = 0; i < m->arguments->at.n; i++) {
        const struct pst_leaf *leaf = &m->arguments->at.at[i];
        int found = -1;

        if (!is_tensor(leaf))
            continue;
        for (size_t k = 0; k < ins->at.n; k++) {
            if (!fits_leaf(leaf, &ins->at.at[k]) ||
                (what == NAMES &&
                 strcmp(leaf->path, ins->at.at[k].path) != 0) ||
                (what == SHAPES && !is_exact(leaf, &ins->at.at[k])))
                continue;
            if (found >= 0)
                return false;
            found = (int)k;
        }
        for (unsigned k = 0; k < n; k++)
            if (m->ret->ins[k] == found)
                return false;
        if (found < 0)
            return false;
        m->ret->ins[n++] = found;
    }
    return true;
}

static enum pst_status match_signed(const struct matcher *m, bool strict)
{
    const struct pst_frame_leaves *ins = &m->frame->ins;
    const bool plain = m->arguments->at.n == count_tensors(m->arguments);
    bool same = m->arguments->at.n == ins->at.n;

    for (size_t i = 0; same && i < ins->at.n; i++)
        same = fits_leaf(&m->arguments->at.at[i], &ins->at.at[i]) ||
               (!strict && !is_tensor(&m->arguments->at.at[i]) &&
                !is_tensor(&ins->at.at[i]));
    /* A file without literal arguments matches any literals. */
    if (!same && !plain)
        return refuse_signature(m, "another signature");
    if (count_tensors(m->arguments) != count_tensors(ins) || !match_in_order(m))
        return refuse_signature(m, "another signature");
    return PST_OK;
}

static enum pst_status match_arguments(const struct matcher *m, bool strict)
{
    const unsigned n = count_tensors(m->arguments);

    if (m->frame->is_signed)
        return match_signed(m, strict);
    if (n != m->frame->ins.at.n)
        return refuse_signature(m, "another number of tensors");
    if (strict && n != m->arguments->at.n)
        return refuse_signature(
            m, "the export kept no signature of it, so that nobody "
               "knows if the file's constants are its own (name the "
               "call by its number)");
    if (n <= 1)
        return match_in_order(m) ? PST_OK
                                 : refuse_signature(m, "another tensor");
    if (match_all_by(m, NAMES) || match_all_by(m, SHAPES) ||
        match_all_by(m, FREE_SHAPES))
        return PST_OK;
    return refuse_signature(
        m, "the export kept no signature of it, and neither names nor "
           "shapes tell which tensor is which (export the model with "
           "preserve_module_call_signature, or call the file's "
           "arguments as the tensors)");
}

/* --- results -------------------------------------------------------------- */

static enum pst_status match_results(const struct matcher *m)
{
    const struct pst_frame_leaves *outs = &m->frame->outs;
    const unsigned n = count_tensors(outs);
    size_t k = 0;

    if (n != count_tensors(m->results))
        return refuse_signature(m, "another number of results");
    for (size_t i = 0; i < outs->at.n; i++) {
        m->ret->outs[i] = -1;
        if (!is_tensor(&outs->at.at[i]))
            continue;
        k = next_tensor(m->results, k);
        if (!fits_leaf(&m->results->at.at[k], &outs->at.at[i]))
            return refuse_signature(m, "another result");
        m->ret->outs[i] = (int)k++;
    }
    return PST_OK;
}

enum pst_status pst_frame_match(const struct pst_frame *frame,
                                const struct pst_frame_leaves *arguments,
                                const struct pst_frame_leaves *results,
                                bool strict, struct pst_arena *arena,
                                struct pst_match *ret, struct pst_diag *diag)
{
    const struct matcher m = {frame, arguments, results, arena, ret, diag};
    enum pst_status status;

    ret->ins = pst_arena_calloc(arena, arguments->at.n + 1, sizeof(int));
    ret->outs = pst_arena_calloc(arena, frame->outs.at.n + 1, sizeof(int));
    if (ret->ins == NULL || ret->outs == NULL)
        return pst_diag_nomem(diag, arguments->at.n);
    status = match_arguments(&m, strict);
    return status == PST_OK ? match_results(&m) : status;
}
