// SPDX-License-Identifier: Apache-2.0
/* The kernel of penstock.chain: one launch executes all parts of a chain. */
#include "stages/ops/cuda/elements/chain.h"

#include <string.h>

#include "stages/ops/cpu/simd/loops.h"
#include "stages/ops/cuda/code/elements/chain.h"
#include "stages/ops/cuda/elements/copies.h"
#include "stages/ops/cuda/elements/loops.h"
#include "stages/ops/cuda/kernels.h"
#include "stages/ops/cuda/launch.h"
#include "stages/ops/pointwise/chain.h"

_Static_assert(PST_CUDA_CHAIN_PARTS == PST_CHAIN_PARTS,
               "code/elements/chain.h");
/* CUDA's limit for the parameters of a kernel. */
_Static_assert(sizeof(struct pst_cuda_chain) <= 4096, "code/elements/chain.h");

static const struct {
    pst_loop_fn loop;
    enum pst_cuda_chain_fn fn;
} functions[] = {
#define ROW(name)                        {pst_loop_##name##_any, PST_CUDA_CHAIN_##name},
#define LOOP(name, n, expr)              ROW(name)
#define GUARDED(name, n, expr, ok, slow) ROW(name)
#define RANGED(name, n, expr, ok, slow)  ROW(name)
#define QUESTION(name, n, expr)          ROW(name)
#define LOGIC(name, n, expr)             ROW(name)
#define INTEGER(name, n, expr)
#define COMPARE(name, n, expr)
#define CHOICE(name, expr) ROW(name)
#include "stages/ops/cpu/simd/loops.def"
#undef ROW
};

static bool find_function(pst_loop_fn loop, enum pst_cuda_chain_fn *ret)
{
    for (size_t i = 0; i < PST_COUNT(functions); i++)
        if (functions[i].loop == loop) {
            *ret = functions[i].fn;
            return true;
        }
    return false;
}

/* --- which calls ---------------------------------------------------------- */

static bool takes_meta(const struct pst_meta *meta)
{
    uint32_t type;

    for (unsigned d = 0; d < meta->rank; d++)
        if (meta->stride[d] > INT32_MAX) /* struct pst_cuda_chain_tensor */
            return false;
    return pst_cuda_type_of(meta->dtype, &type) &&
           (pst_cuda_is_real(type) || type == PST_CUDA_BOOL);
}

bool pst_cuda_chain_joins(const struct pst_kernel *kernel,
                          const struct pst_call *call)
{
    struct pst_pw_use use = {0};
    enum pst_cuda_chain_fn fn;

    if ((kernel->flags & PST_K_QUEUED) == 0 || !takes_meta(call->out[0].meta))
        return false;
    for (unsigned i = 0; i < call->n_in; i++)
        if (!takes_meta(call->in[i].meta))
            return false;
    if (pst_cuda_is_copies(kernel))
        return true;
    if (!pst_cuda_is_loop(kernel))
        return false;
    pst_pw_describe(kernel, call, &use);
    return find_function(use.loop, &fn);
}

/* --- parameters ----------------------------------------------------------- */

struct filler {
    const struct pst_call *call;
    const struct pst_chain *chain;
    struct pst_cuda_chain *p;
    unsigned at; /* the current part */
    /* by slot: number of the last part so far that writes it */
    unsigned writers[PST_CHAIN_PARTS];
    unsigned slots; /* slots that are used */
};

/* Fills the tensor of an operand or result; meta: its shape and strides in a
 * block of the chain. */
static void set_tensor(struct filler *f, const struct pst_operand *x,
                       const struct pst_meta *meta,
                       struct pst_cuda_chain_tensor *ret)
{
    const bool wide = pst_cuda_is_wide(x->data);
    const int64_t cols = f->chain->cols;
    const int64_t row = meta->stride[0], col = meta->stride[meta->rank - 1];
    uint32_t type = PST_CUDA_F32;

    (void)pst_cuda_type_of(meta->dtype, &type); /* `joins` has seen it */
    ret->x = x->data;
    ret->row = row;
    ret->col = (int32_t)col;
    ret->type = (uint8_t)type;
    if (meta->rank == 1 || row == col * cols) {
        ret->how = col == 0           ? PST_CUDA_CHAIN_ONE
                   : col == 1 && wide ? PST_CUDA_CHAIN_WIDE
                                      : PST_CUDA_CHAIN_STEP;
        return;
    }
    f->p->cols = cols;
    ret->how = PST_CUDA_CHAIN_ROWS;
    if (cols % PST_CUDA_CHAIN_EACH == 0 && col == 0)
        ret->how = PST_CUDA_CHAIN_ROWS_ONE;
    if (cols % PST_CUDA_CHAIN_EACH == 0 && col == 1 &&
        row % PST_CUDA_CHAIN_EACH == 0 && wide)
        ret->how = PST_CUDA_CHAIN_ROWS_WIDE;
}

