// SPDX-License-Identifier: Apache-2.0
/*
 * Starts OpenBLAS without threads, in both programs. Its constructor would
 * start one per core, each with memory for operands, and would wait forever,
 * even in `penstock help`, if the limit of the address space (ulimit -v) does
 * not leave enough memory. The programs compute on threads of their own, and
 * end those of OpenBLAS later (stages/ops/matmul/blas.c).
 *
 * Only code that runs before the constructors of libraries is early enough.
 * Variables that it adds to the environment are dropped by libc, so it replaces
 * one that no constructor reads, until our own constructors run.
 */
#include <stddef.h>
#include <string.h>

#include "stages/base/macros.h"

static char threads[] = "OPENBLAS_NUM_THREADS=1";
static char **entry; /* the variable's position and text; NULL: none */
static char *replaced;

static void replace_entry(int argc, char **argv, char **environment)
{
    static const char *const names[] = {"OPENBLAS_NUM_THREADS=",
                                        "_=",
                                        "SHLVL=",
                                        "OLDPWD=",
                                        "TERM=",
                                        "LOGNAME=",
                                        "USER=",
                                        "PWD="};

    (void)argc;
    (void)argv;
    for (size_t k = 0; k < PST_COUNT(names) && entry == NULL; k++)
        for (char **at = environment; *at != NULL && entry == NULL; at++)
            if (strncmp(*at, names[k], strlen(names[k])) == 0)
                entry = at;
    if (entry == NULL)
        return;
    replaced = *entry;
    *entry = threads;
}

PST_BEFORE_LIBRARIES(replace_entry);

PST_CONSTRUCTOR static void restore_entry(void)
{
    if (entry != NULL)
        *entry = replaced;
}
