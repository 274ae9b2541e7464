// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/reduce/fold.h"

#include <math.h>

/* Lines shorter than SHORT are transposed, TURNED lines at a time, and then
 * reduced across the lines. */
#define SHORT  32
#define TURNED 64

struct job {
    const struct pst_call *call;
    const struct pst_folding *how;
    struct pst_reduce r;
    /* Loops over the kept dimensions (operands: the result, the tensor) and the
     * reduced ones (operand: the tensor, or the transposed lines). */
    struct pst_nd kept, gone;
    /* along: the reduced dimensions are adjacent in memory; turns: also, their
     * lines are short, so that they are transposed first; wide: the elements
     * are f64 */
    bool along, turns, wide;
    int64_t size; /* bytes of an element */
    /* for pst_fold_run_best(). best: indices of the best elements are stored;
     * values: the elements, too */
    bool best, values;
};

/* --- iteration over the tensor -------------------------------------------- */

static void walk_init(struct job *k, const struct pst_call *call, int arg)
{
    struct pst_meta out;
    const struct pst_meta *kept[2] = {&out, &k->r.kept}, *gone = &k->r.gone;

    pst_reduce_init(&k->r, call, arg);
    out = k->r.kept;
    pst_meta_set_contiguous(&out);
    pst_nd_init(&k->kept, 2, kept);
    pst_nd_init(&k->gone, 1, &gone);
    k->call = call;
    k->wide = call->in[0].meta->dtype == PST_F64;
    k->size = (int64_t)pst_dtype_size(call->in[0].meta->dtype);
    k->along = k->gone.stride[0][k->gone.rank - 1] == 1;
    k->turns = k->along && k->gone.rank == 1 && k->r.n_in < SHORT;
    if (k->turns)
        k->gone.stride[0][0] = TURNED;
}

static bool across_fits(const struct job *k)
{
    return k->kept.stride[1][k->kept.rank - 1] == 1;
}

bool pst_fold_fits(const struct pst_call *call, int arg)
{
    const enum pst_dtype dtype = call->in[0].meta->dtype;
    struct job k;

    if ((dtype != PST_F32 && dtype != PST_F64) ||
        call->out[0].meta->dtype != dtype)
        return false;
    walk_init(&k, call, arg);
    return k.r.n_in > 0 && k.r.n_out > 0 && (k.along || across_fits(&k));
}

bool pst_fold_fits_best(const struct pst_call *call, int arg)
{
    const enum pst_dtype dtype = call->in[0].meta->dtype;
    struct job k;

    if (dtype != PST_F32 && dtype != PST_F64)
        return false;
    walk_init(&k, call, arg);
    return k.r.n_in > 0 && k.r.n_out > 0 && k.gone.rank == 1 &&
           (k.along || across_fits(&k));
}

/* --- along memory --------------------------------------------------------- */

struct line {
    const struct pst_fold *fold;
    const char *x;
    int64_t size;
    double m, total;
};

static void line_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                     int64_t n)
{
    struct line *l = ctx;

    (void)nd;
    l->total = l->fold->join(
        l->total, l->fold->along(n, l->x + offset[0] * l->size, l->m));
}

static double line_run(const struct job *k, const struct pst_fold *fold,
                       const char *x, double m)
{
    struct line l = {fold, x, k->size, m, fold->empty};

    if (k->gone.rank == 1)
        return fold->along(k->r.n_in, x, m);
    pst_nd_range(&k->gone, 0, k->r.n_in, line_row, &l);
    return l.total;
}

/* Returns m rounded to the dtype of the elements. */
static double round_to_dtype(const struct job *k, double m)
{
    return k->wide ? m : (double)(float)m;
}

/* Define the search for the first index of the best element, in a line or in
 * each column. The rows of columns are searched from the last to the first, so
 * that the first of equal elements wins. */
#define FIND(type)                                                             \
    static bool is_##type(type x, type best)                                   \
    {                                                                          \
        return x == best || (x != x && best != best);                          \
    }                                                                          \
    static int64_t find_along_##type(const char *line, int64_t n, double best) \
    {                                                                          \
        const type *x = (const type *)(const void *)line;                      \
        int64_t i = 0;                                                         \
                                                                               \
        while (i + 1 < n && !is_##type(x[i], (type)best))                      \
            i++;                                                               \
        return i;                                                              \
    }                                                                          \
    static void find_across_##type(const struct job *k, const char *sheet,     \
                                   int64_t cols, const double *best,           \
                                   int64_t *at)                                \
    {                                                                          \
        const int64_t stride = k->gone.stride[0][k->gone.rank - 1];            \
        const type *x = (const type *)(const void *)sheet;                     \
                                                                               \
        for (int64_t r = k->r.n_in; r-- > 0;)                                  \
            for (int64_t j = 0; j < cols; j++)                                 \
                at[j] =                                                        \
                    is_##type(x[r * stride + j], (type)best[j]) ? r : at[j];   \
    }
FIND(float)
FIND(double)

static void store_result(const struct pst_call *c, int64_t o, double y)
{
    float *to = (float *)c->out[0].data + o;
    double *wide = (double *)c->out[0].data + o;

    if (c->out[0].meta->dtype == PST_F64)
        *wide = c->accumulate ? *wide + y : y;
    else
        *to = c->accumulate ? *to + (float)y : (float)y;
}

