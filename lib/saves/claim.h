// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_LIB_SAVES_CLAIM_H
#define PENSTOCK_LIB_SAVES_CLAIM_H
/* The checkpoint folder that a session saves to. Rank 0; called between
 * pstl_acquire and pstl_release. */
#include "lib/object.h"

/* Takes ownership of the folder, or checks that the session still owns it.
 * Refuses the folder if another program has changed it (folders.h). Moves
 * checkpoints that are not in the session's past into folder/former-N. */
enum pst_status pstl_claim_ensure(penstock_session *session, const char *folder,
                                  struct pst_diag *diag) PST_MUST_CHECK;
/* Records the checkpoint that the session has saved there. If it cannot be
 * read, any checkpoint of that step counts as the session's. */
void pstl_claim_record(penstock_session *session, const char *folder);
/* Gives up the folder, if there is one. */
void pstl_claim_release(penstock_session *session);
/* Frees the session's data about its folder, in a process that was forked from
 * the owner. */
void pstl_claim_abandon(penstock_session *session);

#endif
