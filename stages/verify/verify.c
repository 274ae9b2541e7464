// SPDX-License-Identifier: Apache-2.0
#include "stages/verify/verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/host/cpu.h"
#include "stages/base/rng.h"
#include "stages/run/dump.h"
#include "stages/split/join.h"
#include "stages/verify/wide.h"

/* Relative, in the 2-norm. */
#define SHARED_TOLERANCE 1e-6
#define WIDE_TOLERANCE   1e-3
/* Products of bf16 factors: eight bits of mantissa, rounded at every layer. */
#define BF16_TOLERANCE 0.1
/* Gradients that are zero but for rounding are measured against the others:
 * this share of their root mean square. */
#define WIDE_FLOOR 1e-3
/* Flops of central differences for one parameter at a time; else all at
 * once, and halves where that finds an error. */
#define FLOPS_EACH 2e11

struct verifier {
    struct pst_plan *plan, *joined;
    struct pst_exec_options options; /* of the cut */
    pst_fill_fn fill;
    void *ctx;
    const struct pst_verify_watch *watch; /* or NULL */
    struct pst_verify_report report;
    unsigned n_list; /* gradients that are compared with slopes */
    bool no_number;  /* a gradient in f32 is none, which in f64 is one */
    struct pst_diag *diag;
};

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

static void differs(struct verifier *v, const char *name, const char *fmt, ...)
    PST_PRINTF(3, 4);

static void differs(struct verifier *v, const char *name, const char *fmt, ...)
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

