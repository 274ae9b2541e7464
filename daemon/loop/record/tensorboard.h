// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_TENSORBOARD_H
#define PENSTOCK_DAEMON_LOOP_RECORD_TENSORBOARD_H
/*
 * Event files for TensorBoard (--tensorboard): one file per start of the job,
 * events.out.tfevents.SECONDS.HOST.PID in that folder. Its records are
 * TFRecords (length, masked CRC32C of the length, data, masked CRC32C of the
 * data) of Event messages (proto/tensorboard.proto), each written by one call:
 * if the process is killed, the last record may be incomplete. A run that
 * continues from an earlier step, after a restart or a rollback, records that
 * step, and readers drop later ones. Loop thread.
 */
#include "daemon/common/logfile.h"

struct pstd_tensorboard {
    int fd; /* -1: nothing is written */
    char *path;
    bool begun; /* the first record, the version, has been written */
    /* failing: the last record could not be written; reported: an event says
     * so. */
    bool failing, reported;
    struct pst_diag why;
};

#define PSTD_TENSORBOARD_NONE                                                  \
    {                                                                          \
        .fd = -1                                                               \
    }

/* Creates the folder, if needed, and a file. Even after an error the caller may
 * add notes, and calls close. */
enum pst_status pstd_tensorboard_open(struct pstd_tensorboard *t,
                                      const char *dir,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Writes the numbers of the note. If that fails, removes a partly written
 * record, and sets `failing` until a record is written. */
void pstd_tensorboard_note(struct pstd_tensorboard *t,
                           const struct pstd_note *note, uint64_t time_us);
void pstd_tensorboard_close(struct pstd_tensorboard *t);

#endif
