// SPDX-License-Identifier: Apache-2.0
/* Steps of training on inputs in the caller's memory, or from a callback. */
#include "lib/collective.h"
#include "lib/guest.h"
#include "stages/graph/bytes.h"
#include "stages/run/data/mean.h"

/* --- inputs --------------------------------------------------------------- */

/* Returns the plan of a microbatch. *ret_row: number of rows of the input in
 * the step before that microbatch. */
static const struct pst_plan *plan_of(const struct penstock_session *s,
                                      unsigned microbatch, unsigned input,
                                      int64_t *ret_row)
{
    const struct pst_batch *b = &s->batch;
    const unsigned n_larger = b->microbatches - b->n_tail;
    const int dim = b->plan->inputs.at[input].chunk;
    const bool is_tail = microbatch >= n_larger;
    const int64_t first = (int64_t)PST_MIN(microbatch, n_larger);

    *ret_row = 0;
    if (dim >= 0)
        *ret_row = first * b->plan->inputs.at[input].meta.size[dim];
    if (dim >= 0 && is_tail)
        *ret_row += (int64_t)(microbatch - n_larger) *
                    b->tail->inputs.at[input].meta.size[dim];
    return is_tail ? b->tail : b->plan;
}

/* Returns the address of a microbatch's part of an input in the view. *ret: its
 * sizes, with contiguous strides. */
static const char *part_of(const struct penstock_session *s,
                           const struct pstl_view *view, unsigned microbatch,
                           unsigned input, const struct pst_meta **ret)
{
    const int dim = s->batch.plan->inputs.at[input].chunk;
    int64_t row;

    *ret = &plan_of(s, microbatch, input, &row)->inputs.at[input].meta;
    return dim < 0 ? view->data
                   : view->data + row * view->meta.stride[dim] *
                                      (int64_t)pst_dtype_size(view->meta.dtype);
}

static enum pst_status fill_from_view(struct penstock_session *s,
                                      unsigned microbatch, unsigned input,
                                      void *dst, struct pst_diag *diag)
{
    const struct pstl_view *view =
        s->views[input].gpu >= 0 ? &s->hosts[input] : &s->views[input];
    const struct pst_meta *meta;
    const char *from;

    if (view->data == NULL)
        return pst_diag_set(diag, PST_E_INTERNAL_BUG,
                            "input '%s' is read here, and was not checked",
                            s->inputs[input].name);
    from = part_of(s, view, microbatch, input, &meta);
    pstl_view_read(&view->meta, from, meta, dst);
    atomic_fetch_add(&s->copies.read, pst_meta_bytes(meta));
    return PST_OK;
}

const void *pstl_lend(penstock_session *s, unsigned input,
                      const struct pst_meta *meta, const void *from)
{
    struct pst_meta part = *meta;
    const size_t bytes = pst_meta_bytes(&part);

    for (unsigned d = 0; d < part.rank; d++)
        part.stride[d] = s->views[input].meta.stride[d];
    /* A bool tensor of the caller may have bytes other than 0 and 1. */
    if (!pst_meta_is_contiguous(&part) ||
        (uintptr_t)from % pst_dtype_size(part.dtype) != 0 ||
        !pst_bytes_are_values(part.dtype, from, bytes))
        return NULL;
    atomic_fetch_add(&s->copies.in_place, bytes);
    return from;
}

/* A pst_lend_fn: lends a microbatch's part of the caller's tensor, or rows of
 * an evaluation. */
static bool lend_input(void *ctx, const struct pst_device_memory *reader,
                       bool in_place, unsigned microbatch, unsigned input,
                       struct pst_lent *ret)
{
    const struct pstl_source *source = ctx;
    penstock_session *s = source->session;
    const struct pstl_view *view = &s->views[input];
    const struct pst_meta *meta;
    const char *from;

    if (view->data == NULL)
        return false;
    if (view->gpu >= 0) {
        from = part_of(s, view, microbatch, input, &meta);
        return pstl_lend_guest(s, reader, in_place, input, meta, from, ret);
    }
    if (!in_place || reader->device->space != PST_SPACE_HOST)
        return false;
    if (source->mean != NULL) {
        ret->data =
            pst_mean_lend(source->mean, source->step, microbatch, input);
        return ret->data != NULL;
    }
    from = part_of(s, view, microbatch, input, &meta);
    ret->data = pstl_lend(s, input, meta, from);
    return ret->data != NULL;
}

