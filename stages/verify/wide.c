// SPDX-License-Identifier: Apache-2.0
#include "stages/verify/wide.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/ops/core/call.h"
#include "stages/passes/autodiff.h"
#include "stages/verify/signs.h"
#include "stages/verify/widen.h"

/* Accepted error of the derivative along a direction, relative. */
#define TOLERANCE 1e-5
/* ROUNDING: relative rounding error of a loss, which limits how small a step
 * may be. The error is at least FACTOR times the change of the loss when
 * parameters move by one ulp. */
#define ROUNDING 4e-15
#define FACTOR   4
#define JITTERS  1
/* A parameter with at most this many elements is moved by normal random
 * numbers; a larger one by random signs. */
#define NORMAL 4096
/* The loss jumps if 1/10000 of a step changes it by more than this share of the
 * change by the whole step. A smooth loss changes by about 1/10000. */
#define JUMP 0.01
/* Relative distance by which parameters are moved away from a kink. */
#define BESIDE 1e-2

struct wide_param {
    double *data; /* NULL: not a floating-point tensor of the graph */
    double *start, *grad;
    int64_t numel;
    double rms; /* root mean square; steps are proportional to it */
    bool wanted;
};

struct pst_wide {
    struct pst_arena arena;
    struct pst_plan *plan;
    struct pst_wide_options options;
    struct pst_pool *pool;
    struct pst_graph *forward, *backward;
    struct pst_eval *eval; /* runs the forward graph */
    struct wide_param *params;
    void **data; /* by value id of the forward graph: inputs, parameters ... */
    size_t n_data;
    double seconds;  /* duration of one forward pass */
    double loss;     /* loss at the original parameters */
    double rounding; /* absolute rounding error of the loss */
};

static enum pst_status no_memory(struct pst_diag *diag, size_t bytes)
{
    return pst_diag_nomem(diag, bytes);
}

static struct pst_value *loss_of(const struct pst_wide *w,
                                 const struct pst_graph *graph)
{
    const struct pst_plan_output *o = &w->plan->outputs.at[w->plan->loss];

    return graph->outputs.at[o->output].arg.value;
}

/* --- data ---------------------------------------------------------------- */

/* Returns the data as read (in the plan's dtype) or converted to f64, allocated
 * in the arena of w. */
static void *widen_data(struct pst_wide *w, const struct pst_meta *meta,
                        void *raw)
{
    struct pst_meta from = *meta, to;
    double *data;

    if (pst_dtype_kind(meta->dtype) != PST_KIND_FLOAT || meta->dtype == PST_F64)
        return raw;
    pst_meta_set_contiguous(&from);
    to = from;
    to.dtype = PST_F64;
    data = pst_arena_alloc(&w->arena, pst_meta_bytes(&to) + 1);
    if (data != NULL)
        pst_copy_strided(&from, raw, &to, data);
    return data;
}

static enum pst_status read_input(struct pst_wide *w,
                                  const struct pst_value *value, unsigned index,
                                  pst_fill_fn fill, void *ctx,
                                  struct pst_diag *diag)
{
    const struct pst_meta *meta = &w->plan->inputs.at[index].meta;
    void *raw = pst_arena_alloc(&w->arena, pst_meta_bytes(meta) + 1);
    enum pst_status status;

    if (raw == NULL)
        return no_memory(diag, pst_meta_bytes(meta));
    status = fill(ctx, 0, 0, index, raw, diag);
    if (status != PST_OK)
        return status;
    w->data[value->id] = widen_data(w, meta, raw);
    return w->data[value->id] == NULL ? no_memory(diag, 0) : PST_OK;
}

/* Measures the root mean square of the elements, to which steps are
 * proportional. If all elements are zero (a new bias), sets a typical value. */
static void measure_param(struct wide_param *p)
{
    double sum = 0;

    for (int64_t i = 0; i < p->numel; i++)
        sum += p->data[i] * p->data[i];
    p->rms = p->numel > 0 ? sqrt(sum / (double)p->numel) : 0;
    if (p->rms == 0)
        p->rms = 0.1;
}