/* Computes result o, whose elements begin at x. */
static void one_along(const struct job *k, int64_t o, const char *x)
{
    const struct pst_folding *how = k->how;
    const struct pst_call *c = k->call;
    const struct pst_fold *two = how->second[k->wide];
    double first = line_run(k, how->first[k->wide], x, 0.0), second = 0.0;
    double m = 0.0;

    if (k->best) {
        ((int64_t *)c->out[c->n_out - 1].data)[o] =
            k->wide ? find_along_double(x, k->r.n_in, first)
                    : find_along_float(x, k->r.n_in, first);
        if (k->values)
            store_result(c, o, first);
        return;
    }
    if (two != NULL) {
        m = round_to_dtype(k, how->between(first, k->r.n_in));
        second = line_run(k, two, x, m);
    }
    if (how->end != NULL)
        first = how->end(c, first, m, second, k->r.n_in);
    store_result(c, o, first);
}

static void along_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                      int64_t n)
{
    const struct job *k = ctx;
    const int64_t step = nd->stride[1][nd->rank - 1];

    for (int64_t i = 0; i < n; i++)
        one_along(k, offset[0] + i,
                  (const char *)k->call->in[0].data +
                      (offset[1] + i * step) * k->size);
}

/* --- across --------------------------------------------------------------- */

struct sheet {
    const struct pst_fold *fold;
    const char *x;
    const double *m;
    int64_t size, cols;
    double *total;
};

static void sheet_row(void *ctx, const struct pst_nd *nd, const int64_t *offset,
                      int64_t n)
{
    const struct sheet *s = ctx;

    s->fold->across(n, s->cols, nd->stride[0][nd->rank - 1],
                    s->x + offset[0] * s->size, s->m, s->total);
}

static void sheet_run(const struct job *k, const struct pst_fold *fold,
                      const char *x, int64_t cols, const double *m,
                      double *total)
{
    struct sheet s = {fold, x, m, k->size, cols, total};

    for (int64_t j = 0; j < cols; j++)
        total[j] = fold->empty;
    pst_nd_range(&k->gone, 0, k->r.n_in, sheet_row, &s);
}

/* Computes results o..o+cols-1, whose elements begin at x. */
static void some_across(const struct job *k, int64_t o, const char *x,
                        int64_t cols)
{
    const struct pst_folding *how = k->how;
    const struct pst_call *c = k->call;
    const struct pst_fold *two = how->second[k->wide];
    double first[PST_FOLD_COLS], second[PST_FOLD_COLS];
    double m[PST_FOLD_COLS] = {0};

    sheet_run(k, how->first[k->wide], x, cols, m, first);
    if (k->best) {
        (k->wide ? find_across_double : find_across_float)(
            k, x, cols, first, (int64_t *)c->out[c->n_out - 1].data + o);
        for (int64_t j = 0; k->values && j < cols; j++)
            store_result(c, o + j, first[j]);
        return;
    }
    if (two != NULL) {
        for (int64_t j = 0; j < cols; j++)
            m[j] = round_to_dtype(k, how->between(first[j], k->r.n_in));
        sheet_run(k, two, x, cols, m, second);
    }
    for (int64_t j = 0; j < cols; j++) {
        if (how->end != NULL)
            first[j] = how->end(c, first[j], m[j],
                                two != NULL ? second[j] : 0.0, k->r.n_in);
        store_result(c, o + j, first[j]);
    }
}

static void across_row(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    const struct job *k = ctx;

    (void)nd;
    for (int64_t done = 0; done < n; done += PST_FOLD_COLS)
        some_across(k, offset[0] + done,
                    (const char *)k->call->in[0].data +
                        (offset[1] + done) * k->size,
                    PST_MIN(n - done, PST_FOLD_COLS));
}

/* Transposes lines that are `step` apart, so that elements i of all lines are
 * adjacent. */
#define TURN(type)                                                             \
    static void turn_##type(const char *from, int64_t lines, int64_t step,     \
                            int64_t n, void *to)                               \
    {                                                                          \
        const type *x = (const type *)(const void *)from;                      \
        type *t = to;                                                          \
                                                                               \
        for (int64_t j = 0; j < lines; j++)                                    \
            for (int64_t i = 0; i < n; i++)                                    \
                t[i * TURNED + j] = x[j * step + i];                           \
    }
TURN(float)
TURN(double)

static void turned_row(void *ctx, const struct pst_nd *nd,
                       const int64_t *offset, int64_t n)
{
    const struct job *k = ctx;
    const int64_t step = nd->stride[1][nd->rank - 1];
    double sheet[SHORT * TURNED]; /* holds floats for f32 */

    for (int64_t done = 0; done < n; done += TURNED) {
        const int64_t lines = PST_MIN(n - done, TURNED);

        (k->wide ? turn_double
                 : turn_float)((const char *)k->call->in[0].data +
                                   (offset[1] + done * step) * k->size,
                               lines, step, k->r.n_in, sheet);
        some_across(k, offset[0] + done, (const char *)sheet, lines);
    }
}

/* --- entry points --------------------------------------------------------- */

static void part_run(void *ctx, unsigned part, unsigned parts)
{
    struct job *k = ctx;
    int64_t begin, end;

    pst_pool_share(k->r.n_out, k->along ? 1 : 64, part, parts, &begin, &end);
    pst_nd_range(&k->kept, begin, end,
                 k->turns   ? turned_row
                 : k->along ? along_row
                            : across_row,
                 k);
}

static void run(struct job *k)
{
    pst_pool_run(
        pst_pool_if(k->call->pool,
                    pst_meta_numel(k->call->in[0].meta) >= PST_ND_SERIAL),
        part_run, k);
}

void pst_fold_run(const struct pst_call *call, int arg,
                  const struct pst_folding *how)
{
    struct job k = {.how = how};

    walk_init(&k, call, arg);
    run(&k);
}

void pst_fold_run_best(const struct pst_call *call, int arg, bool values,
                       const struct pst_fold *const fold[2])
{
    const struct pst_folding how = {.first = {fold[0], fold[1]}};
    struct job k = {.how = &how, .best = true, .values = values};

    walk_init(&k, call, arg);
    run(&k);
}
