// SPDX-License-Identifier: Apache-2.0
/* Preloaded into a program: reports at its end which files it can still open.
 * ESCAPE has names separated by colons; each gives a line "NAME ERRNO" on
 * standard error. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

__attribute__((destructor)) static void try_all(void)
{
    const char *names = getenv("ESCAPE"); // NOLINT(concurrency-mt-unsafe)
    char *copy = names != NULL ? strdup(names) : NULL, *rest = NULL;

    if (copy == NULL)
        return;
    for (char *name = strtok_r(copy, ":", &rest); name != NULL;
         name = strtok_r(NULL, ":", &rest)) {
        const int fd = open(name, O_RDONLY | O_CLOEXEC);

        (void)fprintf(stderr, "%s %d\n", name, fd < 0 ? errno : 0);
        if (fd >= 0)
            (void)close(fd);
    }
    free(copy);
}
