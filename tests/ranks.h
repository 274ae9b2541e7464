// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RANKS_H
#define PENSTOCK_TESTS_RANKS_H
/* A test run by mpiexec whose ranks share a folder. */
#include <stdio.h>
#include <stdlib.h>

#include "stages/base/host/fs.h"
#include "stages/run/engine.h"

/* Opens MPI. folder: a template of mkdtemp; afterwards the same on all ranks.
 * Returns NULL if there is no MPI; then a message has been printed. */
static inline struct pst_transport *ranks_open(char *folder, size_t size)
{
    struct pst_transport *mpi;
    struct pst_diag diag;

    pst_diag_init(&diag);
    if (pst_transport_mpi.open("", &mpi, &diag) != PST_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return NULL;
    }
    if (mpi->ops->rank(mpi) == 0 && mkdtemp(folder) == NULL)
        folder[0] = '\0';
    if (pst_engine_broadcast(mpi, folder, size, NULL, NULL, &diag) != PST_OK ||
        folder[0] == '\0')
        mpi->ops->abort(mpi, 1);
    return mpi;
}

/* Removes the folder; returns the exit code for main(). */
static inline int ranks_close(struct pst_transport *mpi, const char *folder,
                              int failed)
{
    if (failed > 0)
        mpi->ops->abort(mpi, 1); /* other ranks may be waiting */
    if (mpi->ops->rank(mpi) == 0)
        failed += pst_remove_tree(folder, NULL) != PST_OK;
    pst_transport_mpi.close(mpi);
    return failed;
}

#endif
