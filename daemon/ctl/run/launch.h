// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_RUN_LAUNCH_H
#define PENSTOCK_DAEMON_CTL_RUN_LAUNCH_H
/*
 * Starts the ranks of a job as one child process, mpirun or penstockd, in a
 * session of its own, and finds out how it ended. One thread.
 */
#include "daemon/common/config.h"

#include <sys/types.h>
#include <time.h>

/* Which file a program is; all 0: not known. */
struct pstctl_program {
    dev_t device;
    ino_t inode;
    struct timespec changed;
};

struct pstctl_launch {
    pid_t pid;
    int err_fd;             /* reads what it and the ranks print; -1: none */
    struct pst_str line;    /* not yet complete */
    struct pst_str tail;    /* last lines that say nothing we know */
    struct pst_str cause;   /* first "penstockd: ..." line, see take_cause */
    struct pst_str crashes; /* "\n1 in step 3, ..." of each rank that told */
    enum pst_error cause_error; /* what that line ends with */
    int killed_rank;            /* -1: none */
    int killed_signal;
    int exited_rank; /* -1: none; left with exited_code, and was the first */
    int exited_code;
    bool asked; /* a rank has told that somebody asked it to end */
    bool is_mpirun;
    bool ended;
    int status;                    /* of waitpid, once ended */
    struct pstctl_program program; /* that it started */
    pid_t stuck; /* a process that SIGKILL did not end, and was left; 0: none */
};

/* What is started. */
struct pstctl_job {
    const char *plan, *name, *run_id;
    const char *output;  /* file for all that is printed */
    const char *session; /* folder for files of mpirun; NULL: where it likes */
    const char *shm;     /* the same for memory that ranks share */
    const char *journal; /* file of events; NULL: none */
    unsigned ranks;      /* of a replica */
    int held[3];         /* locks that the child inherits; -1: none */
    unsigned most_here;  /* ranks that share the cores of a host */
    const char *hosts;   /* "a:2,b:2" for mpirun; NULL: where it likes */
    bool spread;         /* on more than one host: no folders of this one */
    bool supervised;     /* no process outlives this one */
};

/* Of a launch that has not begun. */
#define PSTCTL_LAUNCH_NONE                                                     \
    {                                                                          \
        .err_fd = -1, .killed_rank = -1, .exited_rank = -1, .ended = true      \
    }

/* The program of the ranks: penstockd beside this one, else in PATH. */
void pstctl_launch_daemon(struct pst_str *out);
/* Starts the run that config describes. The child outlives this process
 * unless it is supervised, or --die-with-client is given. */
enum pst_status pstctl_launch(const struct pstd_config *config,
                              const struct pstctl_job *job,
                              struct pstctl_launch *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;
/* Reads what there is and looks whether the child has ended; never waits. */
void pstctl_launch_pump(struct pstctl_launch *launch);
/* Takes a line that the child wrote. */
void pstctl_launch_line(struct pstctl_launch *launch, const char *line);
/* Ends the job without waiting for its steps; hard: where that did not help. */
void pstctl_launch_end(const struct pstctl_launch *launch, bool hard);
/* True if the program of the ranks is another file by now: the next start is of
 * another version, perhaps, than this process. */
bool pstctl_launch_is_replaced(const struct pstctl_launch *launch);
/* How it ended; PST_OK if well. placement: stages of each rank, or NULL. */
enum pst_status pstctl_launch_outcome(const struct pstctl_launch *launch,
                                      const char *placement,
                                      struct pst_diag *diag) PST_MUST_CHECK;
void pstctl_launch_fini(struct pstctl_launch *launch);

#endif
