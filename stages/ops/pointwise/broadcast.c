// SPDX-License-Identifier: Apache-2.0
/* Broadcasts and converts operands for the loops of simd/loops.def. */
#include "stages/ops/pointwise/pointwise.h"

#include "stages/ops/cpu/simd/convert.h"
#include "stages/ops/pointwise/nd.h"

#include <math.h>
#include <string.h>

#define MAX   3   /* maximum number of operands */
#define BLOCK 512 /* elements packed at a time */
#define SHORT 32  /* rows with fewer elements are packed together */

/* --- supported calls ------------------------------------------------------ */

static bool is_loop_dtype(enum pst_dtype dtype)
{
    return dtype == PST_F32 || pst_simd_is_16(dtype);
}

bool pst_pw_is_f32(const struct pst_call *call)
{
    const enum pst_dtype dtype = call->out[0].meta->dtype;

    return dtype == PST_F32 ||
           (pst_simd_is_16(dtype) && call->in[0].meta->dtype == dtype);
}

bool pst_pw_is_plain_f32(const struct pst_call *call)
{
    for (unsigned k = 0; k < 2; k++)
        if (call->args[k].kind == PST_ARG_VALUE &&
            call->args[k].value->meta.dtype != PST_F32)
            return false;
    return call->out[0].meta->dtype == PST_F32;
}

bool pst_pw_is_question(const struct pst_call *call)
{
    for (unsigned k = 0; k < call->n_in; k++)
        if (!is_loop_dtype(call->in[k].meta->dtype))
            return false;
    return call->out[0].meta->dtype == PST_BOOL;
}

bool pst_pw_is_logic(const struct pst_call *call)
{
    for (unsigned k = 0; k < call->n_in; k++)
        if (call->in[k].meta->dtype != PST_BOOL)
            return false;
    return call->out[0].meta->dtype == PST_BOOL;
}

bool pst_pw_is_i64(const struct pst_call *call)
{
    for (unsigned k = 0; k < call->n_in; k++)
        if (call->in[k].meta->dtype != PST_I64)
            return false;
    for (unsigned k = 0; k < 2; k++)
        if (call->args[k].kind == PST_ARG_FLOAT)
            return false;
    return true;
}

bool pst_pw_is_choice(const struct pst_call *call, unsigned mask)
{
    return call->in[mask].meta->dtype == PST_BOOL &&
           is_loop_dtype(call->out[0].meta->dtype);
}

/* --- operands ------------------------------------------------------------- */

/* How an operand is passed to the loop. */
enum way {
    DIRECT, /* in place, without a copy */
    FIXED,  /* as one number */
    FILLED, /* as a block filled with one number */
    PACKED, /* packed and converted block by block */
    ROWS,   /* packed block by block, across short rows */
};

struct fast {
    const struct pst_call *call;
    unsigned n, fixed;
    const struct pst_operand *x[MAX]; /* NULL: a number */
    const struct pst_arg *arg[MAX];
    enum pst_dtype as[MAX]; /* dtype the loop takes: f32, bool or i64 */
    size_t size[MAX];       /* bytes of an element in that dtype */
    enum way way[MAX];
    float s[3];
    enum pst_dtype rounds; /* 16-bit dtype to which f32 operands are rounded;
                            * f32: none */
    pst_loop_fn loop;
    bool blocks;
    bool puts;           /* results of the loop are stored by store_block() */
    struct pst_nd *rows; /* [MAX], for short rows: loops over the result and
                          * operand k */
};

#define PACK(type, convert)                                                    \
    do {                                                                       \
        const type *from = (const type *)x->data + at;                         \
                                                                               \
        if (stride == 1)                                                       \
            for (int64_t i = 0; i < n; i++)                                    \
                to[i] = convert(from[i]);                                      \
        else                                                                   \
            for (int64_t i = 0; i < n; i++)                                    \
                to[i] = convert(from[i * stride]);                             \
    } while (0)

#define TO_FLOAT(v) (float)(v)
#define IS_TRUE(v)  (float)((v) != 0)

static void pack_16(const struct pst_operand *x, int64_t at, int64_t stride,
                    int64_t n, float *to)
{
    const uint16_t *from = (const uint16_t *)x->data + at;
    uint16_t some[BLOCK];

    for (int64_t i = 0; stride != 1 && i < n; i++)
        some[i] = from[i * stride];
    pst_simd_from_16_best(x->meta->dtype,
                          pst_cpu_isa())(n, stride == 1 ? from : some, to);
}

