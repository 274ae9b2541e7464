// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_GUEST_H
#define PENSTOCK_LIB_GUEST_H
/*
 * Tensors of the caller for the calls of a session: on the CPU, or in the
 * memory of a GPU of the session's. Copies wait for what the caller has
 * enqueued in the default stream, and are done when they return. A view of a
 * GPU without elements may have any address. By the thread that has the
 * session, between steps, except where it says otherwise.
 */
#include "lib/object.h"

/* Notes the current device of the calling thread, which calls of the session's
 * device change, in session->caller. */
void pstl_thread_keep(penstock_session *session);
/* Sets it again. */
void pstl_thread_restore(const struct pstl_thread *caller);

/* pstl_view_make, which also refuses memory of a GPU that no rank of this
 * process computes on, an address that the GPU does not know, and one that is
 * not aligned to an element: a kernel that reads there ends the whole process's
 * use of the GPU. */
enum pst_status pstl_take(const penstock_session *session,
                          const struct pstl_tensor *wanted,
                          const DLTensor *given, bool writes,
                          struct pstl_view *ret,
                          struct pst_diag *diag) PST_MUST_CHECK;

/* Copies the view to dst, contiguous, in host memory; foreign bytes become
 * valid values. */
enum pst_status pstl_pull(const penstock_session *session,
                          const struct pstl_view *view, void *dst,
                          struct pst_diag *diag) PST_MUST_CHECK;
/* Copies src, contiguous, in host memory, to the view. */
enum pst_status pstl_push(const penstock_session *session, const void *src,
                          const struct pstl_view *view,
                          struct pst_diag *diag) PST_MUST_CHECK;
/* Copies src, contiguous, in `mem`, to the view, if that is on the same GPU:
 * *ret_done. src NULL: does nothing. */
enum pst_status pstl_move(struct pst_device_memory *mem, const void *src,
                          const struct pstl_view *view, bool *ret_done,
                          struct pst_diag *diag) PST_MUST_CHECK;

/* Replaces the view of an input by a copy in host memory, which stays valid
 * until the next call for that input, or pstl_drop_copies. */
enum pst_status pstl_copy_input(penstock_session *session, unsigned input,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Makes such a copy, in session->hosts, of each input in memory of a GPU that
 * stages cannot read there: bool, whose bytes may be no valid values, those
 * without elements, and those that a rank of another GPU or process reads. */
enum pst_status pstl_copy_inputs(penstock_session *session,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstl_drop_copies(penstock_session *session);
/* Lets the ranks of the engine wait for the caller's work, if an input is in
 * memory of a GPU. */
void pstl_join(const penstock_session *session,
               const struct pst_engine *engine);
/* A pst_lend_fn for an input in memory of a GPU. from: a part of it, with the
 * sizes of `meta`. Any thread. */
bool pstl_lend_guest(penstock_session *session,
                     const struct pst_device_memory *reader, bool in_place,
                     unsigned input, const struct pst_meta *meta,
                     const void *from, struct pst_lent *ret);
/* Waits until parameters and outputs that penstock_view has returned are as
 * after the last call. */
void pstl_settle_views(penstock_session *session);

#endif
