// SPDX-License-Identifier: Apache-2.0
/* Weighted sums along the spatial dimensions, and their transposes. */
#include "stages/ops/pool/resample.h"

#include <string.h>

static int64_t volume(const struct pst_resample *r, bool in)
{
    int64_t n = 1;

    for (unsigned d = 0; d < PST_SPACE; d++)
        n *= in ? r->axis[d].in : r->axis[d].out;
    return n;
}

static int64_t clamp_index(int64_t i, int64_t n)
{
    return i < 0 ? 0 : i >= n ? n - 1 : i;
}

/* --- reference ---------------------------------------------------------- */

/* Function that is called for every input of a result, with the input's index
 * in the plane and its weight. */
typedef void (*tap_fn)(void *ctx, int64_t place, double weight);

static void each_tap(const struct pst_resample *r, const int64_t o[PST_SPACE],
                     tap_fn fn, void *ctx)
{
    struct pst_taps t[PST_SPACE];

    for (unsigned d = 0; d < PST_SPACE; d++)
        pst_axis_taps(&r->axis[d], o[d], &t[d]);
    for (int64_t i = 0; i < t[0].count; i++)
        for (int64_t j = 0; j < t[1].count; j++)
            for (int64_t k = 0; k < t[2].count; k++) {
                const int64_t a = clamp_index(t[0].first + i, r->axis[0].in);
                const int64_t b = clamp_index(t[1].first + j, r->axis[1].in);
                const int64_t c = clamp_index(t[2].first + k, r->axis[2].in);

                fn(ctx, (a * r->axis[1].in + b) * r->axis[2].in + c,
                   pst_taps_weight(&t[0], i) * pst_taps_weight(&t[1], j) *
                       pst_taps_weight(&t[2], k));
            }
}

struct walk {
    const struct pst_operand *from;
    int64_t first; /* index of the plane's first input */
    double sum;    /* sum of one result */
    double *plane; /* transposed: gradient of x in the plane, in double */
    double g;
};

static double load(const struct pst_operand *x, int64_t i)
{
    return pst_load_f64(x->meta->dtype, x->data, pst_meta_offset(x->meta, i));
}

static void store(const struct pst_resample *r, const struct pst_operand *y,
                  int64_t i, double value)
{
    const int64_t at = pst_meta_offset(y->meta, i);

    if (r->accumulate)
        value += pst_load_f64(y->meta->dtype, y->data, at);
    pst_store_f64(y->meta->dtype, y->data, at, value);
}

static void add_input(void *ctx, int64_t place, double weight)
{
    struct walk *w = ctx;

    w->sum += weight * load(w->from, w->first + place);
}

static void add_gradient(void *ctx, int64_t place, double weight)
{
    struct walk *w = ctx;

    w->plane[place] += weight * w->g;
}

/* Writes the coordinates of a plane's result i. */
static void place_of(const struct pst_resample *r, int64_t i,
                     int64_t o[PST_SPACE])
{
    for (unsigned d = PST_SPACE; d-- > 0;) {
        o[d] = i % r->axis[d].out;
        i /= r->axis[d].out;
    }
}

void pst_resample_ref(const struct pst_resample *r, bool transposed,
                      double *scratch)
{
    const int64_t n_in = volume(r, true), n_out = volume(r, false);
    int64_t o[PST_SPACE];

    for (int64_t p = 0; p < r->planes; p++) {
        struct walk w = {.from = r->x, .first = p * n_in, .plane = scratch};

        memset(scratch, 0, (size_t)n_in * sizeof(double));
        for (int64_t i = 0; i < n_out; i++) {
            place_of(r, i, o);
            w.sum = 0.0;
            if (transposed)
                w.g = load(r->y, p * n_out + i);
            each_tap(r, o, transposed ? add_gradient : add_input, &w);
            if (!transposed)
                store(r, r->y, p * n_out + i, w.sum);
        }
        for (int64_t i = 0; transposed && i < n_in; i++)
            store(r, r->x, p * n_in + i, scratch[i]);
    }
}

/* --- fast --------------------------------------------------------------- */

/* The inputs ("taps") of all results along one dimension; those of result o are
 * entries begin[o]..begin[o + 1]-1. */
struct table {
    int64_t *begin, *index;
    float *weight;
};

struct job {
    const struct pst_resample *r;
    struct table table[PST_SPACE];
    float *rows; /* one line of x for each thread */
    pst_axpy_fn axpy;
    bool transposed;
};

static int64_t count_taps(const struct pst_axis *a)
{
    int64_t n = 0;

    for (int64_t o = 0; o < a->out; o++) {
        struct pst_taps t;

        pst_axis_taps(a, o, &t);
        n += t.count;
    }
    return n;
}

