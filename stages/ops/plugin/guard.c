// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/guard.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/checked.h"
#include "stages/base/str.h"
#include "stages/ops/plugin/row.h"

#define TAG PST_TAG_EXEC
/* guarded bytes on each side, and the alignment of the memory between */
#define GUARD ((size_t)256)
#define ALIGN ((size_t)64)

static atomic_bool is_on;

void pst_plugin_guard_set(bool on)
{
    atomic_store(&is_on, on);
}

bool pst_plugin_guard_is_on(void)
{
    return atomic_load_explicit(&is_on, memory_order_relaxed);
}

/* --- guarded memory ------------------------------------------------------- */

struct guarded {
    unsigned char *block; /* guard, bytes, guard */
    unsigned char *at;
    size_t bytes;
};

static bool guarded_new(size_t bytes, unsigned char fill, struct guarded *ret)
{
    size_t all;

    if (PST_ADD(bytes, 2 * GUARD + ALIGN, &all))
        return false;
    ret->block = pst_alloc(TAG, all);
    if (ret->block == NULL)
        return false;
    ret->at = (unsigned char *)(((uintptr_t)ret->block + GUARD + ALIGN - 1) &
                                -(uintptr_t)ALIGN);
    ret->bytes = bytes;
    memset(ret->at - GUARD, fill ^ 0x55, GUARD);
    memset(ret->at, fill, bytes);
    memset(ret->at + bytes, fill ^ 0x55, GUARD);
    return true;
}

static bool is_filled(const unsigned char *at, size_t n, unsigned char byte)
{
    for (size_t i = 0; i < n; i++)
        if (at[i] != byte)
            return false;
    return true;
}

/* Returns the side of g on which the kernel wrote out of bounds: "before" or
 * "after"; NULL if on neither. */
static const char *find_overrun(const struct guarded *g, unsigned char fill)
{
    if (!is_filled(g->at - GUARD, GUARD, fill ^ 0x55))
        return "before";
    return is_filled(g->at + g->bytes, GUARD, fill ^ 0x55) ? NULL : "after";
}

/* --- runs ----------------------------------------------------------------- */

/* One execution of the kernel, with its own results and scratch. */
struct trial {
    struct guarded out[PENSTOCK_MAX_TENSORS], scratch;
    struct pst_operand operands[PENSTOCK_MAX_TENSORS];
    unsigned char fill;
};

static void trial_fini(struct trial *t, unsigned n_out)
{
    for (unsigned k = 0; k < n_out; k++)
        pst_free(t->out[k].block);
    pst_free(t->scratch.block);
}

static bool trial_init(struct trial *t, const struct pst_call *c,
                       unsigned char fill)
{
    memset(t, 0, sizeof(*t));
    t->fill = fill;
    for (unsigned k = 0; k < c->n_out; k++) {
        if (!guarded_new(pst_meta_span(c->out[k].meta), fill, &t->out[k]))
            return false;
        t->operands[k] = c->out[k];
        t->operands[k].data = t->out[k].at;
    }
    return guarded_new(c->scratch_size, fill, &t->scratch);
}

/* Returns the name of the argument that holds tensor i. */
static const char *argument_of(const struct pst_call *c, unsigned i)
{
    const struct pst_plugin_kernel *owner = c->owner;
    const struct pst_schema *schema = &owner->row->schema;
    struct pst_plugin_args args;

    (void)pst_plugin_args_set(schema, c->args, &args);
    for (unsigned k = 0; k < args.n; k++)
        if ((args.at[k].kind == PENSTOCK_ARG_TENSOR ||
             args.at[k].kind == PENSTOCK_ARG_TENSORS) &&
            i - (unsigned)args.at[k].first < args.at[k].n)
            return schema->args[k].name;
    return "?";
}

static uint64_t hash_of(const struct pst_operand *x)
{
    return x->data == NULL ? 0 : pst_hash(x->data, pst_meta_span(x->meta), 1);
}

/* True if the kernel has not written to its inputs or outside of its results
 * and scratch; otherwise describes the write in `why`. */
static bool is_intact(const struct pst_call *c, const struct trial *t,
                      const uint64_t *hashes, char *why)
{
    for (unsigned k = 0; k < c->n_out; k++) {
        const char *where = find_overrun(&t->out[k], t->fill);

        if (where != NULL) {
            (void)snprintf(why, PST_PLUGIN_FAULT_TEXT,
                           "the plugin's kernel writes %s the %zu bytes of "
                           "result %u",
                           where, t->out[k].bytes, k);
            return false;
        }
    }
    if (find_overrun(&t->scratch, t->fill) != NULL) {
        (void)snprintf(why, PST_PLUGIN_FAULT_TEXT,
                       "the plugin's kernel writes %s the %zu bytes of its "
                       "scratch",
                       find_overrun(&t->scratch, t->fill), t->scratch.bytes);
        return false;
    }
    for (unsigned i = 0; i < c->n_in; i++)
        if (hash_of(&c->in[i]) != hashes[i]) {
            (void)snprintf(why, PST_PLUGIN_FAULT_TEXT,
                           "the plugin's kernel writes to its input %s",
                           argument_of(c, i));
            return false;
        }
    return true;
}

static bool run_trial(const struct pst_call *c, struct trial *t,
                      struct pst_pool *pool, const uint64_t *hashes, char *why)
{
    struct pst_call call = *c;

    call.out = t->operands;
    call.scratch = t->scratch.bytes > 0 ? t->scratch.at : NULL;
    call.pool = pool;
    return pst_plugin_frame_run(&call, why) && is_intact(c, t, hashes, why);
}

/* True if the results of two executions are equal; otherwise describes the
 * difference in `why`. */
static bool is_same(const struct pst_call *c, const struct trial *a,
                    const struct trial *b, char *why)
{
    for (unsigned k = 0; k < c->n_out; k++) {
        const size_t size = pst_dtype_size(c->out[k].meta->dtype);
        size_t i = 0;

        while (i < a->out[k].bytes && a->out[k].at[i] == b->out[k].at[i])
            i++;
        if (i == a->out[k].bytes)
            continue;
        (void)snprintf(why, PST_PLUGIN_FAULT_TEXT,
                       "element %zu of result %u of the plugin's kernel %s",
                       i / size, k,
                       a->out[k].at[i] == a->fill && b->out[k].at[i] == b->fill
                           ? "is not written"
                           : "has other bits when it runs again, in one "
                             "thread");
        return false;
    }
    return true;
}

bool pst_plugin_guard_run(const struct pst_call *c,
                          char why[PST_PLUGIN_FAULT_TEXT])
{
    PST_UNINIT struct trial first, second;
    uint64_t hashes[PENSTOCK_MAX_TENSORS];
    bool good;

    for (unsigned i = 0; i < c->n_in; i++)
        hashes[i] = hash_of(&c->in[i]);
    good = trial_init(&first, c, 0xa5);
    good = trial_init(&second, c, 0x5c) && good;
    if (!good)
        (void)snprintf(why, PST_PLUGIN_FAULT_TEXT,
                       "there is no memory to check the plugin's kernel");
    good = good && run_trial(c, &first, c->pool, hashes, why);
    for (unsigned k = 0; good && k < c->n_out; k++)
        memcpy(c->out[k].data, first.out[k].at, first.out[k].bytes);
    good = good && run_trial(c, &second, NULL, hashes, why) &&
           is_same(c, &first, &second, why);
    trial_fini(&first, c->n_out);
    trial_fini(&second, c->n_out);
    return good;
}
