// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_LOOP_RECORD_TENSORBOARD_H
#define PENSTOCK_DAEMON_LOOP_RECORD_TENSORBOARD_H
/*
 * Numbers of the job as TensorBoard reads them (--tensorboard): a file of each
 * start of the job in that folder, events.out.tfevents.SECONDS.HOST.PID. Its
 * records are TFRecords (length, masked CRC32C of it, bytes, masked CRC32C of
 * them) of Event messages (proto/tensorboard.proto), each written at once: of a
 * process that is killed the last one may be torn. A run that goes on behind
 * older steps, after a restart or a rollback, says from where, and readers give
 * up what they knew of later ones. Loop thread.
 */
#include "daemon/common/logfile.h"

struct pstd_tensorboard {
    int fd; /* -1: nothing is written */
    char *path;
    bool begun;         /* the version is written, which comes first */
    bool failing, told; /* the newest record was not written */
    struct pst_diag why;
};

#define PSTD_TENSORBOARD_NONE                                                  \
    {                                                                          \
        .fd = -1                                                               \
    }

/* Makes the folder, if it is not there, and a file. Whatever it returns, notes
 * may follow, and close is called for. */
enum pst_status pstd_tensorboard_open(struct pstd_tensorboard *t,
                                      const char *dir,
                                      struct pst_diag *diag) PST_MUST_CHECK;
/* Writes what the note says in numbers. A record that cannot be written is left
 * out whole, and `failing` says so until another one is. */
void pstd_tensorboard_note(struct pstd_tensorboard *t,
                           const struct pstd_note *note, uint64_t time_us);
void pstd_tensorboard_close(struct pstd_tensorboard *t);

#endif
