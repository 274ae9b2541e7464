// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_DAEMON_CTL_PROVE_PROVE_H
#define PENSTOCK_DAEMON_CTL_PROVE_PROVE_H
/*
 * `penstock prove`: runs the same steps in several ways, each as a job of its
 * own, and compares the bits of the files that they write (run --dump). One
 * thread.
 */
#include "daemon/common/config.h"

#define PSTCTL_PROVE_STEPS 3

/* A way to run the steps. */
struct pstctl_way {
    unsigned stages, ranks;
    const char *schedule;
    bool mpi;
    bool resumed;      /* stops after the first step, and is resumed */
    const char *extra; /* another option, "recompute=full"; or NULL */
};

/* The results of a run: the loss of its first step, and digests of all losses,
 * gradients and parameters. */
struct pstctl_proof {
    bool ran;
    char why[160]; /* last line of output, if the run failed */
    double loss;
    uint64_t losses, grads, params;
};

struct pstctl_prover {
    const struct pstd_config *config;
    const char *folder; /* temporary folder */
};

/* Cuts the model into a plan in the temporary folder. False: it cannot be cut
 * into so many stages, and `why` has the last line that was printed. */
bool pstctl_prove_cut(const struct pstctl_prover *p, unsigned stages,
                      char why[160]);
/* Runs the steps, and reads the dump that they wrote. number: index of the way,
 * used in file names. */
void pstctl_prove_run(const struct pstctl_prover *p,
                      const struct pstctl_way *way, unsigned number,
                      struct pstctl_proof *ret);

/* PyTorch's results for the first step, compared with those of a dump. */
struct pstctl_torch {
    bool has_results;
    char why[160]; /* reason, if there are no results */
    char version[40], name[160];
    double loss, worst; /* largest relative difference, in gradient `name` */
    unsigned zeros;     /* gradients that are zero apart from rounding errors */
};
/* Runs the step in PyTorch if there is a Python with it (PENSTOCK_PYTHON, or
 * python3). */
void pstctl_prove_torch(const struct pstctl_prover *p, const char *dump,
                        struct pstctl_torch *ret);

/* Runs a program. Its standard output goes to the file `out` (NULL: is
 * discarded), its standard error to the file `err`. Returns its exit code; -1:
 * it was not started. */
int pstctl_prove_call(char *const words[], const char *out, const char *err);
/* Copies the last non-empty line of a file. */
void pstctl_prove_last_line(const char *path, char line[160]);

#endif
