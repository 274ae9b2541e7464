// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/run/rest.h"

#include <unistd.h>

#include "daemon/common/control/frame.h"
#include "daemon/common/journal.h"
#include "stages/base/alloc.h"

#define HEAD 4 /* bytes of the length before each frame */

uint64_t pstctl_read_unsent(const char *journal, uint64_t from,
                            pstctl_unsent_fn fn, void *ctx)
{
    uint64_t lost = 0;
    struct pstd_journal j = PSTD_JOURNAL_NONE;
    struct pst_diag ignored;
    unsigned char *buffer = NULL;
    size_t size = 0;

    if (access(journal, F_OK) != 0 ||
        pstd_journal_open(journal, PSTD_JOURNAL_MAX, &j, &ignored) != PST_OK)
        return 0;
    lost = pstd_journal_first(&j) > from ? pstd_journal_first(&j) - from : 0;
    from = PST_MAX(from, pstd_journal_first(&j));
    for (; from < pstd_journal_next(&j); from++) {
        pstd_frame *frame = NULL;

        pstd_journal_get(&j, from, &buffer, &size);
        if (size > HEAD &&
            pstd_frame_unpack(buffer + HEAD, size - HEAD, PSTD_REPLY_FIELD,
                              &frame, &ignored) == PST_OK &&
            frame->body_case == PST__CONTROL__FRAME__BODY_EVENT)
            fn(ctx, frame->event);
        else
            lost++;
        pstd_frame_free(frame);
    }
    pst_free(buffer);
    pstd_journal_close(&j);
    return lost;
}