/* Moves a parameter away from a kink, about as far as a few training steps
 * would. */
static void move_from_kink(const struct pst_wide *w, const struct wide_param *p,
                           unsigned index)
{
    const struct pst_rng_key key = {w->options.seed + 4, 0, 0, index};

    for (int64_t i = 0; i < p->numel; i++)
        p->data[i] += BESIDE * p->rms * pst_rng_normal(&key, (uint64_t)i);
}

static enum pst_status read_param(struct pst_wide *w,
                                  const struct pst_value *value,
                                  struct pst_diag *diag)
{
    int index = pst_plan_find_param(w->plan, value->fqn);
    const struct pst_plan_param *param;
    struct wide_param *p;
    enum pst_status status;
    void *raw;

    if (index < 0)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "\"%s\" is not a parameter of the plan",
                            value->fqn);
    param = &w->plan->params.at[index];
    p = &w->params[index];
    raw = pst_arena_alloc(&w->arena, pst_meta_bytes(&param->meta) + 1);
    if (raw == NULL)
        return no_memory(diag, pst_meta_bytes(&param->meta));
    status = pst_plan_read_param(w->plan, (unsigned)index, raw, diag);
    if (status != PST_OK)
        return status;
    w->data[value->id] = widen_data(w, &param->meta, raw);
    if (w->data[value->id] == NULL)
        return no_memory(diag, 0);
    if (value->kind != PST_VALUE_PARAM || value->meta.dtype != PST_F64)
        return PST_OK;
    p->numel = pst_meta_numel(&param->meta);
    p->data = w->data[value->id];
    p->wanted = param->requires_grad;
    measure_param(p);
    if (w->options.off_kinks && p->wanted)
        move_from_kink(w, p, (unsigned)index);
    return PST_OK;
}

static enum pst_status read_data(struct pst_wide *w, pst_fill_fn fill,
                                 void *ctx, struct pst_diag *diag)
{
    const struct pst_stage *stage = &w->plan->stages.at[0];
    const struct pst_graph *graph = w->forward;
    enum pst_status status = PST_OK;

    w->data = pst_arena_calloc(&w->arena, graph->values.n + 1, sizeof(void *));
    if (w->data == NULL)
        return no_memory(diag, graph->values.n * sizeof(void *));
    w->n_data = graph->values.n;
    for (size_t i = 0; i < graph->inputs.n && status == PST_OK; i++)
        status = read_input(w, graph->inputs.at[i], stage->inputs[i].index,
                            fill, ctx, diag);
    for (size_t i = 0; i < graph->values.n && status == PST_OK; i++)
        if (graph->values.at[i]->fqn != NULL)
            status = read_param(w, graph->values.at[i], diag);
    return status;
}

/* --- running ------------------------------------------------------------- */

/* Sets inputs and parameters of a graph; both graphs use the same ids for
 * them. */
static enum pst_status set_all(const struct pst_wide *w, struct pst_eval *eval,
                               const struct pst_graph *graph,
                               struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (size_t i = 0; i < w->n_data && status == PST_OK; i++)
        if (w->data[i] != NULL)
            status = pst_eval_set(eval, graph->values.at[i], w->data[i], diag);
    return status;
}

static enum pst_status run_eval(const struct pst_wide *w, struct pst_eval *eval,
                                struct pst_diag *diag)
{
    const struct pst_rng_key key = {.seed = w->options.seed};

    pst_eval_set_pool(eval, w->pool);
    return pst_eval_run(eval, false, &key, diag);
}

static enum pst_status loss_at(struct pst_wide *w, double *ret,
                               struct pst_diag *diag)
{
    const struct pst_value *loss = loss_of(w, w->forward);
    enum pst_status status = run_eval(w, w->eval, diag);

    if (status == PST_OK)
        *ret = pst_load_f64(loss->meta.dtype, pst_eval_get(w->eval, loss), 0);
    return status;
}

static enum pst_status add_backward(struct pst_wide *w, struct pst_value *seed,
                                    struct pst_autodiff_result *ret,
                                    struct pst_diag *diag)
{
    struct pst_seed given = {loss_of(w, w->backward), seed};