/* Copies n elements of x, from element `at` on, to `to` and rounds them to
 * f32. */
static void pack_f32(const struct pst_operand *x, int64_t at, int64_t stride,
                     int64_t n, float *to)
{
    switch (x->meta->dtype) {
    case PST_F32:
        PACK(float, TO_FLOAT);
        break;
    case PST_BF16:
    case PST_F16:
        pack_16(x, at, stride, n, to);
        break;
    case PST_BOOL:
        PACK(uint8_t, IS_TRUE);
        break;
    case PST_U8:
        PACK(uint8_t, TO_FLOAT);
        break;
    case PST_I32:
        PACK(int32_t, TO_FLOAT);
        break;
    case PST_I64:
        PACK(int64_t, TO_FLOAT);
        break;
    default:
        for (int64_t i = 0; i < n; i++)
            to[i] =
                (float)pst_load_f64(x->meta->dtype, x->data, at + i * stride);
    }
}

/* Fills a block with operand k, which is a number. */
static void fill_block(const struct fast *r, unsigned k, int64_t n, void *to)
{
    const struct pst_arg *arg = r->arg[k];

    if (r->as[k] == PST_BOOL)
        memset(to, pst_pw_number(arg) != 0.0, (size_t)n);
    else if (r->as[k] == PST_I64)
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)to)[i] = pst_pw_integer(arg);
    else
        for (int64_t i = 0; i < n; i++)
            ((float *)to)[i] = (float)pst_pw_number(arg);
}

static void round_16(enum pst_dtype dtype, int64_t n, float *x)
{
    const enum pst_isa isa = pst_cpu_isa();
    uint16_t rounded[BLOCK];

    pst_simd_to_16_best(dtype, isa)(n, x, rounded);
    pst_simd_from_16_best(dtype, isa)(n, rounded, x);
}

/* Copies n elements of x, which is operand k, to `to` in the dtype of the
 * loop. */
static void pack_of(const struct fast *r, unsigned k,
                    const struct pst_operand *x, int64_t at, int64_t stride,
                    int64_t n, void *to)
{
    const bool as_is = x != NULL && x->meta->dtype == r->rounds;

    if (x == NULL)
        fill_block(r, k, n, to);
    else if (r->as[k] == PST_F32)
        pack_f32(x, at, stride, n, to);
    else if (r->as[k] == PST_I64)
        for (int64_t i = 0; i < n; i++)
            ((int64_t *)to)[i] =
                pst_load_i64(x->meta->dtype, x->data, at + i * stride);
    else
        for (int64_t i = 0; i < n; i++)
            ((uint8_t *)to)[i] = ((const uint8_t *)x->data)[at + i * stride];
    if (r->rounds != PST_F32 && !as_is)
        round_16(r->rounds, n, to);
}

static void pack(const struct fast *r, unsigned k, int64_t at, int64_t stride,
                 int64_t n, void *to)
{
    pack_of(r, k, r->x[k], at, stride, n, to);
}

/* Packs the n elements of operand k that belong to elements at, at + 1, ... of
 * the result; they may lie in several short rows. */
static void pack_rows(const struct fast *r, unsigned k, int64_t at, int64_t n,
                      void *to)
{
    const struct pst_operand *x = r->x[k];
    const size_t size = pst_dtype_size(x->meta->dtype);
    int64_t some[BLOCK];
    const struct pst_operand together = {.meta = x->meta, .data = some};

    if (x->meta->dtype == r->as[k] && r->rounds == PST_F32) {
        pst_nd_gather(&r->rows[k], 1, at, n, x->data, size, to);
        return;
    }
    pst_nd_gather(&r->rows[k], 1, at, n, x->data, size, some);
    pack_of(r, k, &together, 0, 1, n, to);
}

/* True if the loop can take operand k as one number (simd/loops.h). */
static bool may_be_fixed(const struct fast *r, unsigned k)
{
    return r->n == 2 ? r->fixed == 0 : r->n == 3 && k == 2;
}

static void find_ways(struct fast *r, const struct pst_nd *nd)
{
    const unsigned last = nd->rank - 1;

    for (unsigned k = r->n; k-- > 0;) {
        const int64_t stride = nd->stride[k + 1][last];
        const bool as_is = r->x[k] != NULL && r->x[k]->meta->dtype == r->as[k];

        if (r->x[k] != NULL && stride == 1 && as_is)
            r->way[k] = DIRECT;
        else if (r->x[k] != NULL && stride != 0)
            r->way[k] = PACKED;
        else if (may_be_fixed(r, k))
            r->way[k] = FIXED;
        else
            r->way[k] = FILLED;
        if (r->way[k] == FIXED)
            r->fixed |= 1u << k;
        if (r->way[k] == FILLED || r->way[k] == PACKED)
            r->blocks = true;
    }
}

