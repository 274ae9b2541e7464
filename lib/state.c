// SPDX-License-Identifier: Apache-2.0
/* Parameters and buffers of a session. */
#include <stdio.h>
#include <string.h>

#include "lib/collective.h"
#include "lib/guest.h"
#include "stages/base/alloc.h"
#include "stages/run/state/values.h"

#define TAG PST_TAG_CLIENT

/* Finds a parameter or buffer by any of its names. */
static enum pst_status find_tensor(const penstock_session *s, const char *name,
                                   const struct pstl_tensor **ret,
                                   struct pst_diag *diag)
{
    int index;

    if (name == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT, "name is NULL");
    index = pst_plan_find_param(pstl_plan(s), name);
    for (int kind = PENSTOCK_PARAMETER; kind <= PENSTOCK_BUFFER; kind++) {
        const struct pstl_tensors *all = pstl_state_of(s, kind);

        for (size_t i = 0; i < all->n; i++)
            if ((int)all->at[i].index == index) {
                *ret = &all->at[i];
                return PST_OK;
            }
    }
    return pst_diag_set(diag, PST_E_LIBRARY_NAME,
                        "the model has no parameter or buffer '%.200s'", name);
}

/* Returns the contiguous meta with which the tensor is sent between ranks. */
static struct pst_meta whole_of(const struct pstl_tensor *t)
{
    struct pst_meta meta = t->meta;

    pst_meta_set_contiguous(&meta);
    return meta;
}

/* Finds a parameter or buffer by name and checks the caller's tensor for it.
 * *ret_at: memory that the ranks read or write. That is the caller's memory if
 * it is contiguous host memory and all ranks are in this process; otherwise a
 * new buffer, which is returned owned in *ret_copy. reads: every rank gives a
 * tensor to read from; otherwise rank 0 gives one to write to. */
static enum pst_status view_state(const penstock_session *s, const char *name,
                                  const DLTensor *given, bool reads,
                                  const struct pstl_tensor **ret_tensor,
                                  struct pstl_view *ret, void **ret_copy,
                                  void **ret_at, struct pst_diag *diag)
{
    enum pst_status status = find_tensor(s, name, ret_tensor, diag);

    if (status == PST_OK && (reads || pstl_is_first(s)))
        status = pstl_take(s, *ret_tensor, given, !reads, ret, diag);
    if (status != PST_OK)
        return status;
    *ret_at = ret->data;
    if (s->transport->ops->one_process && ret->gpu < 0 &&
        pst_meta_is_contiguous(&ret->meta) &&
        (!reads || ret->meta.dtype != PST_BOOL))
        return PST_OK;
    *ret_at = *ret_copy = pst_alloc(TAG, pst_meta_bytes(&(*ret_tensor)->meta));
    return *ret_copy != NULL
               ? PST_OK
               : pst_diag_nomem(diag, pst_meta_bytes(&(*ret_tensor)->meta));
}

static enum pst_status refuse_untrained(const char *name, struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                        "'%.200s' is not trained: it has no gradient", name);
}

typedef enum pst_status (*fetch_fn)(struct pst_engine *engine, unsigned param,
                                    void *dst, struct pst_diag *diag);

/* Copies the tensor to a view on the same GPU, if all ranks are in this process
 * and one of them has the whole tensor. *ret_done: it was copied. */
static enum pst_status copy_on_gpu(const penstock_session *s,
                                   const struct pstl_tensor *tensor,
                                   const struct pstl_view *view, fetch_fn fetch,
                                   bool *ret_done, struct pst_diag *diag)
{
    struct pst_device_memory *mem = NULL;
    const void *from;

    *ret_done = false;
    if (!s->transport->ops->one_process || view->gpu < 0)
        return PST_OK;
    from = fetch == pst_engine_fetch_grad
               ? pst_engine_grad_value(s->engine, tensor->index, &mem)
               : pst_engine_value(s->engine, tensor->index, &mem);
    return pstl_move(mem, from, view, ret_done, diag);
}

/* COLLECTIVE. Begins a call for a tensor; ranks compare its name. tensor NULL:
 * the caller's name was not found. */
static enum pst_status settle(penstock_session *s, const char *call,
                              const struct pstl_tensor *tensor,
                              const char *name, enum pst_status status,
                              struct pst_diag *diag)
{
    const struct pstl_collective c = {.name = call,
                                      .what =
                                          tensor != NULL ? tensor->name : name,
                                      .phase = PST_ALIVE_GATHER};

    return pstl_call_settle(s, &c, status, diag);
}

/* Copies a parameter, buffer or gradient to the caller's tensor on rank 0, to
 * which `fetch` sends it. before: an error found already; PST_OK: none. */
