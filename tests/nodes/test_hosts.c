// SPDX-License-Identifier: Apache-2.0
/* Tests lists of hosts, and the ranks that each host gets. */
#include "daemon/common/interface.h"
#include "daemon/ctl/hosts/hosts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/ctl/hosts/probe.h"
#include "daemon/ctl/hosts/remote.h"
#include "tests/test.h"

static void expect_places(const struct pstctl_hosts *h, const char *want)
{
    struct pst_str text = {0};

    pstctl_hosts_text(h, &text);
    assert_string_equal(pst_str_text(&text), want);
    pst_str_fini(&text);
}

static void places_neighbours_together(void **state)
{
    static const struct {
        const char *hosts;
        unsigned ranks;
        const char *want;
    } cases[] = {
        {"a,b,c", 6, "a:2,b:2,c:2"}, {"a,b,c", 7, "a:3,b:2,c:2"},
        {"a,b,c", 2, "a:1,b:1"},     {"a:4,b:4", 6, "a:4,b:2"},
        {"a:4,b:4", 3, "a:3"},       {"a:2,b,c:2", 5, "a:2,b:1,c:2"},
        {"a,b,a,a", 4, "a:3,b:1"},
    };

    (void)state;
    for (size_t i = 0; i < PST_COUNT(cases); i++) {
        struct pstctl_hosts h = {0};
        struct pst_diag diag;

        assert_ok(pstctl_hosts_add(&h, cases[i].hosts, &diag), &diag);
        assert_ok(pstctl_hosts_place(&h, cases[i].ranks, &diag), &diag);
        expect_places(&h, cases[i].want);
        pstctl_hosts_fini(&h);
    }
}

static void leaves_out_who_is_away(void **state)
{
    struct pstctl_hosts h = {0};
    struct pst_diag diag;

    (void)state;
    assert_ok(pstctl_hosts_add(&h, "a:2,b:2,c:2", &diag), &diag);
    assert_int_equal(pstctl_hosts_slots(&h), 6);
    h.list.at[1].away = true;
    assert_int_equal(pstctl_hosts_slots(&h), 4);
    assert_ok(pstctl_hosts_place(&h, 4, &diag), &diag);
    expect_places(&h, "a:2,c:2");
    assert_true(pstctl_hosts_are_several(&h));
    assert_int_equal(pstctl_hosts_place(&h, 5, &diag), PST_ERR_USAGE);
    assert_ok(pstctl_hosts_place(&h, 2, &diag), &diag);
    assert_false(pstctl_hosts_are_several(&h));
    assert_int_equal(pstctl_hosts_most(&h), 2);
    pstctl_hosts_fini(&h);
}

static void any_number_without_slots(void **state)
{
    struct pstctl_hosts h = {0};
    struct pst_diag diag;

    (void)state;
    assert_ok(pstctl_hosts_add(&h, "a,b", &diag), &diag);
    assert_true(pstctl_hosts_slots(&h) == UINT_MAX);
    h.list.at[0].away = h.list.at[1].away = true;
    assert_int_equal(pstctl_hosts_place(&h, 1, &diag), PST_ERR_USAGE);
    pstctl_hosts_fini(&h);
}

static void refuses_what_is_no_name(void **state)
{
    static const char *const bad[] = {
        "",     ",",        "a,",   "a,,b",  "-a",       "a b", "a;b",
        "a:",   "a:0",      "a:-1", "a:1:2", "a:99999",  "a$x", ":2",
        "a:1x", "\xc3\xa4", "a\nb", "a/b",   "user@host"};

    (void)state;
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        struct pstctl_hosts h = {0};
        struct pst_diag diag;

        if (pstctl_hosts_add(&h, bad[i], &diag) != PST_ERR_USAGE)
            fail_msg("\"%s\" is taken", bad[i]);
        pstctl_hosts_fini(&h);
    }
}

static enum pst_status read_text(const char *text, struct pstctl_hosts *h,
                                 struct pst_diag *diag)
{
    char path[] = "/tmp/pst-hosts-XXXXXX";
    const int fd = mkstemp(path);
    enum pst_status status;

