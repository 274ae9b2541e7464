// SPDX-License-Identifier: Apache-2.0
#include "stages/verify/verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/base/host/cpu.h"
#include "stages/base/rng.h"
#include "stages/split/join.h"
#include "stages/verify/verifier.h"

/* Relative, in the 2-norm. */
#define SHARED_TOLERANCE 1e-6
/* What central differences may take, in steps and in seconds at least: as many
 * groups of parameters are compared as fit, and halves of one where that finds
 * an error. */
#define SLOPE_STEPS   6
#define SLOPE_SECONDS 2.0
/* At a kink a gradient has to lie between the slopes to both sides in so many
 * directions, but for a few that meet another kink. */
#define KINK_ATTEMPTS 16
#define KINK_OUTSIDE  1

void pst_verify_report_fini(struct pst_verify_report *report)
{
    pst_str_fini(&report->text);
}

static void tell(const struct verifier *v, const char *fmt, ...)
    PST_PRINTF(2, 3);

static void tell(const struct verifier *v, const char *fmt, ...)
{
    char text[300];
    va_list args;

    if (v->watch == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    v->watch->tell(v->watch->ctx, text);
}

void pst_verifier_differs(struct verifier *v, const char *name, const char *fmt,
                          ...)
{
    char why[300];
    va_list args;

    va_start(args, fmt);
    vsnprintf(why, sizeof(why), fmt, args);
    va_end(args);
    if (v->report.different++ == 0) {
        snprintf(v->report.first, sizeof(v->report.first), "%s", name);
        pst_diag_set(v->diag, PST_E_RUN_VERIFY, "%s %s", name, why);
    }
    pst_str_addf(&v->report.text, "%s %s\n", name, why);
}

/* --- data that is made up ------------------------------------------------ */

struct made_up {
    const struct pst_plan *plan;
    uint64_t seed;
    uint32_t limit; /* integers are below it */
};

static enum pst_status make_up(void *ctx, uint64_t step, unsigned microbatch,
                               unsigned input, void *dst, struct pst_diag *diag)
{
    const struct made_up *m = ctx;
    const struct pst_meta *meta = &m->plan->inputs.at[input].meta;
    const struct pst_rng_key key = {m->seed, step, microbatch, input};
    const int64_t n = pst_meta_numel(meta);

    (void)diag;
    for (int64_t i = 0; i < n; i++) {
        uint32_t words[4];

        if (pst_dtype_kind(meta->dtype) == PST_KIND_FLOAT) {
            pst_store_f64(meta->dtype, dst, i,
                          pst_rng_normal(&key, (uint64_t)i));
            continue;
        }
        pst_rng_block(&key, (uint64_t)i, words);
        pst_store_i64(meta->dtype, dst, i, words[0] % m->limit);
    }
    return PST_OK;
}

/* --- a step -------------------------------------------------------------- */

enum pst_status pst_verifier_step(struct verifier *v, struct pst_plan *plan,
                                  const struct pst_exec_options *options,
                                  struct pst_dump **ret)
{
    struct pst_transport *transport = NULL;
    struct pst_step_result result;
    struct pst_dump *dump = NULL;
    struct pst_engine *engine = NULL;
    char ranks[16];
    enum pst_status status;

    snprintf(ranks, sizeof(ranks), "%u", options->ranks);
    status = pst_transport_self.open(ranks, &transport, v->diag);
    if (status == PST_OK)
        status = pst_engine_new(plan, transport, options, &engine, v->diag);
    v->seconds = pst_now();
    if (status == PST_OK)
        status =
            pst_engine_step(engine, 0, v->fill, v->ctx, 0, &result, v->diag);
    v->seconds = pst_now() - v->seconds;
    if (status == PST_OK)
        status = pst_engine_dump_first(engine, &dump, v->diag);
    if (status == PST_OK)
        status = pst_engine_dump_state(engine, dump, v->diag);
    pst_engine_free(engine);
    pst_transport_self.close(transport);
    if (status != PST_OK) {
        pst_dump_free(dump);
        return status;
    }
    *ret = dump;
    return PST_OK;
}

/* ||a - b|| / ||b||; 0 if both are zero. */
static double distance(const struct pst_dump_item *a,
                       const struct pst_dump_item *b)
{
    const int64_t n = pst_meta_numel(&a->meta);
    double off = 0, all = 0;

    for (int64_t i = 0; i < n; i++) {
        double x = pst_load_f64(a->meta.dtype, a->data, i);
        double y = pst_load_f64(b->meta.dtype, b->data, i);

        off += (x - y) * (x - y);
        all += y * y;
    }
    if (off == 0)
        return 0;
    return all == 0 ? INFINITY : sqrt(off / all);
}

/* --- 1: cut against uncut ------------------------------------------------ */

static bool is_shared(const struct pst_plan *plan, const char *name)
{
    int param;

    if (strncmp(name, "grad.", 5) != 0)
        return false;
    param = pst_plan_find_param(plan, name + 5);
    return param >= 0 && plan->params.at[param].n_stages > 1;
}

static void compare_item(struct verifier *v, const struct pst_dump_item *cut,
                         const struct pst_dump_item *whole)
{
    double off;

    v->report.compared++;
    if (whole == NULL || !pst_meta_same(&cut->meta, &whole->meta)) {
        pst_verifier_differs(v, cut->name, "is not made by the uncut model");
        return;
    }
    if (memcmp(cut->data, whole->data, pst_meta_bytes(&cut->meta)) == 0)
        return;
    off = distance(cut, whole);
    if (is_shared(v->plan, cut->name) && off <= SHARED_TOLERANCE)
        return;
    pst_verifier_differs(
        v, cut->name,
        "differs between %zu stages on %u ranks and the uncut model: by "
        "%.3g of its norm",
        v->plan->stages.n, v->options.ranks, off);
}

static enum pst_status compare_cuts(struct verifier *v)
{
    struct pst_exec_options alone = v->options;
    struct pst_dump *cut = NULL, *whole = NULL;
    const struct pst_dump_item *items;
    unsigned before = v->report.different;
    enum pst_status status;
    size_t n;

    alone.ranks = 1;
    alone.schedule = "gpipe"; /* takes one stage, any microbatches */
    alone.place = NULL;
    tell(v, "a step of %zu stages", v->plan->stages.n);
    status = pst_verifier_step(v, v->plan, &v->options, &cut);
    tell(v, "a step of the uncut model");
    if (status == PST_OK)
        status = pst_verifier_step(v, v->joined, &alone, &whole);
    v->step = v->seconds;
    if (status == PST_OK) {
        items = pst_dump_items(cut, &n);
        for (size_t i = 0; i < n; i++)
            compare_item(v, &items[i], pst_dump_find(whole, items[i].name));
        pst_str_addf(&v->report.text,
                     "%zu stages on %u ranks, schedule %s, %u microbatches: "
                     "%zu tensors compared with the uncut model, %u differ\n",
                     v->plan->stages.n, v->options.ranks, v->options.schedule,
                     v->options.microbatches, n, v->report.different - before);
    }
    pst_dump_free(cut);
    pst_dump_free(whole);
    return status;
}

/* --- 2: gradients against slopes ----------------------------------------- */

/* The gradients of [begin, end) are no slopes, taken together. */
static void blame(struct verifier *v, const unsigned *list, unsigned begin,
                  unsigned end, double error)
{
    const struct pst_plan *plan = v->joined;
    char name[300], more[340] = "";

    (void)snprintf(name, sizeof(name), "grad.%s",
                   plan->params.at[list[begin]].fqn);
    if (end - begin > 1)
        (void)snprintf(more, sizeof(more),
                       "or one of the %u behind it, up to grad.%.200s, ",
                       end - begin - 1, plan->params.at[list[end - 1]].fqn);
    pst_verifier_differs(
        v, name,
        "%sis not the slope of the loss: off by %.3g times what is allowed "
        "(in f64, by central differences)",
        more, error);
}

struct slopes {
    struct pst_wide *wide;
    const unsigned *list;
    bool *chosen;
    double until; /* when no halves are looked at any more */
};

/* Are the gradients of the chosen parameters slopes of the loss? *ret_best: how
 * near the best attempt was; at most 1 is right. */
static enum pst_status check_chosen(struct verifier *v, const struct slopes *s,
                                    double *ret_best)
{
    struct pst_wide_error error = {INFINITY, INFINITY};
    enum pst_status status = PST_OK;
    unsigned a, outside = 0;

    *ret_best = INFINITY;
    for (a = 0; a < PST_WIDE_ATTEMPTS && status == PST_OK; a++) {
        status = pst_wide_check(s->wide, s->chosen, a, &error, v->diag);
        *ret_best = PST_MIN(*ret_best, error.plain);
        outside += error.kinked > 1;
        if (error.plain <= 1)
            return status;
    }
    for (; a < KINK_ATTEMPTS && outside <= KINK_OUTSIDE && status == PST_OK;
         a++) {
        status = pst_wide_check(s->wide, s->chosen, a, &error, v->diag);
        outside += error.kinked > 1;
    }
    if (status == PST_OK && outside <= KINK_OUTSIDE)
        *ret_best = 1;
    return status;
}

/* Checks the parameters [begin, end) of those in list at once. */
static enum pst_status check_range(struct verifier *v, const struct slopes *s,
                                   unsigned begin, unsigned end)
{
    const unsigned *list = s->list, middle = begin + (end - begin) / 2;
    enum pst_status status;
    bool jumps = false;
    double best;

    for (unsigned k = begin; k < end; k++)
        s->chosen[list[k]] = true;
    if (end - begin == 1)
        tell(v, "gradient %u of %u: %s", end, v->n_list,
             v->plan->params.at[list[begin]].fqn);
    else
        tell(v, "gradients %u to %u of %u", begin + 1, end, v->n_list);
    status = check_chosen(v, s, &best);
    if (status == PST_OK && best > 1 && end - begin == 1)
        status = pst_wide_jumps(s->wide, s->chosen, &jumps, v->diag);
    for (unsigned k = begin; k < end; k++)
        s->chosen[list[k]] = false;
    if (status != PST_OK || best <= 1)
        return status;
    if (end - begin > 1 && pst_now() < s->until) {
        status = check_range(v, s, begin, middle);
        return status == PST_OK ? check_range(v, s, middle, end) : status;
    }
    if (jumps)
        pst_str_addf(&v->report.text,
                     "grad.%s was not compared with slopes: the loss jumps "
                     "here, as where topk has to choose between equals\n",
                     v->joined->params.at[list[begin]].fqn);
    else
        blame(v, list, begin, end, best);
    return PST_OK;
}

static enum pst_status check_slopes(struct verifier *v, struct pst_wide *wide,
                                    const unsigned *list, unsigned n)
{
    const double time = PST_MAX(SLOPE_STEPS * v->step, SLOPE_SECONDS);
    const double looks = time / PST_MAX(2 * pst_wide_seconds(wide), 1e-9);
    const unsigned groups = n == 0            ? 0
                            : looks >= n      ? n
                            : looks / 2 < 1.0 ? 1
                                              : (unsigned)(looks / 2);
    struct slopes s = {
        wide, list,
        pst_calloc(PST_TAG_EXEC, v->joined->params.n + 1, sizeof(bool)),
        pst_now() + time};
    unsigned before = v->report.different;
    enum pst_status status = PST_OK;

    if (s.chosen == NULL)
        return pst_diag_nomem(v->diag, v->joined->params.n);
    v->n_list = n;
    for (unsigned g = 0; g < groups && status == PST_OK; g++)
        status = check_range(v, &s, (unsigned)((uint64_t)n * g / groups),
                             (unsigned)((uint64_t)n * (g + 1) / groups));
    pst_free(s.chosen);
    v->report.compared += n;
    pst_str_addf(&v->report.text,
                 "gradients of %u parameters compared with slopes of the loss "
                 "in f64",
                 n);
    if (groups < n)
        pst_str_addf(&v->report.text, ", in %u group%s of parameters at once",
                     groups, groups == 1 ? "" : "s");
    pst_str_addf(&v->report.text, ", %u differ\n",
                 v->report.different - before);
    return status;
}

static bool is_trained(const struct pst_plan_param *p)
{
    return p->kind == PST_VALUE_PARAM && p->requires_grad && p->n_stages > 0;
}

static bool is_comparable(const struct pst_plan_param *p)
{
    return is_trained(p) &&
           (p->meta.dtype == PST_F32 || p->meta.dtype == PST_F64);
}

/* 16 bits are too coarse for slopes: a model that has nothing finer must not
 * pass as verified. */
static enum pst_status refuse_narrow(const struct verifier *v)
{
    const struct pst_plan_param *narrow = NULL;

    for (size_t i = 0; i < v->joined->params.n; i++) {
        const struct pst_plan_param *p = &v->joined->params.at[i];

        if (is_comparable(p))
            return PST_OK;
        if (narrow == NULL && is_trained(p))
            narrow = p;
    }
    if (narrow == NULL || v->report.different > 0)
        return PST_OK; /* the difference is the answer */
    return pst_diag_set(v->diag, PST_E_RUN_VERIFY_DTYPE,
                        "gradients cannot be verified: parameter %s is %s, "
                        "and none is f32 or f64 (cut and uncut model agree)",
                        narrow->fqn, pst_dtype_name(narrow->meta.dtype));
}

/* Nothing has a slope there, and no gradient is to blame. */
static enum pst_status refuse_not_finite(const struct verifier *v,
                                         const struct pst_wide *wide)
{
    const double loss = pst_wide_loss(wide);

    if (isfinite(loss) || v->report.different > 0)
        return PST_OK;
    return pst_diag_set(v->diag, PST_E_RUN_NOT_FINITE,
                        "gradients cannot be verified: with %s the loss %s "
                        "(cut and uncut model agree); give other data",
                        v->fill == make_up ? "data that were made up"
                                           : "these data",
                        isnan(loss) ? "is not a number" : "is infinite");
}

static enum pst_status check_gradients(struct verifier *v)
{
    const struct pst_plan *plan = v->joined;
    struct pst_wide *wide = NULL;
    unsigned *list, n = 0;
    enum pst_status status;

    tell(v, "the gradients of a microbatch in f64");
    status = pst_wide_new(v->joined, v->options.seed, v->fill, v->ctx, &wide,
                          v->diag);
    if (status == PST_ERR_UNSUPPORTED) {
        pst_str_addf(&v->report.text, "gradients were not checked in f64: %s\n",
                     v->diag != NULL ? v->diag->text : "");
        return PST_OK;
    }
    if (status != PST_OK)
        return status;
    list = pst_calloc(PST_TAG_EXEC, plan->params.n + 1, sizeof(*list));
    if (list == NULL)
        status = pst_diag_nomem(v->diag, plan->params.n * sizeof(*list));
    for (unsigned i = 0; list != NULL && i < plan->params.n; i++)
        if (is_comparable(&plan->params.at[i]))
            list[n++] = i;
    if (status == PST_OK)
        status = refuse_not_finite(v, wide);
    if (status == PST_OK)
        status = check_slopes(v, wide, list, n);
    if (status == PST_OK)
        status = pst_verifier_precision(v, wide, list, n);
    pst_free(list);
    pst_wide_free(wide);
    return status;
}

/* --- together ------------------------------------------------------------ */

static enum pst_status verify(struct verifier *v)
{
    enum pst_status status = compare_cuts(v);

    if (status == PST_OK && v->options.train)
        status = refuse_narrow(v);
    if (status == PST_OK && v->options.train)
        status = check_gradients(v);
    if (status != PST_OK)
        return status;
    return v->report.different > 0 ? PST_ERR_DIFFERENT : PST_OK;
}

/* With made-up data: integers that are out of range for a table of the model
 * become smaller, and those that are no mask (of 0 and 1), for which a model
 * makes numbers that f32 does not hold. */
static enum pst_status verify_made_up(struct verifier *v)
{
    struct made_up made_up = {v->plan, v->options.seed, 4};
    enum pst_status status = PST_ERR_RANGE;

    v->fill = make_up;
    v->ctx = &made_up;
    for (; (status == PST_ERR_RANGE || v->no_number) && made_up.limit > 0;
         made_up.limit /= 2) {
        v->no_number = false;
        if (v->diag != NULL)
            pst_diag_init(v->diag);
        pst_str_fini(&v->report.text);
        v->report = (struct pst_verify_report){.text = {.visible = 1}};
        pst_str_add(&v->report.text, "data: made up\n");
        status = verify(v);
    }
    return status;
}

enum pst_status pst_verify(struct pst_plan *plan,
                           const struct pst_exec_options *options,
                           pst_fill_fn fill, void *ctx,
                           const struct pst_verify_watch *watch,
                           struct pst_verify_report *ret, struct pst_diag *diag)
{
    struct verifier v = {.plan = plan,
                         .options = *options,
                         .fill = fill,
                         .ctx = ctx,
                         .watch = watch,
                         .report = {.text = {.visible = 1}},
                         .diag = diag};
    enum pst_status status = pst_plan_join(plan, &v.joined, diag);

    if (status != PST_OK)
        return status;
    v.options.optim = (struct pst_optim_options){0};
    v.options.train = options->train && plan->loss >= 0;
    v.options.keep_outputs = true;
    if (v.options.threads == 0) /* the same for both: bits depend on it */
        v.options.threads =
            PST_MAX(1, pst_cpu_count() / PST_MAX(1, options->ranks));
    status = fill != NULL ? verify(&v) : verify_made_up(&v);
    pst_plan_free(v.joined);
    if (v.report.text.failed && (status == PST_OK || v.report.different > 0))
        status = pst_diag_nomem(diag, v.report.text.len);
    if (status != PST_OK && status != PST_ERR_DIFFERENT) {
        pst_verify_report_fini(&v.report);
        return status;
    }
    *ret = v.report;
    return status;
}