static enum pst_status fill_by_callback(const struct pstl_source *source,
                                        uint64_t step, unsigned microbatch,
                                        unsigned input, void *dst,
                                        struct pst_diag *diag)
{
    const struct penstock_session *s = source->session;
    struct pstl_tensor t = s->inputs[input];
    DLTensor to = {.data = dst, .device = {.device_type = kDLCPU}};
    int64_t row;
    int code;

    t.meta = plan_of(s, microbatch, input, &row)->inputs.at[input].meta;
    to.dtype = pstl_dtype(&t);
    to.ndim = pstl_ndim(&t);
    to.shape = t.meta.size;
    code = source->fn(source->ctx, step, microbatch, input, &to);
    if (code != 0)
        return pst_diag_set(diag, PST_E_LIBRARY_CALLBACK,
                            "the callback returned %d for input '%.100s'", code,
                            t.name);
    pst_bytes_to_values(t.meta.dtype, dst, pst_meta_bytes(&t.meta));
    return PST_OK;
}

static enum pst_status fill_input(void *ctx, uint64_t step, unsigned microbatch,
                                  unsigned input, void *dst,
                                  struct pst_diag *diag)
{
    const struct pstl_source *source = ctx;

    if (source->refused != NULL)
        return pst_diag_pass(diag, source->refused, "%s",
                             source->refused->text);
    if (source->mean != NULL)
        return pst_mean_fill(source->mean, step, microbatch, input, dst, diag);
    return source->fn != NULL
               ? fill_by_callback(source, step, microbatch, input, dst, diag)
               : fill_from_view(source->session, microbatch, input, dst, diag);
}

enum pst_status pstl_step_set_inputs(penstock_session *s,
                                     const DLTensor *const *inputs, size_t n,
                                     struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (n != s->n_inputs)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "%zu inputs were given, and the model has %zu", n,
                            s->n_inputs);
    if (inputs == NULL && n > 0)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT, "inputs is NULL");
    for (size_t i = 0; i < n && status == PST_OK; i++) {
        s->views[i] = (struct pstl_view){0};
        if (inputs[i] != NULL || s->reads[i])
            status = pstl_take(s, &s->inputs[i], inputs[i], false, &s->views[i],
                               diag);
    }
    return status == PST_OK ? pstl_copy_inputs(s, diag) : status;
}

enum pst_status pstl_step_run(struct pst_engine *engine,
                              struct pstl_source *source, uint64_t step,
                              struct pst_step_result *ret,
                              struct pst_diag *diag)
{
    const struct pst_transport *t = source->session->transport;
    enum pst_status status;

    if (source->refused != NULL) {
        if (t->ops->size(t) == 1 || t->ops->one_process)
            return pst_diag_pass(diag, source->refused, "%s",
                                 source->refused->text);
        pst_engine_refuse(engine, source->refused);
    }
    source->step = step;
    /* If the call is refused, views may still be those of an earlier call. */
    if (source->fn == NULL && source->refused == NULL) {
        pstl_join(source->session, engine);
        pst_engine_lend(engine, lend_input, source);
    }
    ret->applied = true; /* cleared by ranks that agree to apply nothing */
    status =
        source->holds
            ? pst_engine_backward(engine, step, fill_input, source, ret, diag)
            : pst_engine_step(engine, step, fill_input, source, 0, ret, diag);
    /* Without an agreement of the ranks, messages may still be in flight. */
    if (status != PST_OK && ret->applied)
        source->session->failed = true;
    return status;
}

/* --- calls ---------------------------------------------------------------- */

/* Returns the error for which the step cannot be made on this rank; PST_OK: it
 * can be made. */
static enum pst_status check_step(const penstock_session *s, bool holds,
                                  const struct penstock_step *ret,
                                  struct pst_diag *diag)
{
    if (!s->trains)
        return pst_diag_set(diag, PST_E_LOSS_MISSING,
                            "the model has no loss to train with: open the "
                            ".pt2 with {\"loss\", ...} or {\"loss-fn\", ...}");
    if (s->is_half && !holds)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "penstock_forward_backward has begun a step: call "
                            "penstock_update before the next one");
    return pstl_check_struct("ret", ret, diag);
}

/* Writes the result of a step to the caller's struct. */
static void write_result(const penstock_session *s,
                         const struct pst_step_result *r, bool applied,
                         struct penstock_step *ret)
{
    const struct penstock_step result = {
        .step = s->step,
        .loss = r->loss,
        .grad_norm = r->grad_norm,
        .lr = r->lr,
        .applied = applied && s->options.optim.row != NULL};

