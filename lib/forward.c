// SPDX-License-Identifier: Apache-2.0
/* Forward passes in eval mode by a second engine with the same cut, created by
 * the first pass. The engine reads parameters in the memory of the session's
 * engine where possible; other parameters are copied before a pass if they have
 * changed. */
#include <math.h>
#include <stdio.h>

#include "daemon/common/model/evaluator.h"
#include "daemon/common/setup.h"
#include "lib/collective.h"
#include "lib/guest.h"
#include "stages/base/alloc.h"
#include "stages/run/state/values.h"

#define TAG PST_TAG_CLIENT

struct pstl_forward {
    struct pstd_evaluator by;
    bool done; /* a pass has succeeded, and its outputs can be read */
};

void pstl_forward_free(struct pstl_forward *forward)
{
    if (forward == NULL)
        return;
    pstd_evaluator_fini(&forward->by);
    pst_free(forward);
}

size_t pstl_forward_bytes(const struct pstl_forward *forward)
{
    return forward != NULL && forward->by.engine != NULL
               ? pstd_planned_bytes(forward->by.engine)
               : 0;
}

/* COLLECTIVE. Creates the engine for forward passes. */
static enum pst_status make_engine(penstock_session *s, struct pstl_forward *f,
                                   struct pst_diag *diag)
{
    struct pst_exec_options options;
    enum pst_status status;

    pstd_evaluator_init(&f->by, s->engine, s->batch.plan);
    status = pstd_evaluator_cut(&f->by, diag);
    if (status == PST_OK)
        status = pstd_evaluator_options(&f->by, &s->config, &s->options,
                                        &options, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status != PST_OK)
        return status;
    options.memory_limit = 0;
    options.keep_outputs = true;
    status = pstd_evaluator_start(&f->by, f->by.cut.plan, s->transport,
                                  &options, diag);
    if (status == PST_OK)
        pstl_send_plan_notes(&s->messages, f->by.cut.plan);
    return status;
}

/* COLLECTIVE. Creates session->forward unless it exists. */
static enum pst_status ensure_forward(penstock_session *s,
                                      struct pst_diag *diag)
{
    struct pstl_forward *f;
    enum pst_status status;

    if (s->forward != NULL)
        return PST_OK;
    f = pst_calloc(TAG, 1, sizeof(*f));
    status = pst_transport_agree(
        s->transport, f == NULL ? pst_diag_nomem(diag, sizeof(*f)) : PST_OK,
        diag);
    if (status == PST_OK)
        status = make_engine(s, f, diag);
    if (status == PST_OK)
        s->forward = f;
    else
        pstl_forward_free(f);
    return status;
}

enum pst_status pstl_forward_prepare(penstock_session *s,
                                     struct pst_engine **ret,
                                     struct pst_diag *diag)
{
    enum pst_status status = ensure_forward(s, diag);

    if (status != PST_OK)
        return status;
    s->forward->done = false;
    *ret = s->forward->by.engine;
    return pst_engine_copy_values(*ret, s->engine, diag);
}

const struct pst_engine *pstl_forward_engine(const penstock_session *s)
{
    return s->forward != NULL && s->forward->done ? s->forward->by.engine
                                                  : NULL;
}

/* Returns the error for which the pass cannot be made on this rank; PST_OK: it
 * can be made. */
static enum pst_status check_forward(penstock_session *s,
                                     const DLTensor *const *inputs, size_t n,
                                     struct pst_diag *diag)
{
    if (s->batch.tail != NULL)
        return pst_diag_set(diag, PST_E_SIZE_OPTION,
                            "penstock_forward needs microbatches of equal "
                            "size: make \"batch\" a multiple of "
                            "\"microbatches\"");
    return pstl_step_set_inputs(s, inputs, n, diag);
}

