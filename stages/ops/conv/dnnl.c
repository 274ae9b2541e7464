// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/dnnl.h"

#include "stages/ops/matmul/gemm.h"

#if PST_HAVE_DNNL

#include "stages/base/alloc.h"

#include <dnnl.h>
#include <pthread.h>
#include <string.h>

enum { X, Y, W, N_OPERANDS };
/* Alignment in bytes of the areas of the scratch. */
#define ALIGNMENT 64

/* A compiled oneDNN convolution, cached under its description c. It may compute
 * only a part of the batch or of the channels of a convolution. */
struct form {
    struct form *next;
    struct pst_conv c;
    /* sizes of the whole convolution, of which c may be a part: channels of x
     * and of y, and inputs of each weight */
    int64_t ci, co, per;
    enum pst_conv_fill fill;
    bool biased;
    dnnl_primitive_t run;
    /* Layouts of each tensor: as stored (plain) and as oneDNN prefers (wanted).
     * If they differ, `move` converts an operand before the convolution or the
     * result after it; the conversion of the result may add to the stored
     * values. */
    dnnl_memory_desc_t plain[N_OPERANDS], wanted[N_OPERANDS], bias, scratch;
    dnnl_primitive_t move[N_OPERANDS];
    size_t scratch_bytes;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct form *forms;
static dnnl_engine_t engine;

static bool is_ok(dnnl_status_t status)
{
    return status == dnnl_success;
}

static bool same_shape(const struct pst_conv *a, const struct pst_conv *b)
{
    const size_t n = sizeof(a->in);

    return a->dims == b->dims && a->n == b->n && a->groups == b->groups &&
           a->ci == b->ci && a->co == b->co && a->accumulate == b->accumulate &&
           memcmp(a->in, b->in, n) == 0 && memcmp(a->k, b->k, n) == 0 &&
           memcmp(a->pad, b->pad, n) == 0 && memcmp(a->out, b->out, n) == 0 &&
           memcmp(a->stride, b->stride, n) == 0 &&
           memcmp(a->dil, b->dil, n) == 0;
}

/* --- compiling ---------------------------------------------------------- */

/* Writes the sizes of an operand and returns their number. */
static int sizes_of(const struct pst_conv *c, int operand, dnnl_dims_t ret)
{
    const int64_t *space = operand == X ? c->in : operand == Y ? c->out : c->k;
    int n = 0;

    if (operand == W && c->groups > 1)
        ret[n++] = c->groups;
    ret[n++] = operand == W ? c->co / c->groups : c->n;
    ret[n++] = operand == X ? c->ci : operand == Y ? c->co : c->ci / c->groups;
    for (unsigned d = PST_CONV_DIMS - c->dims; d < PST_CONV_DIMS; d++)
        ret[n++] = space[d];
    return n;
}

/* Writes the strides of an operand: row-major, except that in a part of the
 * channels consecutive images are as far apart as in the whole tensor. */
static void strides_of(const struct form *f, int operand, int n,
                       const dnnl_dims_t size, dnnl_dims_t ret)
{
    const struct pst_conv *c = &f->c;

    ret[n - 1] = 1;
    for (int d = n - 1; d > 0; d--)
        ret[d - 1] = ret[d] * size[d];
    if (operand == X)
        ret[0] = f->ci * pst_conv_volume(c->in);
    else if (operand == Y)
        ret[0] = f->co * pst_conv_volume(c->out);
    else if (c->groups == 1)
        ret[0] = f->per * pst_conv_volume(c->k);
}

static bool describe(struct form *f)
{
    const dnnl_dims_t channels = {f->c.co};
    bool ret = is_ok(
        dnnl_memory_desc_init_by_tag(&f->bias, 1, channels, dnnl_f32, dnnl_a));

    for (int i = 0; i < N_OPERANDS && ret; i++) {
        dnnl_dims_t size, stride;
        const int n = sizes_of(&f->c, i, size);

        strides_of(f, i, n, size, stride);
        ret = is_ok(dnnl_memory_desc_init_by_strides(&f->plain[i], n, size,
                                                     dnnl_f32, stride)) &&
              is_ok(dnnl_memory_desc_init_by_tag(
                  &f->wanted[i], n, size, dnnl_f32, dnnl_format_tag_any));
    }
    return ret;
}

static bool describe_run(const struct form *f, dnnl_convolution_desc_t *ret)
{
    const struct pst_conv *c = &f->c;
    const unsigned first = PST_CONV_DIMS - c->dims;
    const dnnl_memory_desc_t *m = f->wanted;
    dnnl_dims_t stride, dil, pad;

    for (unsigned d = 0; d < c->dims; d++) {
        stride[d] = c->stride[first + d];
        dil[d] = c->dil[first + d] - 1;
        pad[d] = c->pad[first + d];
    }
    if (f->fill == PST_CONV_Y)
        return is_ok(dnnl_dilated_convolution_forward_desc_init(
            ret, dnnl_forward_training, dnnl_convolution_direct, &m[X], &m[W],
            f->biased ? &f->bias : NULL, &m[Y], stride, dil, pad, pad));
    if (f->fill == PST_CONV_X)
        return is_ok(dnnl_dilated_convolution_backward_data_desc_init(
            ret, dnnl_convolution_direct, &m[X], &m[W], &m[Y], stride, dil, pad,
            pad));
    return is_ok(dnnl_dilated_convolution_backward_weights_desc_init(
        ret, dnnl_convolution_direct, &m[X], &m[W], NULL, &m[Y], stride, dil,
        pad, pad));
}

static int result_of(enum pst_conv_fill fill)
{
    return fill == PST_CONV_Y ? Y : fill == PST_CONV_X ? X : W;
}

/* Returns the query for the layout that oneDNN prefers for an operand. */
static dnnl_query_t query_of(enum pst_conv_fill fill, int operand)
{
    if (operand == result_of(fill))
        return operand == Y   ? dnnl_query_dst_md
               : operand == X ? dnnl_query_diff_src_md
                              : dnnl_query_diff_weights_md;
    if (operand == Y)
        return dnnl_query_diff_dst_md;
    return operand == X ? dnnl_query_src_md : dnnl_query_weights_md;
}

/* Compiles the conversion between the two layouts of operand i if they differ;
 * false on failure. */
static bool make_move(struct form *f, int i)
{
    const bool result = i == result_of(f->fill);
    const dnnl_memory_desc_t *from = result ? &f->wanted[i] : &f->plain[i];
    const dnnl_memory_desc_t *to = result ? &f->plain[i] : &f->wanted[i];
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t desc;
    dnnl_post_ops_t sum;
    bool ret;

    if (!(result && f->c.accumulate)) {
        if (dnnl_memory_desc_equal(from, to))
            return true;
    } else {
        if (!is_ok(dnnl_primitive_attr_create(&attr)))
            return false;
        if (!is_ok(dnnl_post_ops_create(&sum)))
            return false;
        dnnl_post_ops_append_sum(sum, 1.0f);
        dnnl_primitive_attr_set_post_ops(attr, sum);
        dnnl_post_ops_destroy(sum);
    }
    ret = is_ok(dnnl_reorder_primitive_desc_create(&desc, from, engine, to,
                                                   engine, attr));
    if (ret) {
        ret = is_ok(dnnl_primitive_create(&f->move[i], desc));
        dnnl_primitive_desc_destroy(desc);
    }
    if (attr != NULL)
        dnnl_primitive_attr_destroy(attr);
    return ret;
}

static size_t round_up(size_t n)
{
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* Describes the forward convolution, which oneDNN needs to describe a gradient.
 */
static bool forward_hint(const struct form *f, dnnl_primitive_desc_t *ret)
{
    struct form forward = *f;
    dnnl_convolution_desc_t op;

    forward.fill = PST_CONV_Y;
    forward.biased = false;
    return describe_run(&forward, &op) &&
           is_ok(dnnl_primitive_desc_create(ret, &op, NULL, engine, NULL));
}

static bool compile_form(struct form *f)
{
    dnnl_primitive_attr_t attr;
    dnnl_primitive_desc_t desc = NULL, hint = NULL;
    dnnl_convolution_desc_t op;
    bool ret;

    if (!describe(f) || !describe_run(f, &op) ||
        (f->fill != PST_CONV_Y && !forward_hint(f, &hint)))
        return false;
    ret = is_ok(dnnl_primitive_attr_create(&attr));
    if (ret) {
        dnnl_primitive_attr_set_scratchpad_mode(attr,
                                                dnnl_scratchpad_mode_user);
        ret = is_ok(dnnl_primitive_desc_create(&desc, &op, attr, engine, hint));
        dnnl_primitive_attr_destroy(attr);
    }
    if (hint != NULL)
        dnnl_primitive_desc_destroy(hint);
    if (!ret)
        return false;
    ret = is_ok(dnnl_primitive_create(&f->run, desc));
    f->scratch =
        *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
    f->scratch_bytes =
        ALIGNMENT + round_up(dnnl_memory_desc_get_size(&f->scratch));
    for (int i = 0; i < N_OPERANDS && ret; i++) {
        f->wanted[i] =
            *dnnl_primitive_desc_query_md(desc, query_of(f->fill, i), 0);
        ret = make_move(f, i);
        if (f->move[i] != NULL)
            f->scratch_bytes +=
                round_up(dnnl_memory_desc_get_size(&f->wanted[i]));
    }
    dnnl_primitive_desc_destroy(desc);
    return ret;
}

/* Returns convolution c, a part of `all`, from the cache or newly compiled.
 * Returns NULL if oneDNN refuses it or memory runs out. Entries stay until the
 * process ends. */
static const struct form *find_form(const struct pst_conv *c,
                                    const struct pst_conv *all,
                                    enum pst_conv_fill fill)
{
    const bool biased = c->bias != NULL;
    const int64_t per = all->ci / all->groups;
    struct form *f;

    pst_gemm_prepare_dnnl();
    pthread_mutex_lock(&lock);
    for (f = forms; f != NULL; f = f->next)
        if (f->fill == fill && f->biased == biased && f->ci == all->ci &&
            f->co == all->co && f->per == per && same_shape(&f->c, c))
            break;
    if (engine == NULL && !is_ok(dnnl_engine_create(&engine, dnnl_cpu, 0)))
        engine = NULL;
    if (f == NULL && engine != NULL &&
        (f = pst_calloc(PST_TAG_EXEC, 1, sizeof(*f))) != NULL) {
        f->c = *c;
        f->ci = all->ci;
        f->co = all->co;
        f->per = per;
        f->fill = fill;
        f->biased = biased;
        f->next = forms;
        if (!compile_form(f))
            f->run = NULL;
        forms = f; /* a refusal is cached too, so that it is not tried again */
    }
    pthread_mutex_unlock(&lock);
    return f == NULL || f->run == NULL ? NULL : f;
}

/* --- running ------------------------------------------------------------ */

/* The arguments of one oneDNN primitive: up to five tensors. */
struct set {
    dnnl_exec_arg_t at[5];
    int n;
};

static void add_tensor(struct set *s, int arg, const dnnl_memory_desc_t *md,
                       void *data)
{
    if (is_ok(dnnl_memory_create(&s->at[s->n].memory, md, engine, data)))
        s->at[s->n++].arg = arg;
}

static void run_primitive(dnnl_primitive_t p, dnnl_stream_t stream,
                          struct set *s)
{
    dnnl_primitive_execute(p, stream, s->n, s->at);
    for (int i = 0; i < s->n; i++)
        dnnl_memory_destroy(s->at[i].memory);
}

static void convert_layout(const struct form *f, int i, dnnl_stream_t stream,
                           void *plain, void *wanted)
{
    const bool result = i == result_of(f->fill);
    struct set s = {.n = 0};

    add_tensor(&s, DNNL_ARG_FROM, result ? &f->wanted[i] : &f->plain[i],
               result ? wanted : plain);
    add_tensor(&s, DNNL_ARG_TO, result ? &f->plain[i] : &f->wanted[i],
               result ? plain : wanted);
    run_primitive(f->move[i], stream, &s);
}

static void run_form(const struct form *f, void *const plain[N_OPERANDS],
                     const float *bias, char *scratch)
{
    static const int args[][N_OPERANDS] = {
        [PST_CONV_Y] = {DNNL_ARG_SRC, DNNL_ARG_DST, DNNL_ARG_WEIGHTS},
        [PST_CONV_X] = {DNNL_ARG_DIFF_SRC, DNNL_ARG_DIFF_DST, DNNL_ARG_WEIGHTS},
        [PST_CONV_W] = {DNNL_ARG_SRC, DNNL_ARG_DIFF_DST,
                        DNNL_ARG_DIFF_WEIGHTS}};
    const int result = result_of(f->fill);
    void *at[N_OPERANDS];
    struct set s = {.n = 0};
    dnnl_stream_t stream;

    if (!is_ok(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags)))
        return;
    add_tensor(&s, DNNL_ARG_SCRATCHPAD, &f->scratch, scratch);
    scratch += round_up(dnnl_memory_desc_get_size(&f->scratch));
    for (int i = 0; i < N_OPERANDS; i++) {
        at[i] = plain[i];
        if (f->move[i] != NULL) {
            at[i] = scratch;
            scratch += round_up(dnnl_memory_desc_get_size(&f->wanted[i]));
            if (i != result)
                convert_layout(f, i, stream, plain[i], at[i]);
        }
        add_tensor(&s, args[f->fill][i], &f->wanted[i], at[i]);
    }
    if (f->biased)
        add_tensor(&s, DNNL_ARG_BIAS, &f->bias, (void *)bias);
    run_primitive(f->run, stream, &s);
    if (f->move[result] != NULL)
        convert_layout(f, result, stream, plain[result], at[result]);
    dnnl_stream_wait(stream);
    dnnl_stream_destroy(stream);
}

/* --- parts -------------------------------------------------------------- */

/* The division of a convolution into `parts` for threads: by images (BATCH) or,
 * if there are too few images or the result is a sum over them, by groups or by
 * channels of the result. units: number of images, groups or channels; grain:
 * each part begins at a multiple of it. */
enum way { BATCH, GROUPS, CHANNELS };
struct split {
    enum way way;
    unsigned parts;
    int64_t units, grain;
};
#define GRAIN 16 /* channels in a vector of oneDNN */

static struct split split_of(const struct pst_conv *c, enum pst_conv_fill fill,
                             unsigned threads)
{
    struct split s = {.way = BATCH, .units = c->n, .grain = 1};

    if (threads > 1 && (fill == PST_CONV_W || c->n < (int64_t)threads)) {
        s.way = c->groups > 1 ? GROUPS : CHANNELS;
        s.units = c->groups > 1        ? c->groups
                  : fill == PST_CONV_X ? c->ci
                                       : c->co;
        s.grain = c->groups > 1 ? 1 : GRAIN;
    }
    s.parts = (unsigned)PST_MIN(
        (s.units + s.grain - 1) / s.grain,
        fill == PST_CONV_W && s.way == BATCH ? 1 : (int64_t)threads);
    return s;
}

/* Returns units [a, b) of c as a convolution of its own. */
static struct pst_conv part_of(const struct pst_conv *c,
                               enum pst_conv_fill fill, const struct split *s,
                               int64_t a, int64_t b)
{
    struct pst_conv ret = *c;

    ret.x = ret.y = ret.w = NULL;
    if (s->way == BATCH) {
        ret.n = b - a;
    } else if (s->way == GROUPS) {
        ret.groups = b - a;
        ret.ci = c->ci / c->groups * (b - a);
        ret.co = c->co / c->groups * (b - a);
    } else if (fill == PST_CONV_X) {
        ret.ci = b - a;
    } else {
        ret.co = b - a;
    }
    return ret;
}

/* Returns the bytes of scratch that a part needs, whether it stores the result
 * or adds to it, since only a run decides between the two. Compiles all
 * convolutions that a run with s->parts parts uses. */
static size_t scratch_of(const struct pst_conv *c, enum pst_conv_fill fill,
                         const struct split *s)
{
    size_t scratch_bytes = 0;

    for (unsigned i = 0; i < 2 * s->parts; i++) {
        struct pst_conv part;
        const struct form *f;
        int64_t a, b;

        pst_pool_share(s->units, s->grain, i / 2, s->parts, &a, &b);
        if (a == b)
            continue;
        part = part_of(c, fill, s, a, b);
        part.accumulate = i % 2 != 0;
        f = find_form(&part, c, fill);
        if (f == NULL)
            return 0;
        scratch_bytes = PST_MAX(scratch_bytes, f->scratch_bytes);
    }
    return scratch_bytes;
}

/* Chooses the split for `threads`, or one part if oneDNN refuses a part, and
 * returns the bytes of scratch of each part. */
static size_t choose_split(const struct pst_conv *c, enum pst_conv_fill fill,
                           unsigned threads, struct split *ret)
{
    size_t scratch_bytes;

    *ret = split_of(c, fill, threads);
    scratch_bytes = scratch_of(c, fill, ret);
    if (scratch_bytes > 0 || threads == 1)
        return scratch_bytes;
    *ret = split_of(c, fill, 1);
    return scratch_of(c, fill, ret);
}

bool pst_conv_dnnl_preferred(const struct pst_conv *c, enum pst_conv_fill fill)
{
    const int64_t per = c->ci / c->groups;
    const double macs = (double)c->n * (double)pst_conv_volume(c->out) *
                        (double)c->co * (double)per *
                        (double)pst_conv_volume(c->k);
    struct split one;

    if (c->n < 1 || macs < 4e6 || (c->bias != NULL && fill != PST_CONV_Y) ||
        per < 8 || c->co / c->groups < 8 || pst_conv_volume(c->k) == 1)
        return false;
    for (unsigned d = 0; d < PST_CONV_DIMS; d++)
        if (pst_conv_size(c->in[d], c->k[d], c->stride[d], c->pad[d],
                          c->dil[d]) != c->out[d])
            return false;
    return choose_split(c, fill, 1, &one) > 0;
}

size_t pst_conv_dnnl_scratch(const struct pst_conv *c, enum pst_conv_fill fill,
                             unsigned threads)
{
    struct split s;
    const size_t scratch_bytes = choose_split(c, fill, threads, &s);

    return scratch_bytes * s.parts;
}

struct job {
    const struct pst_conv *c;
    enum pst_conv_fill fill;
    struct split split;
    char *scratch;
    size_t scratch_bytes;
};

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_conv *c = j->c;
    const struct split *s = &j->split;
    const int64_t window = pst_conv_volume(c->k), per = c->ci / c->groups;
    int64_t a, b, image = 0, of_x = 0, of_y = 0, of_w = 0;
    struct pst_conv shape;
    const struct form *f;