/* --- rows ----------------------------------------------------------------- */

static void row_direct(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    const struct fast *r = ctx;
    const struct pst_operand *out = &r->call->out[0];
    const int64_t size = (int64_t)pst_dtype_size(out->meta->dtype);
    const void *in[MAX] = {NULL, NULL, NULL};
    int64_t cell[MAX];

    (void)nd;
    for (unsigned k = 0; k < r->n; k++) {
        in[k] = &cell[k];
        if (r->way[k] == DIRECT)
            in[k] = (const char *)r->x[k]->data +
                    offset[k + 1] * (int64_t)r->size[k];
        else
            pack(r, k, offset[k + 1], 0, 1, &cell[k]);
    }
    r->loop(n, in, r->fixed, r->s, (char *)out->data + offset[0] * size);
}

/* Stores a block of results: rounds it, adds it to the old values, or both. */
static void store_block(const struct fast *r, int64_t n, float *x, void *y)
{
    const enum pst_dtype dtype = r->call->out[0].meta->dtype;
    const enum pst_isa isa = pst_cpu_isa();
    float was[BLOCK];

    if (dtype == PST_F32) {
        for (int64_t i = 0; i < n; i++)
            ((float *)y)[i] += x[i];
        return;
    }
    if (r->call->accumulate) {
        round_16(dtype, n, x);
        pst_simd_from_16_best(dtype, isa)(n, y, was);
        for (int64_t i = 0; i < n; i++)
            x[i] += was[i];
    }
    pst_simd_to_16_best(dtype, isa)(n, x, y);
}

static void row_blocks(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    const struct fast *r = ctx;
    const struct pst_operand *out = &r->call->out[0];
    const int64_t size = (int64_t)pst_dtype_size(out->meta->dtype);
    int64_t x[MAX][BLOCK];
    float some[BLOCK];
    const void *in[MAX] = {x[0], x[1], x[2]};

    for (int64_t done = 0; done < n; done += BLOCK) {
        const int64_t m = PST_MIN(n - done, BLOCK);
        char *y = (char *)out->data + (offset[0] + done) * size;

        for (unsigned k = 0; k < r->n; k++) {
            const int64_t stride = nd->stride[k + 1][nd->rank - 1];
            const int64_t at = offset[k + 1] + done * stride;

            if (r->way[k] == DIRECT)
                in[k] = (const char *)r->x[k]->data + at * (int64_t)r->size[k];
            else if (r->way[k] == ROWS)
                pack_rows(r, k, offset[0] + done, m, x[k]);
            else if (r->way[k] == PACKED || done == 0)
                pack(r, k, at, stride, r->way[k] == FIXED ? 1 : m, x[k]);
        }
        r->loop(m, in, r->fixed, r->s, r->puts ? some : (void *)y);
        if (r->puts)
            store_block(r, m, some, y);
    }
}

/* Runs a call whose rows are short: treats the result as one long row, and
 * packs the matching elements of the operands block by block. */
static void run_short(struct fast *r)
{
    const struct pst_meta *out = r->call->out[0].meta;
    const struct pst_meta *direct[MAX + 1] = {out};
    struct pst_nd flat, rows[MAX];

    r->rows = rows;
    for (unsigned k = r->n; k-- > 0;) {
        const struct pst_meta *metas[2] = {out, r->x[k] != NULL ? r->x[k]->meta
                                                                : NULL};
        const struct pst_nd *nd = &r->rows[k];

        pst_nd_init(&r->rows[k], 2, metas);
        if (nd->rank == 1 && nd->stride[1][0] == 0)
            r->way[k] = may_be_fixed(r, k) ? FIXED : FILLED;
        else if (nd->rank == 1 && nd->stride[1][0] == 1 &&
                 metas[1]->dtype == r->as[k] && r->rounds == PST_F32)
            r->way[k] = DIRECT;
        else
            r->way[k] = ROWS;
        if (r->way[k] == FIXED)
            r->fixed |= 1u << k;
        if (r->way[k] == DIRECT)
            direct[k + 1] = metas[1];
    }
    pst_nd_init(&flat, r->n + 1, direct);
    pst_nd_run(&flat, r->call->pool, row_blocks, r);
}

