// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_ENDS_H
#define PENSTOCK_DAEMON_CTL_RUN_ENDS_H
/*
 * How a supervised job ended each time, for people and programs that come
 * later: `last_exit.json` and `supervisor.log` in the folder of --log-dir, else
 * of --checkpoint. One thread.
 */
#include "daemon/common/logfile.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/run/launch.h"

/* name in last_exit.json and the log, what it means */
#define PSTCTL_CAUSE_LIST(X)                                                   \
    X(DONE, "done")             /* the run came to its end */                  \
    X(STOPPED, "stopped")       /* somebody asked it to end */                 \
    X(FAULT, "fault")           /* the run itself could not go on */           \
    X(REFUSED, "refused")       /* options or files, at the start */           \
    X(SIGNAL, "signal")         /* a rank was killed */                        \
    X(OOM, "oom")               /* the same, for want of memory */             \
    X(EXIT, "exit")             /* a rank left with an exit code */            \
    X(WATCHDOG, "watchdog")     /* a rank stood still */                       \
    X(CORRUPTION, "corruption") /* copies of a parameter differ */             \
    X(LAUNCHER, "launcher")     /* mpirun was killed */                        \
    X(HOSTS, "hosts")           /* too few of them were there to start */

enum pstctl_cause {
#define PSTCTL_CAUSE_ROW(id, name) PSTCTL_CAUSE_##id,
    PSTCTL_CAUSE_LIST(PSTCTL_CAUSE_ROW)
#undef PSTCTL_CAUSE_ROW
};

const char *pstctl_cause_name(enum pstctl_cause cause);

struct pstctl_end {
    enum pstctl_cause cause;
    int rank;        /* the first that is known to be at fault; -1: none */
    char stages[64]; /* of that rank; "": not known */
    int signal;      /* 0: none */
    int exit_code;   /* of that rank, else of all; -1: none */
    char text[PST_DIAG_TEXT];
    enum pst_error error; /* that the text is of */
    uint64_t step;        /* newest that was seen to end */
    uint64_t checkpoint;  /* newest good one; 0: none */
    uint64_t restarts;    /* before this end */
    bool again;           /* it is started again, after delay_s */
    unsigned delay_s;
    unsigned ranks;      /* of the job, all replicas, that ended */
    unsigned next_ranks; /* that are started again; 0: none */
    bool paused;         /* and they are paused again */
    bool replaced;       /* by another file of the program */
    char undone[256];    /* changes of the model that no checkpoint has */
};

/* True if a rank, its host or the way to it was lost, rather than that the rank
 * itself ended with a fault of its own: fewer ranks may go on. */
bool pstctl_end_is_loss(const struct pstctl_end *end);

/* Fills cause, rank, stages, signal, exit_code and text of a job that died;
 * oom: the kernel has killed a process for memory meanwhile. */
void pstctl_end_of(const struct pstctl_launch *launch, const char *placement,
                   bool oom, const struct pst_diag *why,
                   struct pstctl_end *ret);

struct pstctl_record {
    char *dir;    /* NULL: nothing is written */
    bool has_log; /* it is that of --log-dir, else that of checkpoints */
    const char *job;
    const char *beside; /* file at the socket, while the job is started again */
    /* Set after open: beside is written while the job has its name; or NULL. */
    const struct pstctl_owner *owner;
    struct pstd_logfile log;
    uint64_t seq;
};

/* config, job and beside are borrowed until close. */
enum pst_status pstctl_record_open(struct pstctl_record *r,
                                   const struct pstd_config *config,
                                   const char *job, const char *beside,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* What cannot be written is told on standard error. */
void pstctl_record_end(struct pstctl_record *r, const struct pstctl_end *end);
void pstctl_record_close(struct pstctl_record *r);
/* Of a job that has no record: how one before it ended in that folder, which
 * may be NULL, is removed. */
void pstctl_record_forget(const char *dir);

#endif
