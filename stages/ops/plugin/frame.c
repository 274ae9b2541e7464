// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/plugin/frame.h"

#include <stdio.h>
#include <string.h>

#include "stages/ops/plugin/dtype.h"
#include "stages/ops/plugin/row.h"

/* The call of a plugin's kernel; given.host points to this struct. */
struct frame {
    struct penstock_kernel_call given;
    struct pst_plugin_args args;
    DLTensor in[PENSTOCK_MAX_TENSORS], out[PENSTOCK_MAX_TENSORS];
    char reason[PENSTOCK_MAX_REASON];
    struct pst_pool *pool;
};

static const struct pst_plugin_kernel *owner_of(const struct pst_call *c)
{
    return c->owner;
}

/* --- threads -------------------------------------------------------------- */

struct pieces {
    void (*fn)(void *ctx, size_t begin, size_t end);
    void *ctx;
    size_t n;
};

static void run_piece(void *ctx, unsigned part, unsigned parts)
{
    const struct pieces *p = ctx;
    int64_t begin, end;

    pst_pool_share((int64_t)p->n, 1, part, parts, &begin, &end);
    if (begin < end)
        p->fn(p->ctx, (size_t)begin, (size_t)end);
}

static void parallel_for(const struct penstock_kernel_call *call, size_t n,
                         void (*fn)(void *ctx, size_t begin, size_t end),
                         void *ctx)
{
    const struct frame *f = call->host;
    struct pieces p = {fn, ctx, n};

    if (n > 0 && n <= INT64_MAX)
        pst_pool_run(f->pool, run_piece, &p);
}

/* --- random numbers ------------------------------------------------------- */

static void philox(const struct penstock_kernel_call *call, uint64_t block,
                   uint32_t ret[4])
{
    const uint32_t key[2] = {(uint32_t)call->seed,
                             (uint32_t)(call->seed >> 32)};
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32),
                                 (uint32_t)call->subsequence,
                                 (uint32_t)(call->subsequence >> 32)};

    pst_rng_philox(counter, key, ret);
}

static void set_stream(struct frame *f, const struct pst_call *c)
{
    uint32_t stream[4];

    pst_rng_stream(&c->rng, stream);
    f->given.seed = stream[0] | (uint64_t)stream[1] << 32;
    f->given.subsequence = stream[2] | (uint64_t)stream[3] << 32;
    f->given.philox = philox;
}

/* --- calls ---------------------------------------------------------------- */

static void set_tensors(const struct pst_operand *from, unsigned n,
                        DLTensor *to)
{
    for (unsigned i = 0; i < n; i++) {
        const struct pst_meta *meta = from[i].meta;

        memset(&to[i], 0, sizeof(to[i]));
        to[i].device.device_type = kDLCPU;
        if (meta == NULL || meta == &pst_meta_absent)
            continue;
        to[i].data = from[i].data;
        to[i].dtype = pst_dtype_to_dl(meta->dtype);
        to[i].ndim = (int32_t)meta->rank;
        to[i].shape = (int64_t *)meta->size;
        to[i].strides = (int64_t *)meta->stride;
    }
}

static void frame_begin(struct frame *f, const struct pst_call *c)
{
    const struct pst_plugin_row *row = owner_of(c)->row;

    memset(&f->given, 0, sizeof(f->given));
    /* The status is ignored: inference has checked the number of tensors. */
    (void)pst_plugin_args_set(&row->schema, c->args, &f->args);
    set_tensors(c->in, c->n_in, f->in);
    set_tensors(c->out, c->n_out, f->out);
    memset(f->reason, 0, sizeof(f->reason));
    f->pool = c->pool;
    f->given.size = sizeof(f->given);
    f->given.args = f->args.at;
    f->given.n_args = f->args.n;
    f->given.in = f->in;
    f->given.n_in = c->n_in;
    f->given.out = f->out;
    f->given.n_out = c->n_out;
    f->given.scratch = c->scratch;
    f->given.scratch_bytes = c->scratch_size;
    f->given.parallel_for = parallel_for;
    f->given.reason = f->reason;
    if (owner_of(c)->row->op.flags & PST_OP_RANDOM)
        set_stream(f, c);
    f->given.host = f;
}

size_t pst_plugin_frame_scratch(const struct pst_call *c)
{
    const struct penstock_kernel *given = owner_of(c)->given;
    PST_UNINIT struct frame f;

    if (given->scratch == NULL)
        return 0;
    frame_begin(&f, c);
    for (unsigned i = 0; i < c->n_in; i++)
        f.in[i].data = NULL;
    for (unsigned i = 0; i < c->n_out; i++)
        f.out[i].data = NULL;
    f.given.scratch = NULL;
    f.given.scratch_bytes = 0;
    return given->scratch(&f.given);
}

bool pst_plugin_frame_run(const struct pst_call *c,
                          char why[PST_PLUGIN_FAULT_TEXT])
{
    PST_UNINIT struct frame f;
    int code;

    frame_begin(&f, c);
    code = owner_of(c)->given->run(&f.given);
    if (code == 0)
        return true;
    f.reason[sizeof(f.reason) - 1] = '\0';
    (void)snprintf(why, PST_PLUGIN_FAULT_TEXT,
                   "the plugin's kernel failed (%d)%s%s", code,
                   f.reason[0] != '\0' ? ": " : "", f.reason);
    return false;
}