    return pst_autodiff(w->backward, &given, 1, NULL, 0, ret, diag);
}

/* Allocates the gradients and sets them as accumulators of the backward
 * graph. */
static enum pst_status set_grads(struct pst_wide *w, struct pst_eval *eval,
                                 const struct pst_autodiff_result *result,
                                 struct pst_diag *diag)
{
    for (size_t i = 0; i < w->backward->params.n; i++) {
        struct pst_value *grad = result->grads[i];
        struct wide_param *p;
        enum pst_status status;
        void *data;

        if (grad == NULL)
            continue;
        p = &w->params[pst_plan_find_param(w->plan, grad->fqn)];
        data = pst_arena_alloc(&w->arena, pst_meta_bytes(&grad->meta) + 1);
        if (data == NULL)
            return no_memory(diag, pst_meta_bytes(&grad->meta));
        if (grad->meta.dtype == PST_F64)
            p->grad = data;
        status = pst_eval_set(eval, grad, data, diag);
        if (status != PST_OK)
            return status;
    }
    return PST_OK;
}

static enum pst_status run_backward(struct pst_wide *w, struct pst_diag *diag)
{
    struct pst_autodiff_result result = {0};
    struct pst_eval *eval = NULL;
    struct pst_value *seed;
    enum pst_status status = pst_graph_copy(w->forward, &w->backward, diag);
    double one = 1;

    if (status != PST_OK)
        return status;
    seed = pst_graph_add_value(w->backward, PST_VALUE_SEED, "seed", NULL,
                               &loss_of(w, w->backward)->meta);
    if (seed == NULL)
        return no_memory(diag, sizeof(*seed));
    pst_store_f64(seed->meta.dtype, &one, 0, 1.0);
    status = add_backward(w, seed, &result, diag);
    if (status == PST_OK)
        status = pst_eval_new(w->backward, &eval, diag);
    if (status == PST_OK)
        status = set_all(w, eval, w->backward, diag);
    if (status == PST_OK)
        status = pst_eval_set(eval, seed, &one, diag);
    if (status == PST_OK)
        status = set_grads(w, eval, &result, diag);
    if (status == PST_OK)
        status = run_eval(w, eval, diag);
    pst_eval_free(eval);
    return status;
}

/*
 * Makes the forward graph anew, with the results of regions without gradient
 * fixed: numerical derivatives must not include these regions.
 */
static enum pst_status freeze_all(struct pst_wide *w, struct pst_diag *diag)
{
    const struct pst_graph *plan_graph = w->plan->stages.at[0].graph;
    struct pst_graph *old = w->forward;
    struct pst_eval *old_eval = w->eval;
    struct pst_frozen frozen = {
        .from = old, .eval = old_eval, .arena = &w->arena};
    enum pst_status status;
    bool any = false;

    for (size_t i = 0; i < plan_graph->nodes.n; i++)
        any |= pst_widen_freezes(plan_graph->nodes.at[i]);
    if (!any)
        return PST_OK;
    status = run_eval(w, old_eval, diag);
    if (status != PST_OK)
        return status;
    w->forward = NULL;
    w->eval = NULL;
    status = pst_widen(plan_graph, &frozen, &w->forward, diag);
    if (status == PST_OK)
        status = pst_eval_new(w->forward, &w->eval, diag);
    if (status == PST_OK)
        status = set_all(w, w->eval, w->forward, diag);
    for (size_t i = 0; i < frozen.values.n && status == PST_OK; i++)
        status = pst_eval_set(w->eval, frozen.values.at[i].value,
                              frozen.values.at[i].data, diag);
    pst_vec_fini(&frozen.values);
    pst_eval_free(old_eval);
    pst_graph_free(old);
    return status;
}

/* Saves the original values of the chosen parameters, or of all (NULL). */
static enum pst_status save_start(struct pst_wide *w, const bool *chosen,
                                  struct pst_diag *diag)
{
    for (size_t i = 0; i < w->plan->params.n; i++) {
        struct wide_param *p = &w->params[i];
        size_t bytes = (size_t)p->numel * sizeof(double);

        if ((chosen != NULL && !chosen[i]) || !p->wanted || p->data == NULL ||
            p->start != NULL)
            continue;
        p->start = pst_arena_memdup(&w->arena, p->data, bytes + 1);
        if (p->start == NULL)
            return no_memory(diag, bytes);
    }
    return PST_OK;
}

