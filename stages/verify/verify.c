// SPDX-License-Identifier: Apache-2.0
#include "stages/verify/verify.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/host/alive.h"
#include "stages/base/host/cpu.h"
#include "stages/base/plural.h"
#include "stages/base/rng.h"
#include "stages/split/convert/join.h"
#include "stages/verify/verifier.h"

/* Accepted relative error, in the 2-norm, of the gradient of a parameter that
 * several stages share. */
#define SHARED_TOLERANCE 1e-6
/* Time limit of a verification: the duration of LIMIT_STEPS steps, but at least
 * LIMIT_SECONDS. Locating a difference may exceed it. */
#define LIMIT_STEPS   20
#define LIMIT_SECONDS 3.0

void pst_verify_report_fini(struct pst_verify_report *report)
{
    pst_str_fini(&report->text);
}

void pst_verifier_report(const struct verifier *v, const char *fmt, ...)
{
    char text[300];
    va_list args;

    if (v->watch == NULL)
        return;
    va_start(args, fmt);
    vsnprintf(text, sizeof(text), fmt, args);
    va_end(args);
    v->watch->emit(v->watch->ctx, text);
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
    uint32_t limit; /* upper bound of integers, exclusive */
};

static enum pst_status make_up_input(void *ctx, uint64_t step,
                                     unsigned microbatch, unsigned input,
                                     void *dst, struct pst_diag *diag)
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

/* Returns ||a - b|| / ||b||; 0 if both are zero. */
static double relative_distance(const struct pst_dump_item *a,
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
    off = relative_distance(cut, whole);
    if (is_shared(v->plan, cut->name) && off <= SHARED_TOLERANCE)
        return;
    pst_verifier_differs(
        v, cut->name,
        "differs between %zu stage%s on %u rank%s and the uncut model: by "
        "%.3g of its norm",
        v->plan->stages.n, pst_plural(v->plan->stages.n), v->options.ranks,
        pst_plural(v->options.ranks), off);
}

static enum pst_status compare_cuts(struct verifier *v)
{
    struct pst_exec_options alone = v->options;
    struct pst_dump *cut = NULL, *whole = NULL;
    const struct pst_dump_item *items;
    unsigned before = v->report.different;
    enum pst_status status;
    double between;
    size_t n;

    v->begin = pst_now();
    alone.ranks = 1;
    alone.schedule = "gpipe"; /* allows one stage, any number of microbatches */
    alone.place = NULL;
    pst_verifier_report(v, "a step of %zu stage%s", v->plan->stages.n,
                        pst_plural(v->plan->stages.n));
    status = pst_verifier_step(v, v->plan, &v->options, &cut);
    between = pst_now();
    pst_verifier_report(v, "a step of the uncut model");
    if (status == PST_OK)
        status = pst_verifier_step(v, v->joined, &alone, &whole);
    v->step = v->seconds;
    v->whole = pst_now() - between;
    v->until = v->begin + PST_MAX(LIMIT_STEPS * v->step, LIMIT_SECONDS);
    if (status == PST_OK) {
        items = pst_dump_items(cut, &n);
        for (size_t i = 0; i < n; i++)
            compare_item(v, &items[i], pst_dump_find(whole, items[i].name));
        pst_str_addf(&v->report.text,
                     "%zu stage%s on %u rank%s, schedule %s, %u microbatch%s: "
                     "%zu tensor%s compared with the uncut model, %u differ\n",
                     v->plan->stages.n, pst_plural(v->plan->stages.n),
                     v->options.ranks, pst_plural(v->options.ranks),
                     v->options.schedule, v->options.microbatches,
                     pst_plural_es(v->options.microbatches), n, pst_plural(n),
                     v->report.different - before);
    }
    pst_dump_free(cut);
    pst_dump_free(whole);
    return status;
}

/* --- 2: gradients --------------------------------------------------------- */

static bool is_trained(const struct pst_plan_param *p)
{
    return p->kind == PST_VALUE_PARAM && p->requires_grad && p->n_stages > 0;
}

static bool is_comparable(const struct pst_plan_param *p)
{
    return is_trained(p) &&
           (p->meta.dtype == PST_F32 || p->meta.dtype == PST_F64);
}

/* Reports that all gradients have 16 bits: too coarse for finite differences,
 * so such a model must not pass as verified. */
static enum pst_status refuse_16bit(const struct verifier *v)
{
    const struct pst_plan_param *param = NULL;

    for (size_t i = 0; i < v->joined->params.n; i++) {
        const struct pst_plan_param *p = &v->joined->params.at[i];

        if (is_comparable(p))
            return PST_OK;
        if (param == NULL && is_trained(p))
            param = p;
    }
    if (param == NULL || v->report.different > 0)
        return PST_OK; /* the difference found is reported instead */
    return pst_diag_set(v->diag, PST_E_RUN_VERIFY_DTYPE,
                        "gradients cannot be verified: parameter %s is %s, "
                        "and none is f32 or f64 (cut and uncut model agree)",
                        param->fqn, pst_dtype_name(param->meta.dtype));
}

