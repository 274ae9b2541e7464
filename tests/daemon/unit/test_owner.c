// SPDX-License-Identifier: Apache-2.0
/* Whose a job is, as others see it. */
#include "daemon/ctl/job/owner.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "stages/base/host/fs.h"
#include "tests/test.h"

static char dir[] = "/tmp/pst-owner-XXXXXX";
static char path[64];

/* Who looks while its owner says which launcher it has now, as at each start of
 * its ranks, must not take the job for ended. */
static void is_owned_while_it_is_written(void **state)
{
    struct pstctl_owner owner;
    struct pst_diag diag;
    unsigned missed = 0;
    pid_t child;

    (void)state;
    assert_ok(pstctl_own(path, "test", false, &owner, &diag), &diag);
    child = fork();
    if (child == 0)
        for (pid_t launcher = 1;; launcher = launcher * 10 % 99999 + 1)
            pstctl_own_launcher(&owner, launcher);
    assert_true(child > 0);
    while (!pstctl_is_owned(path))
        (void)usleep(1000);
    for (unsigned i = 0; i < 50000; i++)
        missed += !pstctl_is_owned(path);
    (void)kill(child, SIGKILL);
    (void)waitpid(child, NULL, 0);
    assert_int_equal(missed, 0);
    pstctl_disown(&owner, true);
    assert_false(pstctl_is_owned(path));
}

static int setup(void **state)
{
    (void)state;
    if (mkdtemp(dir) == NULL)
        return -1;
    (void)snprintf(path, sizeof(path), "%s/s", dir);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    return pst_remove_tree(dir, NULL) != PST_OK;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_owned_while_it_is_written),
    };

    return cmocka_run_group_tests_name("owner", tests, setup, teardown);
}
