// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_LAUNCH_H
#define PENSTOCK_DAEMON_CTL_RUN_LAUNCH_H
/*
 * Starts the ranks of a job as one child process, mpirun or penstockd, in its
 * own session, and determines how it ended. One thread.
 */
#include "daemon/common/config.h"

#include <sys/types.h>
#include <time.h>

/* Identity of a program file; all 0: unknown. */
struct pstctl_program {
    dev_t device;
    ino_t inode;
    struct timespec changed;
};

struct pstctl_launch {
    pid_t pid;
    int err_fd; /* for reading the output of child and ranks; -1: none */
    struct pst_str line; /* incomplete line of the output */
    struct pst_str tail; /* last lines of the output that were not recognized */
    struct pst_str cause; /* first "penstockd: ..." line, see record_cause */
    /* Text such as " 1 in step 3, ...", which names each rank that reported a
     * crash. */
    struct pst_str crashes;
    enum pst_error cause_error; /* catalogue row that `cause` names */
    int killed_rank; /* first rank that was killed by a signal; -1: none */
    int killed_signal;
    int exited_rank; /* first rank that ended, with exited_code; -1: none */
    int exited_code;
    bool asked; /* a rank has reported that it was asked to end */
    bool is_mpirun;
    bool ended;
    int status;                    /* from waitpid; valid if `ended` */
    struct pstctl_program program; /* program that was started */
    pid_t stuck; /* a process that SIGKILL did not end; 0: none */
};

/* Description of the job to be started. */
struct pstctl_job {
    const char *plan, *name, *run_id;
    const char *output;   /* path of the file for the output of all processes */
    const char *session;  /* folder for mpirun's files; NULL: its default */
    const char *shm;      /* folder for shared memory; NULL: the default */
    const char *journal;  /* event journal; NULL: none */
    const char *kept_run; /* file that describes the current run; NULL: none */
    unsigned ranks;       /* ranks of a replica */
    int held[3];          /* locks inherited by the child; -1: none */
    unsigned most_here;   /* largest number of ranks on one host */
    const char *hosts;    /* "a:2,b:2" for mpirun; NULL: its default */
    bool spread;          /* ranks are on several hosts: mpirun must not use
                             folders of this host */
    bool supervised;      /* no process of the job outlives this one */
};

/* Initial value of struct pstctl_launch. */
#define PSTCTL_LAUNCH_NONE                                                     \
    {                                                                          \
        .err_fd = -1, .killed_rank = -1, .exited_rank = -1, .ended = true      \
    }

/* Finds the program of the ranks: penstockd beside this program, else in
 * PATH. */
void pstctl_launch_daemon(struct pst_str *out);
/* Starts the run that config describes. The child outlives this process unless
 * it is supervised, or --die-with-client is given. */
enum pst_status pstctl_launch(const struct pstd_config *config,
                              const struct pstctl_job *job,
                              struct pstctl_launch *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Reads available output and checks if the child has ended; never waits. */
void pstctl_launch_update(struct pstctl_launch *launch);
/* Processes a line of the child's output. */
void pstctl_launch_line(struct pstctl_launch *launch, const char *line);
/* Ends the job without waiting for its steps. hard: also kills the launcher;
 * for a second call if the first had no effect. */
void pstctl_launch_end(const struct pstctl_launch *launch, bool hard);
/* True if the program file of the ranks has been replaced: the next start may
 * be of another version than this process. */
bool pstctl_launch_is_replaced(const struct pstctl_launch *launch);
/* Returns how the child ended; PST_OK: with exit code 0. placement: stages of
 * each rank, for the text; or NULL. */
enum pst_status pstctl_launch_outcome(const struct pstctl_launch *launch,
                                      const char *placement,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_launch_fini(struct pstctl_launch *launch);

#endif