/* Moves all parameters by one ulp up or down at random; try 0 restores them. */
static void move_params_by_ulp(struct pst_wide *w, unsigned try)
{
    for (size_t i = 0; i < w->plan->params.n; i++) {
        const struct wide_param *p = &w->params[i];
        const struct pst_rng_key key = {w->options.seed + 2, try, 0,
                                        (uint32_t)i};
        const uint64_t signs = pst_signs_of(&key);
        const double ulp = try == 0 ? 0 : DBL_EPSILON;

        for (int64_t e = 0; p->start != NULL && e < p->numel; e++)
            p->data[e] =
                p->start[e] * (1 + ulp * pst_sign_at(signs, (uint64_t)e));
    }
}

/* Measures the loss, its duration and its rounding error. */
static enum pst_status measure_loss(struct pst_wide *w, struct pst_diag *diag)
{
    const double begin = pst_now();
    enum pst_status status = loss_at(w, &w->loss, diag);

    w->seconds = pst_now() - begin;
    w->rounding = ROUNDING * fabs(w->loss);
    if (status == PST_OK)
        status = save_start(w, NULL, diag);
    for (unsigned try = 1; try <= JITTERS && status == PST_OK; try++) {
        double loss = 0;

        move_params_by_ulp(w, try);
        status = loss_at(w, &loss, diag);
        if (isfinite(loss))
            w->rounding = PST_MAX(w->rounding, FACTOR * fabs(loss - w->loss));
    }
    move_params_by_ulp(w, 0);
    return status;
}

enum pst_status pst_wide_new(struct pst_plan *plan,
                             const struct pst_wide_options *options,
                             pst_fill_fn fill, void *ctx, struct pst_wide **ret,
                             struct pst_diag *diag)
{
    struct pst_wide *w = pst_calloc(PST_TAG_EXEC, 1, sizeof(*w));
    enum pst_status status;

    if (w == NULL)
        return no_memory(diag, sizeof(*w));
    pst_arena_init(&w->arena, PST_TAG_EXEC);
    w->plan = plan;
    w->options = *options;
    w->params =
        pst_arena_calloc(&w->arena, plan->params.n + 1, sizeof(*w->params));
    status = w->params == NULL
                 ? no_memory(diag, plan->params.n * sizeof(*w->params))
                 : pst_pool_new(options->threads, &w->pool, diag);
    if (status == PST_OK)
        status = pst_widen(plan->stages.at[0].graph, NULL, &w->forward, diag);
    if (status == PST_OK)
        status = read_data(w, fill, ctx, diag);
    if (status == PST_OK)
        status = run_backward(w, diag);
    if (status == PST_OK)
        status = pst_eval_new(w->forward, &w->eval, diag);
    if (status == PST_OK)
        status = set_all(w, w->eval, w->forward, diag);
    if (status == PST_OK)
        status = freeze_all(w, diag);
    if (status == PST_OK)
        status = measure_loss(w, diag);
    if (status != PST_OK) {
        pst_wide_free(w);
        return status;
    }
    *ret = w;
    return PST_OK;
}

void pst_wide_free(struct pst_wide *wide)
{
    if (wide == NULL)
        return;
    pst_eval_free(wide->eval);
    pst_graph_free(wide->forward);
    pst_graph_free(wide->backward);
    pst_pool_free(wide->pool);
    pst_arena_fini(&wide->arena);
    pst_free(wide);
}

double pst_wide_loss(const struct pst_wide *wide)
{
    return wide->loss;
}

const double *pst_wide_grad(const struct pst_wide *wide, unsigned i)
{
    return wide->params[i].grad;
}

double pst_wide_seconds(const struct pst_wide *wide)
{
    return wide->seconds;
}

/* --- central differences ------------------------------------------------- */

