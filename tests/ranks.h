// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_RANKS_H
#define PENSTOCK_TESTS_RANKS_H
/* A test that is run by mpiexec: ranks that share a folder. */
#include <stdio.h>
#include <stdlib.h>

#include "stages/base/host/fs.h"
#include "stages/run/engine.h"

/* folder: a template of mkdtemp; afterwards it is the same on all ranks. NULL:
 * there is no MPI, which was said. */
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

/* Removes the folder; returns what main() does. */
static inline int ranks_close(struct pst_transport *mpi, const char *folder,
                              int failed)
{
    if (failed > 0)
        mpi->ops->abort(mpi, 1); /* the others may wait */
    if (mpi->ops->rank(mpi) == 0)
        failed += pst_remove_tree(folder, NULL) != PST_OK;
    pst_transport_mpi.close(mpi);
    return failed;
}

#endif