/* Reports a loss that is not finite: it has no derivative, so its gradients
 * cannot be checked. */
static enum pst_status refuse_not_finite(const struct verifier *v,
                                         const struct pst_wide *wide)
{
    const double loss = pst_wide_loss(wide);

    if (isfinite(loss) || v->report.different > 0)
        return PST_OK;
    return pst_diag_set(v->diag, PST_E_RUN_NOT_FINITE,
                        "gradients cannot be verified: with %s the loss %s "
                        "(cut and uncut model agree); give other data",
                        v->fill == make_up_input ? "data that were made up"
                                                 : "these data",
                        isnan(loss) ? "is not a number" : "is infinite");
}

static enum pst_status new_wide(struct verifier *v, bool beside,
                                struct pst_wide **ret)
{
    const struct pst_wide_options options = {v->options.seed,
                                             v->options.threads, beside};

    return pst_wide_new(v->joined, &options, v->fill, v->ctx, ret, v->diag);
}

/* Checks again, at moved parameters, gradients that a kink or a jump has left
 * undecided. Lists those that stay undecided or for which time runs out. */
static enum pst_status check_at_moved(struct verifier *v, double seconds,
                                      const struct pst_unsure *unsure)
{
    struct pst_wide *wide = NULL;
    struct pst_unsure left = {0};
    enum pst_status status;

    if (unsure->n == 0)
        return PST_OK;
    if (pst_now() + seconds > v->until) {
        pst_verifier_unchecked(v, unsure, "at a kink or a jump of the loss");
        return PST_OK;
    }
    pst_verifier_report(v, "gradients beside a kink");
    status = new_wide(v, true, &wide);
    if (status == PST_OK && isfinite(pst_wide_loss(wide)))
        status =
            pst_verifier_differences(v, wide, unsure->at, (unsigned)unsure->n,
                                     " beside a kink or a jump", &left);
    else if (status == PST_OK)
        pst_verifier_unchecked(v, unsure,
                               "at a kink or a jump of the loss, which is not "
                               "finite beside it");
    if (status == PST_OK)
        pst_verifier_unchecked(v, &left,
                               "at a kink or a jump of the loss, and beside "
                               "it at another");
    pst_vec_fini(&left);
    pst_wide_free(wide);
    return status;
}

static enum pst_status check_gradients(struct verifier *v)
{
    const struct pst_plan *plan = v->joined;
    const double begin = pst_now();
    struct pst_unsure unsure = {0};
    struct pst_wide *wide = NULL;
    unsigned *list, n = 0;
    enum pst_status status;
    double seconds;

    pst_verifier_report(v, "the gradients of a microbatch in f64");
    status = new_wide(v, false, &wide);
    seconds = pst_now() - begin;
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
        status = pst_verifier_differences(v, wide, list, n, "", &unsure);
    if (status == PST_OK)
        status = pst_verifier_precision(v, wide, list, n);
    pst_free(list);
    pst_wide_free(wide);
    if (status == PST_OK)
        status = check_at_moved(v, seconds, &unsure);
    pst_vec_fini(&unsure);
    return status;
}

/* --- verification -------------------------------------------------------- */

static enum pst_status verify_model(struct verifier *v)
{
    enum pst_status status = compare_cuts(v);

    if (status == PST_OK && v->options.train)
        status = refuse_16bit(v);
    if (status == PST_OK && v->options.train)
        status = check_gradients(v);
    if (status != PST_OK)
        return status;
    pst_str_addf(&v->report.text,
                 "took %.3g s, as long as %.3g steps of the uncut model\n",
                 pst_now() - v->begin, (pst_now() - v->begin) / v->step);
    return v->report.different > 0 ? PST_ERR_DIFFERENT : PST_OK;
}

/* Verifies with random data. If an integer is out of range for a table of the
 * model, or the model overflows f32 (an integer input may be a mask of 0 and
 * 1), runs again with integers of half the range. */
static enum pst_status verify_made_up(struct verifier *v)
{
    struct made_up made_up = {v->plan, v->options.seed, 4};
    enum pst_status status = PST_ERR_RANGE;

    v->fill = make_up_input;
    v->ctx = &made_up;
    for (; (status == PST_ERR_RANGE || v->no_number) && made_up.limit > 0;
         made_up.limit /= 2) {
        v->no_number = false;
        if (v->diag != NULL)
            pst_diag_init(v->diag);
        pst_str_fini(&v->report.text);
        v->report = (struct pst_verify_report){.text = {.visible = 1}};
        pst_str_add(&v->report.text, "data: made up\n");
        status = verify_model(v);
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
    /* Both runs use the same number of threads, since bits depend on it. */
    if (v.options.threads == 0)
        v.options.threads =
            PST_MAX(1, pst_cpu_count() / PST_MAX(1, options->ranks));
    status = fill != NULL ? verify_model(&v) : verify_made_up(&v);
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