    pstl_write_struct(&result, ret, sizeof(result));
}

static int run_step(penstock_session *s, struct pstl_source *source,
                    struct penstock_step *ret, struct pst_diag *diag,
                    struct penstock_error *error)
{
    const struct pstl_collective call = {
        .name = source->holds ? "forward_backward" : "train_step",
        .phase = PST_ALIVE_STEP};
    struct pst_diag refused = *diag;
    struct pst_step_result r;
    enum pst_status status, end;

    /* These errors occur on all ranks, unless ranks make different calls. */
    if (refused.error == PST_E_LIBRARY_ORDER || !s->trains) {
        status = pstl_call_settle(s, &call, refused.status, diag);
        return pstl_session_release(s, status, diag, error);
    }
    s->has_grads = s->is_half = false;
    if (refused.status != PST_OK)
        source->refused = &refused;
    status = pstl_call_begin_step(s, &call, diag);
    if (status == PST_OK)
        status = pstl_step_run(s->engine, source, s->step, &r, diag);
    end = pstl_call_end_step(s, status == PST_OK ? diag : NULL);
    status = status == PST_OK ? end : status;
    if (status == PST_OK) {
        s->has_grads = true;
        s->is_half = source->holds;
        s->half = r;
        s->step += !source->holds;
        write_result(s, &r, !source->holds, ret);
        if (r.stayed_step > 0)
            pstl_send_note(&s->messages, r.stayed_text);
    }
    return pstl_session_release(s, status, diag, error);
}

static int run_on_arrays(penstock_session *s, bool holds,
                         const DLTensor *const *inputs, size_t n_inputs,
                         struct penstock_step *ret,
                         struct penstock_error *error)
{
    struct pstl_source source = {.session = s, .holds = holds};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(s, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = check_step(s, holds, ret, &diag);
    if (status == PST_OK)
        status = pstl_step_set_inputs(s, inputs, n_inputs, &diag);
    return run_step(s, &source, ret, &diag, error);
}

int penstock_train_step(penstock_session *session,
                        const DLTensor *const *inputs, size_t n_inputs,
                        struct penstock_step *ret, struct penstock_error *error)
{
    return run_on_arrays(session, false, inputs, n_inputs, ret, error);
}

int penstock_forward_backward(penstock_session *session,
                              const DLTensor *const *inputs, size_t n_inputs,
                              struct penstock_step *ret,
                              struct penstock_error *error)
{
    return run_on_arrays(session, true, inputs, n_inputs, ret, error);
}

static int run_on_callback(penstock_session *s, bool holds, penstock_fill_fn fn,
                           void *ctx, struct penstock_step *ret,
                           struct penstock_error *error)
{
    struct pstl_source source = {
        .session = s, .fn = fn, .ctx = ctx, .holds = holds};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(s, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = check_step(s, holds, ret, &diag);
    if (status == PST_OK && fn == NULL)
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "fill is NULL");
    return run_step(s, &source, ret, &diag, error);
}

int penstock_train_step_fill(penstock_session *session, penstock_fill_fn fill,
                             void *ctx, struct penstock_step *ret,
                             struct penstock_error *error)
{
    return run_on_callback(session, false, fill, ctx, ret, error);
}

int penstock_forward_backward_fill(penstock_session *session,
                                   penstock_fill_fn fill, void *ctx,
                                   struct penstock_step *ret,
                                   struct penstock_error *error)
{
    return run_on_callback(session, true, fill, ctx, ret, error);
}

int penstock_update(penstock_session *session, struct penstock_step *ret,
                    struct penstock_error *error)
{
    const struct pstl_collective call = {.name = "update",
                                         .phase = PST_ALIVE_STEP};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (!session->is_half)
        status = pst_diag_set(&diag, PST_E_LIBRARY_ORDER,
                              "there are no gradients for an update: call "
                              "penstock_forward_backward before");
    if (status == PST_OK)
        status = pstl_check_struct("ret", ret, &diag);
    status = pstl_call_settle(session, &call, status, &diag);
    if (status == PST_OK) {
        session->is_half = false;
        status =
            pst_engine_update(session->engine, &session->half.grad_norm, &diag);
        /* After a failure some ranks may have updated their parameters, others
         * not. */
        session->failed = status != PST_OK;
    }
    if (status == PST_OK) {
        session->step++;
        write_result(session, &session->half, true, ret);
    }
    return pstl_session_release(session, status, &diag, error);
}