int penstock_forward(penstock_session *session, const DLTensor *const *inputs,
                     size_t n_inputs, double *ret_loss,
                     struct penstock_error *error)
{
    const struct pstl_collective call = {.name = "forward",
                                         .phase = PST_ALIVE_STEP};
    struct pstl_source source = {.session = session};
    struct pst_engine *engine = NULL;
    struct pst_step_result r;
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = pstl_call_settle(
        session, &call, check_forward(session, inputs, n_inputs, &diag), &diag);
    if (status == PST_OK)
        status = pstl_forward_prepare(session, &engine, &diag);
    if (status == PST_OK)
        status = pstl_step_run(engine, &source, 0, &r, &diag);
    if (status == PST_OK) {
        session->forward->done = true;
        if (ret_loss != NULL)
            *ret_loss = session->batch.plan->loss >= 0 ? r.loss : NAN;
    }
    return pstl_session_release(session, status, &diag, error);
}

static enum pst_status view_output(const penstock_session *s, size_t output,
                                   const DLTensor *dst, struct pstl_view *ret,
                                   struct pst_diag *diag)
{
    if (s->forward == NULL || !s->forward->done)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "there are no outputs: call penstock_forward "
                            "before");
    if (output >= s->n_outputs)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "there are %zu outputs, and no number %zu",
                            s->n_outputs, output);
    return pstl_is_first(s)
               ? pstl_take(s, &s->outputs[output], dst, true, ret, diag)
               : PST_OK;
}

/* Copies the output to a view on the same GPU, if all ranks are in this
 * process. *ret_done: it was copied. */
static enum pst_status copy_on_gpu(penstock_session *s, size_t output,
                                   const struct pstl_view *view, bool *ret_done,
                                   struct pst_diag *diag)
{
    struct pst_device_memory *mem = NULL;
    const void *from;

    *ret_done = false;
    if (!s->transport->ops->one_process || view->gpu < 0)
        return PST_OK;
    from = pst_engine_output_value(s->forward->by.engine,
                                   s->outputs[output].index, &mem);
    return pstl_move(mem, from, view, ret_done, diag);
}

/* COLLECTIVE. Copies the output to the view; through a buffer if the view is
 * not contiguous or on a GPU. */
static enum pst_status copy_output(penstock_session *s, size_t output,
                                   const struct pstl_view *view,
                                   struct pst_diag *diag)
{
    const struct pstl_tensor *t = &s->outputs[output];
    const bool direct = !pstl_is_first(s) ||
                        (view->gpu < 0 && pst_meta_is_contiguous(&view->meta));
    void *whole = NULL;
    bool done = false;
    enum pst_status status = copy_on_gpu(s, output, view, &done, diag);

    if (status == PST_OK && done)
        atomic_fetch_add(&s->copies.written, pst_meta_bytes(&t->meta));
    if (status != PST_OK || done)
        return status;
    if (!direct) {
        whole = pst_alloc(TAG, pst_meta_bytes(&t->meta));
        if (whole == NULL)
            status = pst_diag_nomem(diag, pst_meta_bytes(&t->meta));
    }
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK)
        status = pst_engine_output(s->forward->by.engine, t->index,
                                   !pstl_is_first(s) ? NULL
                                   : direct          ? view->data
                                                     : whole,
                                   diag);
    if (status == PST_OK && !direct)
        status = pstl_push(s, whole, view, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK && pstl_is_first(s))
        atomic_fetch_add(&s->copies.written, pst_meta_bytes(&t->meta));
    pst_free(whole);
    return status;
}

int penstock_output(penstock_session *session, size_t output, DLTensor *dst,
                    struct penstock_error *error)
{
    struct pstl_view view = {0};
    char number[24];
    const struct pstl_collective call = {
        .name = "output", .what = number, .phase = PST_ALIVE_GATHER};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    (void)snprintf(number, sizeof(number), "%zu", output);
    status = pstl_call_settle(
        session, &call, view_output(session, output, dst, &view, &diag), &diag);
    if (status == PST_OK)
        status = copy_output(session, output, &view, &diag);
    return pstl_session_release(session, status, &diag, error);
}