/* Sets the source of operand k of the current part to that of x. */
static void set_from(struct filler *f, unsigned k,
                     const struct pst_chain_operand *x)
{
    const struct pst_chain_operand *last =
        f->at > 0 ? &f->chain->parts[f->at - 1].out : NULL;
    struct pst_cuda_chain_part *part = &f->p->parts[f->at];

    part->index[k] = (uint8_t)x->index;
    if (last != NULL && last->place == x->place && last->index == x->index) {
        part->from[k] = PST_CUDA_CHAIN_LAST;
    } else if (x->place == PST_CHAIN_SLOT) {
        part->from[k] = PST_CUDA_CHAIN_IN_SLOT;
        f->p->parts[f->writers[x->index]].slot = (uint8_t)x->index;
        f->slots = PST_MAX(f->slots, x->index + 1);
    } else {
        part->from[k] = PST_CUDA_CHAIN_TENSOR;
        if (x->place == PST_CHAIN_OUT)
            part->index[k] = (uint8_t)(f->call->n_in + x->index);
        else
            set_tensor(f, &f->call->in[x->index], &x->whole,
                       &f->p->tensors[x->index]);
    }
}

/* Describes the loop of the current part. */
static void set_function(struct filler *f)
{
    const struct pst_chain_part *from = &f->chain->parts[f->at];
    struct pst_cuda_chain_part *part = &f->p->parts[f->at];
    PST_UNINIT struct pst_operand in[PST_CHAIN_OPERANDS];
    struct pst_operand out = {.meta = &from->out.whole};
    const struct pst_call call = {.in = in,
                                  .out = &out,
                                  .n_in = from->n_in,
                                  .n_out = 1,
                                  .args = from->node->args,
                                  .owner = from->owner};
    enum pst_cuda_chain_fn fn = PST_CUDA_CHAIN_copy;
    struct pst_pw_use use = {0};
    uint32_t rounds = PST_CUDA_F32;

    for (unsigned i = 0; i < from->n_in; i++)
        in[i] = (struct pst_operand){.meta = &from->in[i].whole};
    pst_pw_describe(from->kernel, &call, &use);
    (void)find_function(use.loop, &fn); /* `joins` has found it, too */
    (void)pst_cuda_type_of(use.rounds, &rounds);
    part->fn = (uint8_t)fn;
    part->rounds = (uint8_t)rounds;
    memcpy(part->s, use.s, sizeof(part->s));
    for (unsigned k = 0; k < use.n; k++) {
        if (use.x[k] == NULL) {
            part->number[k] = use.as[k] == PST_BOOL
                                  ? (float)(pst_pw_number(use.arg[k]) != 0.0)
                                  : pst_cuda_loop_number(&use, k);
            continue;
        }
        set_from(f, k, &from->in[use.x[k] - in]);
        if (use.as[k] == PST_F32 && use.rounds != PST_F32 &&
            use.x[k]->meta->dtype != use.rounds)
            part->rounded |= (uint8_t)(1u << k);
    }
}

static void set_part(struct filler *f)
{
    const struct pst_chain_part *from = &f->chain->parts[f->at];
    struct pst_cuda_chain_part *part = &f->p->parts[f->at];
    uint32_t type = PST_CUDA_F32;

    part->slot = part->tensor = PST_CUDA_CHAIN_NOT;
    (void)pst_cuda_type_of(from->out.whole.dtype, &type);
    part->type = (uint8_t)type;
    if (pst_cuda_is_copies(from->kernel))
        set_from(f, 0, &from->in[0]);
    else
        set_function(f);
    if (from->out.place == PST_CHAIN_SLOT) {
        f->writers[from->out.index] = f->at;
        return;
    }
    part->tensor = (uint8_t)(f->call->n_in + from->out.index);
    set_tensor(f, &f->call->out[from->out.index], &from->out.whole,
               &f->p->tensors[part->tensor]);
}

/* --- the kernel ----------------------------------------------------------- */

static bool supports(const struct pst_call *c)
{
    return c->chain != NULL && c->n_in + c->n_out <= PST_CUDA_CHAIN_TENSORS &&
           c->chain->slots <= PST_CUDA_CHAIN_SLOTS;
}

static void chain_run(const struct pst_call *c)
{
    struct pst_cuda_chain p = {.numel = c->chain->numel,
                               .n_parts = c->chain->n_parts};
    struct filler f = {.call = c, .chain = c->chain, .p = &p};

    for (f.at = 0; f.at < p.n_parts; f.at++)
        set_part(&f);
    pst_cuda_launch_n_shared(c->stream, PST_FN_pst_chain,
                             (p.numel + PST_CUDA_CHAIN_EACH - 1) /
                                 PST_CUDA_CHAIN_EACH,
                             f.slots * PST_CUDA_CHAIN_SLOT, &p);
}

static const struct pst_kernel chain_kernels[] = {
    {"cuda_chain", PST_ISA_ANY, PST_D_ANY, PST_K_QUEUED | PST_K_STRIDED,
     supports, NULL, chain_run, 0.0},
};
PST_CUDA_KERNELS(chain, chain_kernels);
