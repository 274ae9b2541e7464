// SPDX-License-Identifier: Apache-2.0
/* What would differ from process to process, and what is printed. */
#include "tests/sim/sim.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

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
    return 4242;
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
    sim_tell("%s", text);
}
