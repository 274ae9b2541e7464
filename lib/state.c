// SPDX-License-Identifier: Apache-2.0
/* Parameters, buffers and checkpoints of a session. */
#include <stdio.h>
#include <string.h>

#include "lib/object.h"
#include "stages/base/alloc.h"
#include "stages/files/checkpoint/owner.h"

#define TAG PST_TAG_CLIENT

/* --- tensors -------------------------------------------------------------- */

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

/* Returns the meta of the tensor as it is sent between ranks: contiguous. */
static struct pst_meta whole_of(const struct pstl_tensor *t)
{
    struct pst_meta meta = t->meta;

    pst_meta_set_contiguous(&meta);
    return meta;
}

/* Finds a parameter or buffer by name, checks the caller's tensor for it, and
 * sets *ret_at to where the ranks have or want it: in the caller's memory if
 * that is contiguous and no other process takes part, else in a new buffer,
 * which *ret_copy owns. reads: every rank gives a tensor to read from; else
 * rank 0 gives one to write to. */
static enum pst_status view_state(const penstock_session *s, const char *name,
                                  const DLTensor *given, bool reads,
                                  const struct pstl_tensor **ret_tensor,
                                  struct pstl_view *ret, void **ret_copy,
                                  void **ret_at, struct pst_diag *diag)
{
    enum pst_status status = find_tensor(s, name, ret_tensor, diag);

    if (status == PST_OK && (reads || pstl_is_first(s)))
        status = pstl_view_make(*ret_tensor, given, !reads, ret, diag);
    if (status != PST_OK)
        return status;
    *ret_at = ret->data;
    if (s->transport->ops->one_process && pst_meta_is_contiguous(&ret->meta) &&
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

/* Copies a parameter, buffer or gradient to the caller's tensor on rank 0, to
 * which `fetch` sends it. before: an error found already; PST_OK: none. */
static enum pst_status copy_to_caller(penstock_session *s, const char *name,
                                      DLTensor *dst, fetch_fn fetch,
                                      enum pst_status before,
                                      struct pst_diag *diag)
{
    const struct pstl_tensor *tensor = NULL;
    struct pstl_view view = {0};
    void *copy = NULL, *at = NULL;
    enum pst_status status = before;

    if (status == PST_OK)
        status =
            view_state(s, name, dst, false, &tensor, &view, &copy, &at, diag);
    if (status == PST_OK && fetch == pst_engine_fetch_grad && !tensor->trained)
        status = refuse_untrained(name, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK)
        status =
            fetch(s->engine, tensor->index, pstl_is_first(s) ? at : NULL, diag);
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK && pstl_is_first(s)) {
        const struct pst_meta whole = whole_of(tensor);

        if (copy != NULL)
            pst_copy_strided(&whole, copy, &view.meta, view.data);
        atomic_fetch_add(&s->copies.written, pst_meta_bytes(&whole));
    }
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
    status = pst_transport_agree(s->transport, status, diag);
    if (status == PST_OK) {
        const struct pst_meta whole = whole_of(tensor);

        if (copy != NULL)
            pstl_view_read(&view.meta, view.data, &whole, copy);
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

/* --- checkpoints ---------------------------------------------------------- */

void pstl_state_release(penstock_session *s)
{
    pst_checkpoint_release(s->owner);
    pst_free(s->folder);
    s->owner = NULL;
    s->folder = NULL;
}

/* Takes ownership of the folder for this session. Rank 0. */
static enum pst_status claim_folder(penstock_session *s, const char *folder,
                                    struct pst_diag *diag)
{
    const struct pst_plan *plan = s->model->opened.plan;
    struct pst_checkpoint_claim claim = {.dir = folder,
                                         .model_digest = plan->model_digest,
                                         .identity = plan->identity,
                                         .run = s->run,
                                         .make = true};
    struct pst_checkpoint_former former = {0};
    struct pst_checkpoint_run whose = {0};
    enum pst_status status;

    pstl_state_release(s);
    if (s->run[0] == '\0')
        pst_checkpoint_name_run(s->run);
    status = pst_checkpoint_read_run(folder, &whose, diag);
    if (status == PST_OK) {
        claim.resume = strcmp(whose.name, s->run) == 0;
        claim.fallback = claim.resume ? whose.fallback : NULL;
        status = pst_checkpoint_acquire(&claim, &s->owner, &former, diag);
        if (status != PST_OK && diag->error == PST_E_CHECKPOINT_OTHER_RUN)
            status =
                pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                             "the folder %.500s has checkpoints of another "
                             "run: go on from the newest one with "
                             "penstock_load, or save to another folder",
                             folder);
    }
    pst_free(whose.fallback);
    if (status != PST_OK)
        return status;
    s->folder = pst_strdup(TAG, folder);
    if (s->folder == NULL)
        return pst_diag_nomem(diag, strlen(folder));
    return PST_OK;
}

/* Sets *ret to the latest step that has a checkpoint in the folder; 0: none. */
static enum pst_status find_newest_step(const char *folder, uint64_t *ret,
                                        struct pst_diag *diag)
{
    struct pst_checkpoint_rows rows = {0};
    const enum pst_status status =
        pst_checkpoint_table(folder, false, &rows, diag);

    *ret = rows.n > 0 ? rows.at[0].step : 0;
    pst_vec_fini(&rows);
    return status;
}

/* Moves checkpoints after the current step into folder/former-N: the session
 * has gone back from them with penstock_load, and otherwise they would stay the
 * newest. Refuses if another program has made them. */
static enum pst_status set_later_aside(penstock_session *s, const char *folder,
                                       struct pst_diag *diag)
{
    struct pst_checkpoint_former former = {0};
    struct pst_str text = {0};
    uint64_t newest;
    enum pst_status status = find_newest_step(folder, &newest, diag);

    if (status != PST_OK)
        return status;
    if (newest > s->newest)
        return pst_diag_set(diag, PST_E_CHECKPOINT_OTHER_RUN,
                            "the folder %.500s has a checkpoint of step %llu, "
                            "which another program has made: go on from it "
                            "with penstock_load, or save to another folder",
                            folder, (unsigned long long)newest);
    if (newest > s->step)
        status = pst_checkpoint_set_aside(folder, s->step, &former, diag);
    if (status != PST_OK || former.n == 0)
        return status;
    pst_str_addf(&text,
                 "the run has gone back to step %llu: %u later checkpoints, up "
                 "to step %llu, are now in %s/%s",
                 (unsigned long long)s->step, former.n,
                 (unsigned long long)former.step, folder, former.folder);
    pstl_send_note(&s->messages, pst_str_text(&text));
    pst_str_fini(&text);
    return PST_OK;
}

/* Takes ownership of the folder, or checks that the session still has it. */
static enum pst_status ensure_claim(penstock_session *s, const char *folder,
                                    struct pst_diag *diag)
{
    enum pst_status status;

    if (s->is_half)
        return pst_diag_set(diag, PST_E_LIBRARY_ORDER,
                            "penstock_forward_backward has begun a step: call "
                            "penstock_update before a checkpoint");
    if (folder == NULL || *folder == '\0')
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the folder is NULL or empty");
    if (!pstl_is_first(s))
        return PST_OK;
    if (s->owner == NULL || s->folder == NULL || strcmp(s->folder, folder) != 0)
        status = claim_folder(s, folder, diag);
    else if ((status = pst_checkpoint_check_owner(s->owner, diag)) == PST_OK)
        status = pst_checkpoint_restore_owner(s->owner, diag);
    return status == PST_OK ? set_later_aside(s, folder, diag) : status;
}

int penstock_save(penstock_session *session, const char *folder,
                  struct penstock_error *error)
{
    char bad[PST_CHECKPOINT_REASON] = "";
    struct pst_save_note note = {.course = session->course, .ret_bad = bad};
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    note.changes = session->changes;
    status = pst_transport_agree(session->transport,
                                 ensure_claim(session, folder, &diag), &diag);
    if (status == PST_OK)
        status = pst_transport_agree(
            session->transport,
            pst_engine_save(session->engine, folder, session->step,
                            (unsigned)session->config.keep, &note, &diag),
            &diag);
    if (status == PST_OK)
        session->newest = PST_MAX(session->newest, session->step);
    if (status == PST_OK && bad[0] != '\0') {
        struct pst_str text = {0};

        pst_str_addf(&text,
                     "the checkpoint of step %llu is marked as bad, and is not "
                     "loaded: %s",
                     (unsigned long long)session->step, bad);
        pstl_send_note(&session->messages, pst_str_text(&text));
        pst_str_fini(&text);
    }
    return pstl_session_release(session, status, &diag, error);
}

static void report_skipped(void *ctx, const char *dir, uint64_t step,
                           const char *text)
{
    (void)dir;
    (void)step;
    pstl_send_note(ctx, text);
}

/* COLLECTIVE. Loads, and marks the session as failed if some of its values are
 * those of the checkpoint and others are not. */
static enum pst_status load_checkpoint(penstock_session *s, const char *folder,
                                       struct pst_checkpoint_info *ret,
                                       struct pst_diag *diag)
{
    bool begun = false;
    struct pst_str differs = {0};
    const struct pst_load_choice choice = {.dir = folder,
                                           .step = PST_CHECKPOINT_LATEST,
                                           .begun = &begun,
                                           .differs = &differs,
                                           .skipped = report_skipped,
                                           .ctx = &s->messages};
    enum pst_status status =
        pst_engine_load(s->engine, &choice, ret, NULL, diag);

    if (status != PST_OK &&
        pst_transport_agree(s->transport, begun ? PST_ERR_INTERNAL : PST_OK,
                            NULL) != PST_OK)
        s->failed = true;
    if (status == PST_OK && differs.len > 0)
        pstl_send_note(&s->messages, pst_str_text(&differs));
    pst_str_fini(&differs);
    return status;
}

int penstock_load(penstock_session *session, const char *folder,
                  uint64_t *ret_step, struct penstock_error *error)
{
    struct pst_checkpoint_info info;
    struct pst_diag diag;
    enum pst_status status = pstl_session_acquire(session, &diag);

    if (status != PST_OK)
        return pstl_return(status, &diag, error);
    if (folder == NULL || *folder == '\0')
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT,
                              "the folder is NULL or empty");
    status = pst_transport_agree(session->transport, status, &diag);
    if (status == PST_OK)
        session->has_grads = session->is_half = false;
    if (status == PST_OK)
        status = load_checkpoint(session, folder, &info, &diag);
    if (status == PST_OK) {
        session->step = info.step;
        session->changes = info.changes;
        session->course = info.course;
        if (ret_step != NULL)
            *ret_step = info.step;
    }
    if (status == PST_OK && pstl_is_first(session)) {
        struct pst_checkpoint_run whose = {0};
        uint64_t newest = info.step;

        if (find_newest_step(folder, &newest, NULL) != PST_OK)
            newest = info.step;
        session->newest = PST_MAX(session->newest, newest);
        /* Later saves to that folder continue its run. */
        if (pst_checkpoint_read_run(folder, &whose, NULL) == PST_OK &&
            whose.name[0] != '\0') {
            memcpy(session->run, whose.name, sizeof(session->run));
            session->course = PST_MAX(session->course, whose.course);
        }
        pst_free(whose.fallback);
    }
    return pstl_session_release(session, status, &diag, error);
}