struct walk {
    struct pst_wide *w;
    const bool *chosen;
    double step;
    struct pst_rng_key key; /* its `node` is set to the parameter's index */
    double *scale;          /* per parameter: step of an element */
    /* root mean square of the derivative over random directions */
    double typical;
};

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;

    for (int64_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    return sqrt(sum);
}

static bool takes_part(const struct walk *walk, size_t i)
{
    return walk->chosen[i] && walk->w->params[i].wanted &&
           walk->w->params[i].data != NULL;
}

/* Sets the scale of each parameter. If there are several, those with the
 * largest derivatives get smaller steps, so that they do not hide an error in
 * the others. */
static void balance_scales(struct walk *walk, double *ret_derivative)
{
    const size_t n = walk->w->plan->params.n;
    double most = 0, sum = 0;
    size_t many = 0;

    for (size_t i = 0; i < n; i++) {
        const struct wide_param *p = &walk->w->params[i];

        many += takes_part(walk, i);
        if (takes_part(walk, i) && p->grad != NULL)
            most = PST_MAX(most, norm_of(p->grad, p->numel) * p->rms);
    }
    for (size_t i = 0; i < n; i++) {
        const struct wide_param *p = &walk->w->params[i];
        double weight;

        walk->scale[i] = p->rms;
        if (!takes_part(walk, i) || p->grad == NULL)
            continue;
        weight = norm_of(p->grad, p->numel) * p->rms;
        if (many > 1 && weight > 1e-3 * most)
            walk->scale[i] *= 1e-3 * most / weight;
        weight = norm_of(p->grad, p->numel) * walk->scale[i];
        sum += weight * weight;
    }
    *ret_derivative = sqrt(sum);
}

/* Sets the parameters to start + sign * step * direction; sign 0 restores them.
 * Returns the derivative along that direction according to the gradients. */
static double move_params(const struct walk *walk, double sign)
{
    double derivative = 0;

    for (size_t i = 0; i < walk->w->plan->params.n; i++) {
        const struct wide_param *p = &walk->w->params[i];
        struct pst_rng_key key = walk->key;
        uint64_t signs;

        if (!takes_part(walk, i))
            continue;
        key.node = (uint32_t)i;
        signs = pst_signs_of(&key);
        for (int64_t e = 0; e < p->numel; e++) {
            double d = 0;

            if (sign != 0)
                d = walk->scale[i] * (p->numel > NORMAL
                                          ? pst_sign_at(signs, (uint64_t)e)
                                          : pst_rng_normal(&key, (uint64_t)e));
            p->data[e] = p->start[e] + sign * walk->step * d;
            derivative += p->grad != NULL ? p->grad[e] * d : 0;
        }
    }
    return derivative;
}

/* Measures the losses at start + step and start - step. */
static enum pst_status measure_sides(struct walk *walk, double *ret_up,
                                     double *ret_down, double *ret_promised,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    *ret_promised = move_params(walk, 1);
    status = loss_at(walk->w, ret_up, diag);
    if (status == PST_OK) {
        (void)move_params(walk, -1);
        status = loss_at(walk->w, ret_down, diag);
    }
    (void)move_params(walk, 0);
    return status;
}

/* Result of one central difference; predicted: the derivative that follows from
 * the gradients. */
struct quotient {
    double derivative, predicted;
    double kink; /* half the distance of the one-sided differences */
};

static enum pst_status measure_quotient(struct walk *walk, struct quotient *ret,
                                        struct pst_diag *diag)
{
    double up = 0, down = 0;
    enum pst_status status =
        measure_sides(walk, &up, &down, &ret->predicted, diag);

    ret->derivative = (up - down) / (2 * walk->step);
    ret->kink = fabs(up + down - 2 * walk->w->loss) / (2 * walk->step);
    return status;
}

static double error_of(const struct walk *walk, const struct quotient *q,
                       double kink)
{
    const double allowed =
        TOLERANCE * PST_MAX(walk->typical, fabs(q->predicted)) +
        walk->w->rounding / walk->step + kink + DBL_MIN;
    const double error = fabs(q->derivative - q->predicted) / allowed;

    return isfinite(error) ? error : INFINITY; /* a NaN proves nothing */
}

