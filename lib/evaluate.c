// SPDX-License-Identifier: Apache-2.0
/* Mean loss over any number of rows, each of which counts once. */
#include "daemon/common/setup.h"
#include "lib/collective.h"
#include "lib/guest.h"
#include "stages/base/checked.h"
#include "stages/graph/bytes.h"
#include "stages/run/data/mean.h"

/* --- rows ----------------------------------------------------------------- */

static const struct pst_plan_input *input_of(const penstock_session *s,
                                             size_t i)
{
    return &s->batch.plan->inputs.at[i];
}

/* Returns the number of rows of an input in a microbatch; 0: the input is not
 * divided into microbatches. */
static uint64_t rows_of(const penstock_session *s, size_t i)
{
    const struct pst_plan_input *in = input_of(s, i);

    return in->chunk >= 0 ? (uint64_t)in->meta.size[in->chunk] : 0;
}

/* Finds the first input that is divided into microbatches: its rows are
 * counted. Sets extent->each to its rows in a microbatch, and extent->whole if
 * another input has a different number of them. False: no input is divided. */
static bool find_divided(const penstock_session *s, size_t *ret,
                         struct pst_data_extent *extent)
{
    bool any = false;

    for (size_t i = 0; i < s->n_inputs; i++) {
        const uint64_t rows = rows_of(s, i);

        if (rows == 0)
            continue;
        if (!any) {
            *ret = i;
            extent->each = rows;
        }
        any = true;
        extent->whole = extent->whole || rows != extent->each;
    }
    return any;
}

/* Counts the rows of the first divided input. Rank 0. */
static enum pst_status count_rows(const penstock_session *s,
                                  const DLTensor *const *inputs, size_t n,
                                  struct pst_data_extent *ret,
                                  struct pst_diag *diag)
{
    const DLTensor *t;
    size_t i;
    int dim;

    if (n != s->n_inputs || (inputs == NULL && n > 0))
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "%zu inputs were given, and the model has %zu",
                            inputs == NULL ? 0 : n, s->n_inputs);
    if (!find_divided(s, &i, ret)) {
        ret->each = 1;
        ret->rows = s->batch.microbatches;
        return PST_OK;
    }
    t = inputs[i];
    dim = input_of(s, i)->chunk;
    if (t == NULL || t->shape == NULL || t->ndim <= dim || t->shape[dim] < 1)
        return pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                            "input '%.200s' has no rows in dimension %d",
                            s->inputs[i].name, dim);
    ret->rows = (uint64_t)t->shape[dim];
    if (ret->whole && ret->rows % ret->each != 0)
        return pst_diag_set(diag, PST_E_LIBRARY_TENSOR,
                            "input '%.200s' has %llu rows, and must have a "
                            "multiple of %llu, since inputs have different "
                            "numbers of them",
                            s->inputs[i].name, (unsigned long long)ret->rows,
                            (unsigned long long)ret->each);
    return PST_OK;
}

/* Describes an input that has the rows of all steps. */
static enum pst_status describe_input(const penstock_session *s, size_t i,
                                      const struct pst_data_extent *x,
                                      struct pstl_tensor *ret,
                                      struct pst_diag *diag)
{
    const uint64_t each = rows_of(s, i);
    uint64_t rows;

    *ret = s->inputs[i];
    ret->meta = input_of(s, i)->meta;
    if (each > 0) {
        if (PST_MUL(x->rows, each, &rows) || rows / x->each > INT64_MAX)
            return pst_diag_nomem(diag, SIZE_MAX);
        ret->meta.size[ret->batch_dim] = (int64_t)(rows / x->each);
    }
    pst_meta_set_contiguous(&ret->meta);
    return PST_OK;
}

static enum pst_status set_inputs(penstock_session *s,
                                  const DLTensor *const *inputs, size_t n,
                                  const struct pst_data_extent *x,
                                  struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (n != s->n_inputs || (inputs == NULL && n > 0))
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "%zu inputs were given, and the model has %zu",
                            inputs == NULL ? 0 : n, s->n_inputs);
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        /* Rank 0 also needs inputs of other ranks' stages, since it counts the
         * targets, which may be in any input. */
        const bool needs =
            s->reads[i] || (pstl_is_first(s) &&
                            pst_plan_reads_input(s->batch.plan, (unsigned)i));
        struct pstl_tensor want;

        s->views[i] = (struct pstl_view){0};
        status = describe_input(s, i, x, &want, diag);
        if (status == PST_OK && (inputs[i] != NULL || needs))
            status = pstl_take(s, &want, inputs[i], false, &s->views[i], diag);
        if (status == PST_OK) /* rows are counted and repeated on the host */
            status = pstl_copy_input(s, (unsigned)i, diag);
    }
    return status;
}

/* Reads rows like pst_data_read. */
static enum pst_status read_rows(void *ctx, uint64_t first, uint64_t n,
                                 unsigned input, void *dst,
                                 struct pst_diag *diag)
{
    penstock_session *s = ctx;
    const struct pst_plan_input *in = input_of(s, input);
    const struct pstl_view *view = &s->views[input];
    const int64_t item = (int64_t)pst_dtype_size(in->meta.dtype);
    const uint64_t each = rows_of(s, input);
    struct pst_meta to = in->meta, from;
    struct pst_data_extent x = {0};
    size_t ref;

