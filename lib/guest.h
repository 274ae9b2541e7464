// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_GUEST_H
#define PENSTOCK_LIB_GUEST_H
/*
 * Tensors of the caller for the calls of a session, on the CPU or in the memory
 * of a GPU that the session uses. Copies begin after the work that the caller
 * has enqueued in the default stream, and are complete when the function
 * returns. A view without elements may have any address on a GPU. Functions are
 * called between steps by the thread that has acquired the session, unless
 * noted otherwise.
 */
#include "lib/object.h"

/* Stores the current device of the calling thread in session->caller, since
 * calls of the session's device change it. */
void pstl_thread_keep(penstock_session *session);
/* Sets it again. */
void pstl_thread_restore(const struct pstl_thread *caller);

/* Like pstl_view_make, but also refuses memory of a GPU that no rank of this
 * process uses, an address that the GPU does not know, and an address that is
 * not aligned to an element. A kernel that reads at such an address makes the
 * GPU unusable for the whole process. */
enum pst_status pstl_take(const penstock_session *session,
                          const struct pstl_tensor *wanted,
                          const DLTensor *given, bool writes,
                          struct pstl_view *ret,
                          struct pst_diag *diag) PST_MUST_CHECK;

/* Copies the view to contiguous host memory at dst. Invalid bytes of a bool
 * tensor become valid values. */
enum pst_status pstl_pull(const penstock_session *session,
                          const struct pstl_view *view, void *dst,
                          struct pst_diag *diag) PST_MUST_CHECK;
/* Copies contiguous host memory at src to the view. */
enum pst_status pstl_push(const penstock_session *session, const void *src,
                          const struct pstl_view *view,
                          struct pst_diag *diag) PST_MUST_CHECK;
/* Copies contiguous memory at src, which belongs to `mem`, to the view if that
 * is on the same GPU. *ret_done: it was copied. src NULL: does nothing. */
enum pst_status pstl_move(struct pst_device_memory *mem, const void *src,
                          const struct pstl_view *view, bool *ret_done,
                          struct pst_diag *diag) PST_MUST_CHECK;

/* Replaces the view of an input by a view of a copy in host memory, which is
 * valid until the next call for that input, or until pstl_drop_copies. */
enum pst_status pstl_copy_input(penstock_session *session, unsigned input,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* Copies each input in GPU memory to host memory, in session->hosts, if stages
 * cannot read it on that GPU: bool inputs, which may have invalid bytes, inputs
 * without elements, and inputs that ranks on another GPU or in another process
 * read. */
enum pst_status pstl_copy_inputs(penstock_session *session,
                                 struct pst_diag *diag) PST_MUST_CHECK;
void pstl_drop_copies(penstock_session *session);
/* Makes the ranks of the engine wait for the work that the caller has enqueued,
 * if an input is in memory of a GPU. */
void pstl_join(const penstock_session *session,
               const struct pst_engine *engine);
/* A pst_lend_fn for an input in memory of a GPU. from: address of a
 * microbatch's part of the input, with the sizes of `meta`. Any thread. */
bool pstl_lend_guest(penstock_session *session,
                     const struct pst_device_memory *reader, bool in_place,
                     unsigned input, const struct pst_meta *meta,
                     const void *from, struct pst_lent *ret);
/* Waits until the last call has written all parameters and outputs that
 * penstock_view has returned. */
void pstl_settle_views(penstock_session *session);

#endif