static size_t table_bytes(const struct pst_axis *a)
{
    const size_t n = (size_t)count_taps(a);

    return (n + (size_t)a->out + 1) * sizeof(int64_t) +
           (n * sizeof(float) + 7) / 8 * 8;
}

size_t pst_resample_scratch(const struct pst_resample *r, unsigned threads)
{
    size_t tables = (size_t)r->axis[2].in * sizeof(float) * threads;

    for (unsigned d = 0; d < PST_SPACE; d++)
        tables += table_bytes(&r->axis[d]);
    return PST_MAX(tables, (size_t)volume(r, true) * sizeof(double));
}

static char *fill_table(const struct pst_axis *a, char *at, struct table *ret)
{
    const int64_t n = count_taps(a);
    int64_t k = 0;

    ret->begin = (int64_t *)at;
    ret->index = ret->begin + a->out + 1;
    ret->weight = (float *)(ret->index + n);
    for (int64_t o = 0; o < a->out; o++) {
        struct pst_taps t;

        pst_axis_taps(a, o, &t);
        ret->begin[o] = k;
        for (int64_t i = 0; i < t.count; i++, k++) {
            ret->index[k] = clamp_index(t.first + i, a->in);
            ret->weight[k] = (float)pst_taps_weight(&t, i);
        }
    }
    ret->begin[a->out] = k;
    return at + table_bytes(a);
}

/* Computes line (o0, o1) of y: sums lines of x with weights in `row`, and then
 * resamples `row` along the line. Transposed (gradient): adds that line of y to
 * the lines of x on which it depends. */
static void compute_line(const struct job *j, int64_t plane, int64_t o0,
                         int64_t o1, float *row)
{
    const struct pst_resample *r = j->r;
    const struct table *t = j->table;
    const int64_t width = r->axis[2].in, out = r->axis[2].out;
    float *x = (float *)r->x->data + plane * volume(r, true);
    float *y = (float *)r->y->data + plane * volume(r, false) +
               (o0 * r->axis[1].out + o1) * out;

    memset(row, 0, (size_t)width * sizeof(float));
    if (j->transposed)
        for (int64_t o = 0; o < out; o++)
            for (int64_t k = t[2].begin[o]; k < t[2].begin[o + 1]; k++)
                row[t[2].index[k]] += t[2].weight[k] * y[o];
    for (int64_t a = t[0].begin[o0]; a < t[0].begin[o0 + 1]; a++)
        for (int64_t b = t[1].begin[o1]; b < t[1].begin[o1 + 1]; b++) {
            const float weight = t[0].weight[a] * t[1].weight[b];
            float *of_x =
                x + (t[0].index[a] * r->axis[1].in + t[1].index[b]) * width;

            if (j->transposed)
                j->axpy(width, weight, row, of_x);
            else
                j->axpy(width, weight, of_x, row);
        }
    for (int64_t o = 0; !j->transposed && o < out; o++) {
        float sum = 0.0f;

        for (int64_t k = t[2].begin[o]; k < t[2].begin[o + 1]; k++)
            sum += t[2].weight[k] * row[t[2].index[k]];
        y[o] = r->accumulate ? y[o] + sum : sum;
    }
}

static void planes_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_resample *r = j->r;
    const int64_t n_in = volume(r, true);
    int64_t p, end;

    pst_pool_share(r->planes, 1, part, parts, &p, &end);
    for (; p < end; p++) {
        if (j->transposed && !r->accumulate)
            memset((float *)r->x->data + p * n_in, 0,
                   (size_t)n_in * sizeof(float));
        for (int64_t o0 = 0; o0 < r->axis[0].out; o0++)
            for (int64_t o1 = 0; o1 < r->axis[1].out; o1++)
                compute_line(j, p, o0, o1, j->rows + part * r->axis[2].in);
    }
}

/* Smaller tensors run on the calling thread. */
#define SERIAL 32768

void pst_resample_run(const struct pst_resample *r, bool transposed,
                      struct pst_pool *pool, void *scratch, pst_axpy_fn axpy)
{
    struct job j = {.r = r, .axpy = axpy, .transposed = transposed};
    char *at = scratch;

    for (unsigned d = 0; d < PST_SPACE; d++)
        at = fill_table(&r->axis[d], at, &j.table[d]);
    j.rows = (float *)at;
    pst_pool_run(
        pst_pool_if(pool,
                    r->planes * (volume(r, true) + volume(r, false)) >= SERIAL),
        planes_part, &j);
}