static enum pst_status copy_to_caller(penstock_session *s, const char *name,
                                      DLTensor *dst, fetch_fn fetch,
                                      enum pst_status before,
                                      struct pst_diag *diag)
{
    const bool is_grad = fetch == pst_engine_fetch_grad;
    const struct pstl_tensor *tensor = NULL;
    struct pstl_view view = {0};
    void *copy = NULL, *at = NULL;
    enum pst_status status = before;
    bool done = false;

    if (status == PST_OK)
        status =
            view_state(s, name, dst, false, &tensor, &view, &copy, &at, diag);
    if (status == PST_OK && is_grad && !tensor->trained)
        status = refuse_untrained(name, diag);
    status =
        settle(s, is_grad ? "gradient" : "get", tensor, name, status, diag);
    if (status != PST_OK) {
        pst_free(copy);
        return status;
    }
    status = copy_on_gpu(s, tensor, &view, fetch, &done, diag);
    if (status == PST_OK && !done)
        status =
            fetch(s->engine, tensor->index, pstl_is_first(s) ? at : NULL, diag);
    if (status == PST_OK && copy != NULL && !done && pstl_is_first(s))
        status = pstl_push(s, copy, &view, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK && pstl_is_first(s))
        atomic_fetch_add(&s->copies.written, pst_meta_bytes(&tensor->meta));
    pst_free(copy);
    return status;
}

int penstock_get(penstock_session *session, const char *name, DLTensor *dst,
                 struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = copy_to_caller(session, name, dst, pst_engine_fetch_param, PST_OK,
                            &diag);
    return pstl_session_release(session, status, &diag, error);
}

int penstock_gradient(penstock_session *session, const char *name,
                      DLTensor *dst, struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (!session->has_grads)
        status = pst_diag_set(&diag, PST_E_LIBRARY_ORDER,
                              "there is no gradient: the last step of training "
                              "has failed, or none was made");
    status = copy_to_caller(session, name, dst, pst_engine_fetch_grad, status,
                            &diag);
    return pstl_session_release(session, status, &diag, error);
}

typedef enum pst_status (*write_fn)(struct pst_engine *engine, unsigned param,
                                    const void *src, struct pst_diag *diag);

static enum pst_status replace_grad(struct pst_engine *engine, unsigned param,
                                    const void *src, struct pst_diag *diag)
{
    return pst_engine_write_grad(engine, param, src, false, diag);
}

static enum pst_status add_grad(struct pst_engine *engine, unsigned param,
                                const void *src, struct pst_diag *diag)
{
    return pst_engine_write_grad(engine, param, src, true, diag);
}

/* Sets a parameter, buffer or gradient by `write` on all ranks, which give the
 * same bytes. before: an error found already; PST_OK: none. */
static enum pst_status set(penstock_session *s, const char *name,
                           const DLTensor *src, write_fn write,
                           enum pst_status before, struct pst_diag *diag)
{
    const struct pstl_tensor *tensor = NULL;
    struct pstl_view view = {0};
    void *copy = NULL, *at = NULL;
    enum pst_status status = before;

    if (status == PST_OK)
        status =
            view_state(s, name, src, true, &tensor, &view, &copy, &at, diag);
    if (status == PST_OK && write != pst_engine_write_param && !tensor->trained)
        status = refuse_untrained(name, diag);
    status = settle(s,
                    write == pst_engine_write_param ? "set"
                    : write == add_grad             ? "set_gradient with add"
                                                    : "set_gradient",
                    tensor, name, status, diag);
    if (status == PST_OK) {
        const struct pst_meta whole = whole_of(tensor);

        if (copy != NULL)
            status = pstl_pull(s, &view, copy, diag);
        status = pst_transport_agree(s->transport, status, diag);
        if (status == PST_OK)
            status = pstl_check_same(s, name, at, pst_meta_bytes(&whole), diag);
    }
    if (status == PST_OK)
        status = pst_transport_agree(
            s->transport, write(s->engine, tensor->index, at, diag), diag);
    if (status == PST_OK)
        atomic_fetch_add(&s->copies.read, pst_meta_bytes(&tensor->meta));
    pst_free(copy);
    return status;
}

int penstock_set(penstock_session *session, const char *name,
                 const DLTensor *src, struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    status = set(session, name, src, pst_engine_write_param, PST_OK, &diag);
    if (status == PST_OK)
        session->changes++;
    return pstl_session_release(session, status, &diag, error);
}

int penstock_set_gradient(penstock_session *session, const char *name,
                          const DLTensor *src, int add,
                          struct penstock_error *error)
{
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (!session->is_half)
        status = pst_diag_set(&diag, PST_E_LIBRARY_ORDER,
                              "a gradient can be set after "
                              "penstock_forward_backward and before "
                              "penstock_update");
    status = set(session, name, src, add != 0 ? add_grad : replace_grad, status,
                 &diag);
    return pstl_session_release(session, status, &diag, error);
}