/* If not NULL, run() only stores its description of the call here. */
static _Thread_local struct pst_pw_use *describing;

static void describe(const struct fast *r)
{
    describing->loop = r->loop;
    describing->n = r->n;
    describing->rounds = r->rounds;
    memcpy(describing->x, r->x, sizeof(r->x));
    memcpy(describing->arg, r->arg, sizeof(r->arg));
    memcpy(describing->as, r->as, sizeof(r->as));
    memcpy(describing->s, r->s, sizeof(r->s));
}

void pst_pw_describe(const struct pst_kernel *kernel,
                     const struct pst_call *call, struct pst_pw_use *ret)
{
    describing = ret;
    kernel->run(call);
    describing = NULL;
}

static void run(struct fast *r, const unsigned *order, unsigned n)
{
    const struct pst_meta *metas[MAX + 1] = {r->call->out[0].meta};
    struct pst_nd nd;

    r->n = n;
    for (unsigned k = 0; k < n; k++) {
        const unsigned arg = order != NULL ? order[k] : k;

        r->x[k] = pst_pw_operand(r->call, 0, n, arg);
        r->arg[k] = &r->call->args[arg];
        r->size[k] = pst_dtype_size(r->as[k]);
        metas[k + 1] = r->x[k] != NULL ? r->x[k]->meta : NULL;
    }
    if (describing != NULL) {
        describe(r);
        return;
    }
    pst_nd_init(&nd, n + 1, metas);
    if (nd.numel == 0)
        return;
    r->puts = r->call->accumulate || pst_simd_is_16(metas[0]->dtype);
    if (nd.rank > 1 && nd.size[nd.rank - 1] < SHORT &&
        pst_meta_is_contiguous(metas[0])) {
        run_short(r);
        return;
    }
    find_ways(r, &nd);
    r->blocks = r->blocks || r->puts;
    pst_nd_run(&nd, r->call->pool, r->blocks ? row_blocks : row_direct, r);
}

void pst_pw_loop_with(const struct pst_call *call, unsigned n, const float s[3],
                      pst_loop_fn f)
{
    struct fast r = {.call = call,
                     .loop = f,
                     .rounds = PST_F32,
                     .as = {PST_F32, PST_F32, PST_F32},
                     .s = {s[0], s[1], s[2]}};

    run(&r, NULL, n);
}

static void set_params(const struct pst_call *call, unsigned param,
                       unsigned n_params, float *s)
{
    for (unsigned k = 0; k < n_params; k++) {
        const struct pst_arg *arg = &call->args[param + k];

        s[k] = arg->kind == PST_ARG_NONE ? NAN : (float)pst_pw_number(arg);
    }
}

void pst_pw_loop(const struct pst_call *call, unsigned n, unsigned param,
                 unsigned n_params, pst_loop_fn f)
{
    float s[3] = {0.0f, 0.0f, 0.0f};

    set_params(call, param, n_params, s);
    pst_pw_loop_with(call, n, s, f);
}

void pst_pw_loop_rounded(const struct pst_call *call, unsigned n,
                         unsigned param, unsigned n_params, pst_loop_fn f)
{
    const enum pst_dtype dtype = pst_result_type(call->args, n);
    struct fast r = {.call = call,
                     .loop = f,
                     .rounds = pst_simd_is_16(dtype) ? dtype : PST_F32,
                     .as = {PST_F32, PST_F32, PST_F32}};

    set_params(call, param, n_params, r.s);
    run(&r, NULL, n);
}

void pst_pw_loop_logic(const struct pst_call *call, unsigned n, pst_loop_fn f)
{
    struct fast r = {.call = call,
                     .loop = f,
                     .rounds = PST_F32,
                     .as = {PST_BOOL, PST_BOOL, PST_BOOL}};

    run(&r, NULL, n);
}

void pst_pw_loop_i64(const struct pst_call *call, unsigned n, pst_loop_fn f)
{
    struct fast r = {.call = call,
                     .loop = f,
                     .rounds = PST_F32,
                     .as = {PST_I64, PST_I64, PST_I64}};

    run(&r, NULL, n);
}

void pst_pw_loop_choice(const struct pst_call *call, const unsigned order[3],
                        pst_loop_fn f)
{
    struct fast r = {.call = call,
                     .loop = f,
                     .rounds = PST_F32,
                     .as = {PST_BOOL, PST_F32, PST_F32}};

    run(&r, order, MAX);
}
