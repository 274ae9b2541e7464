// SPDX-License-Identifier: Apache-2.0
/* Replaces mpi.c in a build without MPI: open fails, so the other operations
 * are never called. */
#include "stages/net/transport.h"

static enum pst_status refuse_mpi(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_NET_NOT_BUILT,
                        "this build has no MPI (meson configure -Dmpi=enabled "
                        "adds it); one process can hold all ranks with the "
                        "transport \"self\"");
}

static enum pst_status missing_open(const char *spec,
                                    struct pst_transport **ret_t,
                                    struct pst_diag *diag)
{
    (void)spec;
    (void)ret_t;
    return refuse_mpi(diag);
}

enum pst_status pst_transport_mpi_on(const void *comm, double limit,
                                     struct pst_transport **ret,
                                     struct pst_diag *diag)
{
    (void)comm;
    (void)limit;
    (void)ret;
    return refuse_mpi(diag);
}

enum pst_status pst_transport_mpi_from_fortran(int comm, void *ret, size_t size,
                                               struct pst_diag *diag)
{
    (void)comm;
    (void)ret;
    (void)size;
    return refuse_mpi(diag);
}

static void missing_close(struct pst_transport *t)
{
    (void)t; /* can only be NULL */
}

const struct pst_transport_ops pst_transport_mpi = {
    .name = "mpi", .open = missing_open, .close = missing_close};
