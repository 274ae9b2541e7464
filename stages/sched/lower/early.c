// SPDX-License-Identifier: Apache-2.0
#include "stages/sched/lower/lower.h"

#include <string.h>

/* Moves the receives of one list up, each by `early` compute actions. No
 * receive may move down: if a receive comes after a send of its own rank, the
 * peer of that send may wait for the receive. */
enum pst_status pst_lower_early(struct pst_action *list, size_t n,
                                unsigned early, struct pst_diag *diag)
{
    struct pst_action *moved = pst_calloc(PST_TAG_PLAN, n, sizeof(*moved));
    size_t *computes = pst_calloc(PST_TAG_PLAN, n, sizeof(*computes));
    size_t n_computes = 0, n_moved = 0;

    if (!moved || !computes) {
        pst_free(computes);
        pst_free(moved);
        return pst_diag_nomem(diag, n * sizeof(*moved));
    }
    for (size_t i = 0; i < n; i++)
        if (pst_action_is_compute(&list[i]))
            computes[n_computes++] = i;
    for (size_t i = 0, recv = 0, before = 0; i < n; i++) {
        /* `before` compute actions precede receive number `recv`, which is
         * written next. */
        for (; recv < n; recv++) {
            size_t target = recv;

            before += pst_action_is_compute(&list[recv]);
            if (!pst_action_receives(list[recv].kind))
                continue;
            if (early && before)
                target = computes[before > early ? before - early : 0];
            if (target > i)
                break;
            moved[n_moved++] = list[recv];
        }
        if (!pst_action_receives(list[i].kind))
            moved[n_moved++] = list[i];
    }
    if (n > 0) /* the pointer of an empty list may be NULL */
        memcpy(list, moved, n * sizeof(*moved));
    pst_free(computes);
    pst_free(moved);
    return PST_OK;
}