/* Measures the derivative along the direction. If it disagrees with the
 * gradients, a second measurement with a tenth of the step finds kinks: the
 * one-sided differences of a smooth curve converge with the step, at a kink
 * they do not. */
static enum pst_status measure_derivative(struct walk *walk,
                                          struct pst_wide_error *ret,
                                          struct pst_diag *diag)
{
    struct quotient far, near;
    double kink;
    enum pst_status status = measure_quotient(walk, &far, diag);

    if (status != PST_OK)
        return status;
    ret->plain = ret->kinked = error_of(walk, &far, 0);
    ret->apart = 0;
    if (ret->plain <= 1)
        return PST_OK;
    walk->step /= 10;
    status = measure_quotient(walk, &near, diag);
    if (status != PST_OK)
        return status;
    ret->plain = PST_MIN(ret->plain, error_of(walk, &near, 0));
    kink = PST_MAX(0.0, (10 * near.kink - far.kink) / 9);
    ret->kinked = PST_MIN(ret->plain, error_of(walk, &near, kink));
    ret->apart = walk->typical > 0 ? kink / walk->typical : INFINITY;
    return PST_OK;
}

static enum pst_status start_walk(struct walk *walk, struct pst_diag *diag)
{
    const size_t n = walk->w->plan->params.n;
    enum pst_status status = save_start(walk->w, walk->chosen, diag);

    if (status != PST_OK)
        return status;
    walk->scale = pst_calloc(PST_TAG_EXEC, n + 1, sizeof(*walk->scale));
    if (walk->scale == NULL)
        return no_memory(diag, n * sizeof(*walk->scale));
    balance_scales(walk, &walk->typical);
    return PST_OK;
}

enum pst_status pst_wide_check(struct pst_wide *wide, const bool *chosen,
                               unsigned attempt, struct pst_wide_error *ret,
                               struct pst_diag *diag)
{
    /* Step sizes, tried in this order. A kink (of relu) between the two points
     * makes a difference wrong; other directions and step sizes avoid it. Where
     * a loss is steep (norms of rows that are nearly zero) fixed steps are too
     * large: the last entries limit the step so that the loss changes by at
     * most `share`. */
    static const struct {
        double step, share;
    } tries[PST_WIDE_ATTEMPTS] = {{1e-6, INFINITY},
                                  {1e-7, INFINITY},
                                  {1e-5, INFINITY},
                                  {1e-6, 1e-6},
                                  {1e-6, 1e-7}};
    struct walk walk = {
        .w = wide,
        .chosen = chosen,
        .step = tries[attempt % PST_WIDE_ATTEMPTS].step,
        .key = {.seed = wide->options.seed + 1, .step = attempt},
    };
    const double share = tries[attempt % PST_WIDE_ATTEMPTS].share;
    enum pst_status status = start_walk(&walk, diag);

    if (status != PST_OK)
        return status;
    if (walk.typical * walk.step > share * fabs(wide->loss))
        walk.step = PST_MAX(share * fabs(wide->loss) / walk.typical, 1e-15);
    status = measure_derivative(&walk, ret, diag);
    pst_free(walk.scale);
    return status;
}

enum pst_status pst_wide_is_discontinuous(struct pst_wide *wide,
                                          const bool *chosen, bool *ret,
                                          struct pst_diag *diag)
{
    struct walk walk = {.w = wide,
                        .chosen = chosen,
                        .step = 1e-5,
                        .key = {.seed = wide->options.seed + 1}};
    double up = 0, down = 0, promised = 0, far;
    enum pst_status status = start_walk(&walk, diag);

    if (status != PST_OK)
        return status;
    status = measure_sides(&walk, &up, &down, &promised, diag);
    far = fabs(up - down);
    walk.step = 1e-9;
    if (status == PST_OK)
        status = measure_sides(&walk, &up, &down, &promised, diag);
    pst_free(walk.scale);
    if (status == PST_OK)
        *ret = fabs(up - down) > JUMP * far &&
               fabs(up - down) > 1e3 * ROUNDING * fabs(up);
    return status;
}
