// SPDX-License-Identifier: Apache-2.0
/* Intercepts calls whose results differ between processes, and output. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "stages/base/host/fs.h"
#include "tests/files/disk.h"

int sim_pid = 4242;

static char dir[] = "/dev/shm/pst-sim-XXXXXX"; /* faster for many small files */

static void remove_dir(void)
{
    (void)disk_end();
    (void)(chdir("/") == 0 && pst_remove_tree(dir, NULL) == PST_OK);
}

void sim_use_folder(void)
{
    static bool is_there;

    if (is_there)
        return;
    is_there =
        mkdtemp(dir) != NULL && chdir(dir) == 0 && atexit(remove_dir) == 0;
    sim_check(is_there, "no folder %s", dir);
}

ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags);
pid_t __wrap_getpid(void);
int __wrap_gethostname(char *name, size_t size);
void __wrap_pstctl_printf(FILE *out, const char *format, ...);

ssize_t __wrap_getrandom(void *data, size_t size, unsigned flags)
{
    unsigned char *at = data;

    (void)flags;
    for (size_t i = 0; i < size; i++)
        at[i] = (unsigned char)sim_pick(256);
    return (ssize_t)size;
}

pid_t __wrap_getpid(void)
{
    return sim_pid;
}

int __wrap_gethostname(char *name, size_t size)
{
    (void)snprintf(name, size, "host");
    return 0;
}

void __wrap_pstctl_printf(FILE *out, const char *format, ...)
{
    char text[1024];
    va_list args;

    (void)out;
    va_start(args, format);
    (void)vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    text[strcspn(text, "\n")] = '\0';
    sim_trace("%s", text);
}
