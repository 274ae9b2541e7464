// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_ENDS_H
#define PENSTOCK_DAEMON_CTL_RUN_ENDS_H
/*
 * Records each end of a supervised job's ranks: in the file `last_exit.json` of
 * the folder --log-dir, else --checkpoint, and in `supervisor.log` of the
 * folder --log-dir. One thread.
 */
#include "daemon/common/logfile.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/run/launch.h"

/* Causes of an end: X(id, name in last_exit.json and in the log) */
#define PSTCTL_CAUSE_LIST(X)                                                   \
    X(DONE, "done")             /* the run was completed */                    \
    X(STOPPED, "stopped")       /* the job was asked to end */                 \
    X(FAULT, "fault")           /* the run itself failed */                    \
    X(REFUSED, "refused")       /* invalid options or files at the start */    \
    X(SIGNAL, "signal")         /* a rank was killed by a signal */            \
    X(OOM, "oom")               /* the kernel killed a rank for memory */      \
    X(EXIT, "exit")             /* a rank ended with an exit code */           \
    X(WATCHDOG, "watchdog")     /* a rank hung */                              \
    X(CORRUPTION, "corruption") /* copies of a parameter differ */             \
    X(LAUNCHER, "launcher")     /* mpirun was killed */                        \
    X(HOSTS, "hosts")           /* too few hosts were available to start */

enum pstctl_cause {
#define PSTCTL_CAUSE_ROW(id, name) PSTCTL_CAUSE_##id,
    PSTCTL_CAUSE_LIST(PSTCTL_CAUSE_ROW)
#undef PSTCTL_CAUSE_ROW
};

const char *pstctl_cause_name(enum pstctl_cause cause);

struct pstctl_end {
    enum pstctl_cause cause;
    int rank;        /* the first rank known to be at fault; -1: none */
    char stages[64]; /* stages of `rank`; "": unknown */
    int signal;      /* signal that killed `rank` or mpirun; 0: none */
    int exit_code;   /* exit code of `rank`, else of the job; -1: none */
    char text[PST_DIAG_TEXT];
    enum pst_error error; /* catalogue row of `text` */
    uint64_t step;        /* newest finished step that is known */
    uint64_t checkpoint;  /* step of the newest good checkpoint; 0: none */
    uint64_t restarts;    /* number of restarts before this end */
    bool again;           /* the job is restarted after delay_s */
    unsigned delay_s;     /* seconds until the restart */
    unsigned ranks;       /* ranks of the job that ended, in all replicas */
    unsigned next_ranks;  /* ranks of the restarted job; 0: not restarted */
    bool paused;          /* the run was paused, and begins paused again */
    bool replaced;        /* the next start runs another program file */
    char undone[256]; /* changes of the model that no checkpoint contains, and
                         that a restart or resume therefore undoes: "froze
                         blocks.*" */
};

/* True if a rank, its host or the connection to it was lost, in contrast to a
 * failure of the rank itself: the job may continue with fewer ranks. */
bool pstctl_end_is_loss(const struct pstctl_end *end);

/* Sets cause, rank, stages, signal, exit_code, error and text for a job that
 * died. oom: the kernel has killed a process for lack of memory while the job
 * ran. */
void pstctl_end_describe(const struct pstctl_launch *launch,
                         const char *placement, bool oom,
                         const struct pst_diag *why, struct pstctl_end *ret);

/* For a job whose end is not recorded: adds to the error that the kernel has
 * probably killed the job for lack of memory. oom: as for pstctl_end_describe.
 */
void pstctl_end_explain(const struct pstctl_launch *launch, bool oom,
                        struct pst_diag *diag);

struct pstctl_record {
    char *dir;    /* NULL: nothing but `beside` is written */
    bool has_log; /* true: dir is --log-dir; false: dir is --checkpoint */
    const char *job;
    const char *beside; /* file beside the socket, written if the job is
                           restarted */
    /* Owner of the job's name, set by the caller after open. If not NULL,
     * `beside` is only written while the job owns the name. */
    const struct pstctl_owner *owner;
    struct pstd_logfile log;
    uint64_t seq;
};

/* Creates the folder and opens the log. Borrows job and beside until close. */
enum pst_status pstctl_record_open(struct pstctl_record *r,
                                   const struct pstd_config *config,
                                   const char *job, const char *beside,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Records an end; prints write errors on standard error. */
void pstctl_record_end(struct pstctl_record *r, const struct pstctl_end *end);
void pstctl_record_close(struct pstctl_record *r);
/* Removes the record that an earlier job has left in the folder dir (NULL: does
 * nothing). For a job that keeps no record. */
void pstctl_record_remove(const char *dir);

#endif
