// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_ENDS_H
#define PENSTOCK_DAEMON_CTL_RUN_ENDS_H
/*
 * Records how a supervised job has ended each time: `last_exit.json` and
 * `supervisor.log` in the folder of --log-dir, else of --checkpoint. One
 * thread.
 */
#include "daemon/common/logfile.h"
#include "daemon/ctl/job/owner.h"
#include "daemon/ctl/run/launch.h"

/* name in last_exit.json and the log, meaning */
#define PSTCTL_CAUSE_LIST(X)                                                   \
    X(DONE, "done")             /* the run was completed */                    \
    X(STOPPED, "stopped")       /* it was asked to end */                      \
    X(FAULT, "fault")           /* the run itself failed */                    \
    X(REFUSED, "refused")       /* invalid options or files at the start */    \
    X(SIGNAL, "signal")         /* a rank was killed */                        \
    X(OOM, "oom")               /* the same, because memory was out */         \
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
    char stages[64]; /* stages of that rank; "": unknown */
    int signal;      /* 0: none */
    int exit_code;   /* exit code of that rank, else of the job; -1: none */
    char text[PST_DIAG_TEXT];
    enum pst_error error; /* catalogue row of the text */
    uint64_t step;        /* newest finished step seen */
    uint64_t checkpoint;  /* newest good checkpoint; 0: none */
    uint64_t restarts;    /* before this end */
    bool again;           /* it is restarted after delay_s */
    unsigned delay_s;
    unsigned ranks;      /* ranks of the job that ended, all replicas */
    unsigned next_ranks; /* after the restart; 0: none */
    bool paused;         /* and they will be paused again */
    bool replaced;       /* the program file was replaced by another one */
    char undone[256];    /* changes of the model that no checkpoint contains */
};

/* True if a rank, its host or the connection to it was lost, in contrast to a
 * failure of the rank itself: the job may continue with fewer ranks. */
bool pstctl_end_is_loss(const struct pstctl_end *end);

/* Fills in cause, rank, stages, signal, exit_code and text for a job that died;
 * oom: the kernel has killed a process for memory meanwhile. */
void pstctl_end_of(const struct pstctl_launch *launch, const char *placement,
                   bool oom, const struct pst_diag *why,
                   struct pstctl_end *ret);

struct pstctl_record {
    char *dir;    /* NULL: nothing is written */
    bool has_log; /* dir is that of --log-dir, else that of checkpoints */
    const char *job;
    const char
        *beside; /* file at the socket, written while the job is restarted */
    /* Set after open; or NULL. beside is only written while the job owns its
     * name. */
    const struct pstctl_owner *owner;
    struct pstd_logfile log;
    uint64_t seq;
};

/* config, job and beside are borrowed until close. */
enum pst_status pstctl_record_open(struct pstctl_record *r,
                                   const struct pstd_config *config,
                                   const char *job, const char *beside,
                                   struct pst_diag *diag) PST_MUST_CHECK;
/* Write errors are printed on standard error. */
void pstctl_record_end(struct pstctl_record *r, const struct pstctl_end *end);
void pstctl_record_close(struct pstctl_record *r);
/* For a job without a record: removes the record of an earlier job in that
 * folder, which may be NULL. */
void pstctl_record_forget(const char *dir);

#endif
