// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_CTL_H
#define PENSTOCK_DAEMON_CTL_CTL_H
/*
 * The commands of penstock. Each gets its options and arguments and returns a
 * status that becomes the exit code; main prints the diagnosis. Results go to
 * standard output, everything else to standard error. One thread.
 */
#include "daemon/common/config.h"

struct pst_checkpoint_info;

struct pstctl_command {
    const char *name;
    const char *args;    /* for the usage line: "MODEL.pt2 -o PLAN" */
    unsigned min, max;   /* number of arguments */
    uint64_t groups;     /* option groups that the command takes */
    const char *summary; /* one line */
    const char *help;    /* further text, or NULL */
    enum pst_status (*run)(const struct pstd_config *config,
                           struct pst_diag *diag);
    bool sandboxed; /* may only access the files it is given (sandbox.h) */
    /* Texts that replace the help of some options; NULL: none are replaced. */
    const struct pstd_option_help *options;
};

/* The option --microbatches of commands whose steps have one size. */
#define PSTCTL_ONE_SIZE                                                        \
    {                                                                          \
        "microbatches",                                                        \
            "microbatches of a step; a step takes N times the rows of one",    \
            "N", NULL                                                          \
    }

#define PSTCTL_COMMAND(id, name) extern const struct pstctl_command pstctl_##id;
#include "daemon/ctl/commands.def"
#undef PSTCTL_COMMAND

/* Returns all commands; defined in main.c. */
const struct pstctl_command *const *pstctl_commands(size_t *ret_n);
/* Prints a note if the checkpoint that a command has opened in dir is not in
 * the past of the run any more (lineage.h), or if the run's second folder
 * (--checkpoint-fallback) has a checkpoint that is at least as new. */
void pstctl_print_second_note(const char *dir,
                              const struct pst_checkpoint_info *info);
/* Measures the rates of this machine (rates.h), and prints a note about that,
 * if --dtype or --autocast is bf16 and it was never measured. Must be called
 * before access to files is limited (sandbox.h). */
enum pst_status pstctl_ensure_rates(const struct pstd_config *config,
                                    struct pst_diag *diag) PST_MUST_CHECK;
/* Returns the time at which this process began, in microseconds since 1970
 * UTC. */
uint64_t pstctl_start_us(void);
/* Returns a variable of the environment; NULL: it is not set or empty. */
const char *pstctl_environment(const char *name);

#endif