    assert_true(fd >= 0);
    assert_int_equal(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    (void)close(fd);
    status = pstctl_hosts_read(h, path, diag);
    (void)unlink(path);
    return status;
}

static void reads_files(void **state)
{
    static const char *const bad[] = {"",
                                      "# none\n",
                                      "a\nb slots=\n",
                                      "a slots=0\n",
                                      "a slots=2 x\n",
                                      "a b\n",
                                      "a max_slots=2\n"};
    struct pstctl_hosts h = {0};
    struct pst_diag diag;

    (void)state;
    assert_ok(read_text("  a\tslots=3 # x\r\n\n#b\nc\na slots=1", &h, &diag),
              &diag);
    assert_int_equal(h.list.n, 2);
    assert_string_equal(h.list.at[0].name, "a");
    assert_int_equal(h.list.at[0].slots, 4);
    assert_int_equal(h.list.at[1].slots, 0);
    pstctl_hosts_fini(&h);
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        h = (struct pstctl_hosts){0};
        if (read_text(bad[i], &h, &diag) != PST_ERR_INPUT)
            fail_msg("\"%s\" is taken", bad[i]);
        pstctl_hosts_fini(&h);
    }
}

/* This host is checked by the command that ssh runs on other hosts. */
static void asks_the_host_itself(void **state)
{
    struct pstctl_hosts h = {0};
    struct pst_diag diag;

    (void)state;
    assert_ok(pstctl_hosts_add(&h, "localhost", &diag), &diag);
    h.list.at[0].local = true;
    assert_ok(pstctl_hosts_ask(&h, "/bin/true", "/", NULL, &diag), &diag);
    assert_int_equal(pstctl_hosts_ask(&h, "/no/such'program", "/", NULL, &diag),
                     PST_ERR_NO_DAEMON);
    assert_non_null(strstr(diag.text, "there is no /no/such'program"));
    assert_true(h.list.at[0].away);
    assert_int_equal(pstctl_hosts_ask(&h, "/bin/true", "/no plan", NULL, &diag),
                     PST_ERR_NO_DAEMON);
    assert_non_null(strstr(diag.text, "there is no /no plan"));
    pstctl_hosts_fini(&h);
}

static void knows_the_interfaces(void **state)
{
    static const char *const good[] = {"lo",
                                       "127.0.0.0/8",
                                       "127.0.0.1/32",
                                       "0.0.0.0/0",
                                       "127.128.0.0/7",
                                       "nope0,lo",
                                       "nope0,127.0.0.0/9"};
    static const char *const bad[] = {"",        "lo,",          ",lo",
                                      "lo,,lo",  "127.0.0.0/",   "127.0.0.0/33",
                                      "1.2.3/8", "127.0.0.0/+8", "lo/8"};
    static const char *const away[] = {"nope0", "127.128.0.0/9", "LO",
                                       "203.0.113.0/24"};
    struct pst_diag diag;

    (void)state;
    for (size_t i = 0; i < PST_COUNT(good); i++)
        assert_ok(pstd_interface_check(good[i], &diag), &diag);
    for (size_t i = 0; i < PST_COUNT(bad); i++) {
        assert_int_equal(pstd_interface_check(bad[i], &diag), PST_ERR_USAGE);
        assert_non_null(strstr(diag.text, "is not a name of an interface"));
    }
    for (size_t i = 0; i < PST_COUNT(away); i++) {
        assert_int_equal(pstd_interface_check(away[i], &diag), PST_ERR_USAGE);
        assert_non_null(strstr(diag.text, "lo (127.0.0.1)"));
    }
}

static void ends_who_is_late(void **state)
{
    struct pstctl_hosts h = {0};
    struct pstctl_remote *at;
    struct pst_diag diag;

    (void)state;
    assert_ok(pstctl_hosts_add(&h, "localhost", &diag), &diag);
    h.list.at[0].local = true;
    at = pstctl_remote_new(&h);
    assert_non_null(at);
    assert_ok(pstctl_remote_run(at, 1, "echo so far; sleep 60", 1, &diag),
              &diag);
    assert_true(at->late);
    assert_string_equal(pst_str_text(&at->out), "so far\n");
    pstctl_remote_free(at, 1);
    pstctl_hosts_fini(&h);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(places_neighbours_together),
        cmocka_unit_test(leaves_out_who_is_away),
        cmocka_unit_test(any_number_without_slots),
        cmocka_unit_test(refuses_what_is_no_name),
        cmocka_unit_test(reads_files),
        cmocka_unit_test(asks_the_host_itself),
        cmocka_unit_test(knows_the_interfaces),
        cmocka_unit_test(ends_who_is_late),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