    if (view->data == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "input '%s' is read here, and was not checked",
                            s->inputs[input].name);
    pst_meta_set_contiguous(&to);
    atomic_fetch_add(&s->copies.read, pst_meta_bytes(&to));
    if (each == 0) {
        pstl_view_read(&view->meta, view->data, &to, dst);
        return PST_OK;
    }
    if (find_divided(s, &ref, &x) && x.whole) {
        first = first / x.each * each;
        n = each;
    }
    /* A microbatch whose result is dropped may ask for rows beyond the end. */
    n = PST_MIN(n, (uint64_t)view->meta.size[in->chunk] - first);
    from = to;
    for (unsigned d = 0; d < to.rank; d++)
        from.stride[d] = view->meta.stride[d];
    for (uint64_t at = 0; at < each; at += n) {
        to.size[in->chunk] = from.size[in->chunk] =
            (int64_t)PST_MIN(n, each - at);
        pst_copy_strided(
            &from, view->data + (int64_t)first * from.stride[in->chunk] * item,
            &to, (char *)dst + (int64_t)at * to.stride[in->chunk] * item);
    }
    pst_bytes_to_values(to.dtype, dst, pst_meta_bytes(&in->meta));
    return PST_OK;
}

/* Returns the address of a whole microbatch's rows in the caller's memory, or
 * NULL if they must be copied. */
static const void *lend_rows(void *ctx, uint64_t first, uint64_t n,
                             unsigned input)
{
    penstock_session *s = ctx;
    const struct pst_plan_input *in = input_of(s, input);
    const struct pstl_view *view = &s->views[input];
    const uint64_t each = rows_of(s, input);
    int64_t at = 0;

    if (view->data == NULL)
        return NULL;
    if (each > 0) /* n rows of the counted input are one microbatch */
        at = (int64_t)(first / n * each) * view->meta.stride[in->chunk] *
             (int64_t)pst_dtype_size(in->meta.dtype);
    return pstl_lend(s, input, &in->meta, view->data + at);
}

/* --- the evaluation ------------------------------------------------------- */

/* COLLECTIVE. Counts the rows on rank 0 and sends their number to all ranks. */
static enum pst_status find_extent(penstock_session *s,
                                   const DLTensor *const *inputs, size_t n,
                                   struct pst_data_extent *ret,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (s->batch.plan->loss < 0)
        status = pst_diag_set(diag, PST_E_LOSS_MISSING_MEAN,
                              "the model has no loss to take the mean of: open "
                              "the .pt2 with {\"loss\", ...} or {\"loss-fn\", "
                              "...}");
    if (status == PST_OK && pstl_is_first(s))
        status = count_rows(s, inputs, n, ret, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK && s->transport->ops->size(s->transport) > 1)
        status = pst_engine_broadcast(s->transport, ret, sizeof(*ret), NULL,
                                      NULL, diag);
    return status;
}

/* COLLECTIVE. Runs all rows. */
static enum pst_status run_rows(penstock_session *s, struct pst_mean *mean,
                                double *weights, struct pst_diag *diag)
{
    struct pst_engine *engine = NULL;
    enum pst_status status = pstl_forward_prepare(s, &engine, diag);

    pst_mean_begin(mean);
    for (uint64_t k = 0; k < pst_mean_steps(mean) && status == PST_OK; k++) {
        struct pstl_source source = {.session = s, .mean = mean};
        struct pst_step_result r;
        struct pst_diag why;

        pst_diag_init(&why);
        if (pstl_is_first(s) &&
            pst_mean_weigh(mean, k, weights, &why) != PST_OK)
            source.refused = &why;
        status = pstl_step_run(engine, &source, k, &r, diag);
        if (status == PST_OK && pstl_is_first(s))
            pst_mean_take(mean, &r);
    }
    return status;
}

/* COLLECTIVE. */
static enum pst_status evaluate(penstock_session *s,
                                const struct pst_data_extent *x, double *ret,
                                struct pst_diag *diag)
{
    const struct pst_mean_source rows = {
        .extent = *x, .read = read_rows, .lend = lend_rows, .ctx = s};
    const struct pst_mean_options options = {
        .microbatches = s->batch.microbatches,
        .by = pstl_is_first(s) ? pstd_mean_by(&s->config) : PST_MEAN_BY_ROWS};
    double *weights =
        pst_calloc(PST_TAG_CLIENT, s->batch.microbatches, sizeof(*weights));
    struct pst_mean *mean = NULL;
    double loss = 0;
    enum pst_status status =
        weights == NULL
            ? pst_diag_nomem(diag, s->batch.microbatches * sizeof(*weights))
            : pst_mean_new(s->batch.plan, &rows, &options, &mean, diag);

    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK)
        status = run_rows(s, mean, weights, diag);
    if (status == PST_OK) {
        if (pstl_is_first(s))
            status = pst_mean_end(mean, &loss, diag);
        status = pst_transport_agree(s->transport, status, diag);
    }
    if (status == PST_OK && s->transport->ops->size(s->transport) > 1)
        status = pst_engine_broadcast(s->transport, &loss, sizeof(loss), NULL,
                                      NULL, diag);
    if (status == PST_OK)
        *ret = loss;
    pst_mean_free(mean);
    pst_free(weights);
    return status;
}

int penstock_evaluate(penstock_session *session, const DLTensor *const *inputs,
                      size_t n_inputs, double *ret_loss,
                      struct penstock_error *error)
{
    const struct pstl_collective call = {.name = "evaluate",
                                         .phase = PST_ALIVE_STEP};
    struct pst_data_extent x = {0};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (ret_loss == NULL)
        status =
            pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "ret_loss is NULL");
    status = pstl_call_settle(session, &call, status, &diag);
    if (status == PST_OK)
        status = find_extent(session, inputs, n_inputs, &x, &diag);
    if (status == PST_OK)
        status = pst_transport_agree(
            session->transport,
            set_inputs(session, inputs, n_inputs, &x, &diag), &diag);
    if (status == PST_OK)
        status = evaluate(session, &x, ret_loss, &diag);
    pstl_drop_copies(session);
    return pstl_session_release(session, status, &diag, error);
}