/* The first step of a plan, everything that it made in *ret. */
static enum pst_status run_step(const struct verifier *v, struct pst_plan *plan,
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
    if (status == PST_OK)
        status =
            pst_engine_step(engine, 0, v->fill, v->ctx, 0, &result, v->diag);
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
        differs(v, cut->name, "is not made by the uncut model");
        return;
    }
    if (memcmp(cut->data, whole->data, pst_meta_bytes(&cut->meta)) == 0)
        return;
    off = distance(cut, whole);
    if (is_shared(v->plan, cut->name) && off <= SHARED_TOLERANCE)
        return;
    differs(v, cut->name,
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
    status = run_step(v, v->plan, &v->options, &cut);
    tell(v, "a step of the uncut model");
    if (status == PST_OK)
        status = run_step(v, v->joined, &alone, &whole);
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

/* Checks the parameters [begin, end) of those in list at once. */
static enum pst_status check_range(struct verifier *v, struct pst_wide *wide,
                                   const unsigned *list, unsigned begin,
                                   unsigned end, bool *chosen)
{
    double error = INFINITY, best = INFINITY;
    enum pst_status status = PST_OK;
    unsigned middle = begin + (end - begin) / 2;
    bool jumps = false;
    char name[300];

    for (unsigned k = begin; k < end; k++)
        chosen[list[k]] = true;
    if (end - begin == 1)
        tell(v, "gradient %u of %u: %s", end, v->n_list,
             v->plan->params.at[list[begin]].fqn);
    else
        tell(v, "gradients %u to %u of %u", begin + 1, end, v->n_list);
    for (unsigned a = 0; a < PST_WIDE_ATTEMPTS && status == PST_OK && best > 1;
         a++) {
        status = pst_wide_check(wide, chosen, a, &error, v->diag);
        best = PST_MIN(best, error);
    }
    if (status == PST_OK && best > 1 && end - begin == 1)
        status = pst_wide_jumps(wide, chosen, &jumps, v->diag);
    for (unsigned k = begin; k < end; k++)
        chosen[list[k]] = false;
    if (status != PST_OK || best <= 1)
        return status;
    if (end - begin > 1) {
        status = check_range(v, wide, list, begin, middle, chosen);
        if (status == PST_OK)
            status = check_range(v, wide, list, middle, end, chosen);
        return status;
    }
    snprintf(name, sizeof(name), "grad.%s",
             v->plan->params.at[list[begin]].fqn);
    if (jumps) {
        pst_str_addf(&v->report.text,
                     "%s was not compared with slopes: the loss jumps here, as "
                     "where topk has to choose between equals\n",
                     name);
        return PST_OK;
    }
    differs(v, name,
            "is not the slope of the loss: off by %.3g times what is allowed "
            "(in f64, by central differences)",
            best);
    return PST_OK;
}

static enum pst_status check_slopes(struct verifier *v, struct pst_wide *wide,
                                    const unsigned *list, unsigned n)
{
    bool *chosen =
        pst_calloc(PST_TAG_EXEC, v->plan->params.n + 1, sizeof(*chosen));
    unsigned before = v->report.different;
    bool each = pst_wide_flops(wide) * 2 * n <= FLOPS_EACH;
    enum pst_status status = PST_OK;

    if (chosen == NULL)
        return pst_diag_nomem(v->diag, v->plan->params.n);
    v->n_list = n;
    if (n > 0 && !each)
        status = check_range(v, wide, list, 0, n, chosen);
    for (unsigned k = 0; k < n && each && status == PST_OK; k++)
        status = check_range(v, wide, list, k, k + 1, chosen);
    pst_free(chosen);
    v->report.compared += n;
    pst_str_addf(&v->report.text,
                 "gradients of %u parameters compared with slopes of the loss "
                 "in f64%s, %u differ\n",
                 n, each ? "" : ", all at once", v->report.different - before);
    return status;
}

/* --- 3: f32 against f64 -------------------------------------------------- */

static double grad_rms(const struct pst_plan *plan, const struct pst_wide *wide,
                       const unsigned *list, unsigned n)
{
    double sum = 0, count = 0;

    for (unsigned k = 0; k < n; k++) {
        const double *grad = pst_wide_grad(wide, list[k]);
        int64_t numel = pst_meta_numel(&plan->params.at[list[k]].meta);

        for (int64_t i = 0; grad != NULL && i < numel; i++)
            sum += grad[i] * grad[i];
        count += (double)numel;
    }
    return count > 0 ? sqrt(sum / count) : 0;
}

static void compare_wide(struct verifier *v, const struct pst_dump_item *item,
                         const double *grad, double rms)
{
    const int64_t n = pst_meta_numel(&item->meta);
    const double tolerance = v->options.bf16 ? BF16_TOLERANCE : WIDE_TOLERANCE;
    double off = 0, all = 0, scale;

    for (int64_t i = 0; i < n; i++) {
        double x = pst_load_f64(item->meta.dtype, item->data, i);
        double y = grad != NULL ? grad[i] : 0;

        off += (x - y) * (x - y);
        all += y * y;
    }
    scale = PST_MAX(sqrt(all), WIDE_FLOOR * rms * sqrt((double)n));
    v->no_number |= !isfinite(off) && isfinite(all);
    v->report.compared++;
    if (!(sqrt(off) <= tolerance * scale))
        differs(v, item->name, "differs from its value in f64 by %.3g of %.3g",
                sqrt(off), scale);
}

static enum pst_status compare_precision(struct verifier *v,
                                         const struct pst_wide *wide,
                                         const unsigned *list, unsigned n)
{
    struct pst_exec_options one = v->options;
    double rms = grad_rms(v->plan, wide, list, n);
    unsigned before = v->report.different;
    struct pst_dump *dump = NULL;
    enum pst_status status;

    one.microbatches = 1;
    one.schedule = "gpipe";
    one.place = NULL;
    status = run_step(v, v->plan, &one, &dump);
    if (status != PST_OK)
        return status;
    for (unsigned k = 0; k < n; k++) {
        const struct pst_dump_item *item;
        char name[1200];

        snprintf(name, sizeof(name), "grad.%s",
                 v->plan->params.at[list[k]].fqn);
        item = pst_dump_find(dump, name);
        if (item != NULL)
            compare_wide(v, item, pst_wide_grad(wide, list[k]), rms);
    }
    pst_dump_free(dump);
    pst_str_addf(&v->report.text,
                 "gradients of %u parameters on 1 microbatch compared with "
                 "f64, %u differ\n",
                 n, v->report.different - before);
    return PST_OK;
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
        status = compare_precision(v, wide, list, n);
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