    (void)parts;
    if (part >= s->parts)
        return;
    pst_pool_share(s->units, s->grain, part, s->parts, &a, &b);
    shape = part_of(c, j->fill, s, a, b);
    f = a < b ? find_form(&shape, c, j->fill) : NULL;
    if (f == NULL)
        return;
    if (s->way == BATCH) {
        image = a;
    } else if (s->way == GROUPS) {
        of_x = a * per;
        of_y = a * (c->co / c->groups);
        of_w = of_y * per * window;
    } else if (j->fill == PST_CONV_X) {
        of_x = a;
        of_w = a * window;
    } else {
        of_y = a;
        of_w = a * per * window;
    }
    void *const plain[N_OPERANDS] = {
        (float *)c->x->data + (image * c->ci + of_x) * pst_conv_volume(c->in),
        (float *)c->y->data + (image * c->co + of_y) * pst_conv_volume(c->out),
        (float *)c->w->data + of_w};

    run_form(f, plain,
             c->bias == NULL ? NULL : (const float *)c->bias->data + of_y,
             j->scratch + part * j->scratch_bytes);
}

void pst_conv_dnnl_run(const struct pst_conv *c, enum pst_conv_fill fill,
                       struct pst_pool *pool, void *scratch)
{
    struct job job = {.c = c, .fill = fill, .scratch = scratch};

    job.scratch_bytes =
        choose_split(c, fill, pst_pool_threads(pool), &job.split);
    pst_pool_run(pst_pool_if(pool, job.split.parts != 1), run_part, &job);
}

#else

bool pst_conv_dnnl_preferred(const struct pst_conv *c, enum pst_conv_fill fill)
{
    (void)c, (void)fill;
    return false;
}

size_t pst_conv_dnnl_scratch(const struct pst_conv *c, enum pst_conv_fill fill,
                             unsigned threads)
{
    (void)c, (void)fill, (void)threads;
    return 0;
}

void pst_conv_dnnl_run(const struct pst_conv *c, enum pst_conv_fill fill,
                       struct pst_pool *pool, void *scratch)
{
    (void)c, (void)fill, (void)pool, (void)scratch;
}

#endif
