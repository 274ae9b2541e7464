// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_FOLDER_H
#define PENSTOCK_TESTS_FOLDER_H
/* Fixtures of a group that works in a folder of its own. */
#include <dirent.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "stages/base/host/fs.h"

static char folder_path[] = "/tmp/pst-test-XXXXXX";

static inline int folder_make(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN); /* as in the daemon: writes fail instead */
    return mkdtemp(folder_path) && chdir(folder_path) == 0 ? 0 : -1;
}

static inline int folder_remove(void **state)
{
    (void)state;
    return chdir("/") == 0 && pst_remove_tree(folder_path, NULL) == PST_OK ? 0
                                                                           : -1;
}

static inline int folder_count(void)
{
    DIR *d = opendir(".");
    int n = 0;

    while (readdir(d))
        n++;
    closedir(d);
    return n - 2;
}

#endif
