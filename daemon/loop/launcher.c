// SPDX-License-Identifier: Apache-2.0
#include "daemon/loop/launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/setup.h"

static unsigned long long bit(int number)
{
    return 1ull << (number - 1);
}

bool pstd_launcher_has_signal(void)
{
    /* /proc/PID/status (proc(5)) shows signals that are pending for the thread,
     * and for the process, in these lines. */
    static const char *const names[] = {"\nSigPnd:", "\nShdPnd:"};
    unsigned long long waiting = 0;
    char path[64], text[8192];
    ssize_t n;
    int fd;

    (void)snprintf(path, sizeof(path), "/proc/%d/status", (int)getppid());
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    n = read(fd, text, sizeof(text) - 1);
    (void)close(fd);
    text[n > 0 ? n : 0] = '\0';
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *at = strstr(text, names[i]);

        if (at != NULL)
            waiting |= strtoull(at + strlen(names[i]), NULL, 16);
    }
    return (waiting & (bit(SIGTERM) | bit(SIGINT))) != 0;
}

void pstd_launcher_print_request(const struct pstd_daemon *d)
{
    if (d->config->run_id != NULL) /* `penstock run` reads this output */
        (void)fprintf(stderr, "penstockd: " PSTD_ASKED_TEXT "%u\n", d->rank);
}
