// SPDX-License-Identifier: Apache-2.0
/* Tests who owns a folder of checkpoints, and which folders are refused. */
#include "tests/files/checkpoints.h"

#include <fcntl.h>

static enum pst_status claim_folder(const char *digest, bool resume, bool adopt,
                                    struct pst_checkpoint_owner **ret,
                                    struct pst_checkpoint_former *former)
{
    const struct pst_checkpoint_claim claim = {
        .dir = "ck", .model_digest = digest, .resume = resume, .adopt = adopt};

    return pst_checkpoint_acquire(&claim, ret, former, &diag);
}

/* A single checkpoint is no folder for the checkpoints of a run: the run that
 * it belongs to removes it. */
static void folder_of_a_step_is_refused(void **state)
{
    struct pst_checkpoint_claim claim = {.dir = "ck/step-00000001",
                                         .model_digest = DIGEST};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *owner;

    (void)state;
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_int_equal(pst_checkpoint_acquire(&claim, &owner, &former, &diag),
                     PST_ERR_CONFIG);
    assert_int_equal(diag.error, PST_E_CHECKPOINT_FOLDER);
    assert_non_null(strstr(diag.text, "--resume=1 continues from it"));
    assert_int_equal(access("ck/step-00000001/owner.json", F_OK), -1);
    claim.dir = "ck/step-00000002"; /* no checkpoint, only such a name */
    assert_int_equal(mkdir(claim.dir, 0777), 0);
    assert_ok(pst_checkpoint_acquire(&claim, &owner, &former, &diag), &diag);
    pst_checkpoint_release(owner);
}

/* A name that a run gives to folders in its own is refused to all others,
 * whether the folder names that run or only its lock shows it. */
static void folder_in_that_of_a_run_is_refused(void **state)
{
    static const char *const names[] = {"ck/step-00000003", "ck/step-00000003/",
                                        "./ck/former-1"};
    struct pst_checkpoint_claim claim = {.model_digest = DIGEST, .run = "b"};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;

    (void)state;
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    for (unsigned i = 0; i < 3 * PST_COUNT(names); i++) {
        if (i == PST_COUNT(names))
            assert_int_equal(unlink("ck/owner.json"), 0);
        if (i == 2 * PST_COUNT(names)) {
            assert_ok(pst_checkpoint_restore_owner(a, &diag), &diag);
            pst_checkpoint_release(a);
        }
        claim.dir = names[i % PST_COUNT(names)];
        assert_int_equal(pst_checkpoint_acquire(&claim, &b, &former, &diag),
                         PST_ERR_CONFIG);
        assert_int_equal(diag.error, PST_E_CHECKPOINT_FOLDER);
        assert_non_null(strstr(diag.text, "folder of another run"));
        assert_int_equal(access(claim.dir, F_OK), -1);
    }
    claim.dir = "ck/steps";
    assert_ok(pst_checkpoint_acquire(&claim, &b, &former, &diag), &diag);
    pst_checkpoint_release(b);
    /* A run whose record is already in such a folder may use it again. */
    claim.dir = "ck/step-00000003";
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_ok(pst_checkpoint_acquire(&claim, &b, &former, &diag), &diag);
    pst_checkpoint_release(b);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    claim.resume = true;
    assert_ok(pst_checkpoint_acquire(&claim, &b, &former, &diag), &diag);
    pst_checkpoint_release(b);
    pst_checkpoint_release(a);
}

/* Both folders of a run have its name; a folder with another run's name is
 * refused. */
static void second_folder_has_the_name_of_the_first(void **state)
{
    struct pst_checkpoint_claim claim = {
        .dir = "ck", .model_digest = DIGEST, .run = "a", .fallback = "second"};
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    struct pst_checkpoint_run run;

    (void)state;
    assert_ok(pst_checkpoint_acquire(&claim, &a, &former, &diag), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_release(a);
    assert_ok(pst_checkpoint_read_run("ck", &run, &diag), &diag);
    assert_string_equal(run.name, "a");
    assert_non_null(strstr(run.fallback, "/second"));
    pst_free(run.fallback);
    claim.resume = true;
    assert_ok(pst_checkpoint_acquire(&claim, &a, &former, &diag), &diag);
    pst_checkpoint_release(a);
    claim.run = "b";
    assert_int_equal(pst_checkpoint_acquire(&claim, &a, &former, &diag),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "belongs to another run (a"));
    claim.adopt = true;
    assert_ok(pst_checkpoint_acquire(&claim, &a, &former, &diag), &diag);
    assert_int_equal(former.n, 1);
    pst_checkpoint_release(a);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_int_equal(mkdir("ck/owner.json", 0777), 0);
    assert_int_equal(pst_checkpoint_read_run("ck", &run, &diag), PST_ERR_IO);
    assert_non_null(strstr(diag.text, "mend or remove it"));
    assert_int_equal(rmdir("ck/owner.json"), 0);
    assert_int_equal(close(open("ck/owner.json", O_CREAT | O_WRONLY, 0666)), 0);
    assert_int_equal(truncate("ck/owner.json", 70000), 0);
    pst_diag_init(&diag);
    assert_int_not_equal(pst_checkpoint_read_run("ck", &run, &diag), PST_OK);
    assert_non_null(strstr(diag.text, "ck/owner.json: 70000 bytes"));
}

/* A record that is a link is refused, whether or not its target exists, since
 * writing would replace that file. */
static void record_is_no_link(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *owner = NULL;
    char *text = NULL;
    size_t size;

    (void)state;
    assert_int_equal(mkdir("ck", 0777), 0);
    assert_int_equal(symlink("thesis", "ck/owner.json"), 0);
    assert_int_equal(claim_folder(DIGEST, false, false, &owner, &former),
                     PST_ERR_IO);
    assert_non_null(strstr(diag.text, "ck/owner.json: it is a symbolic link"));
    assert_int_equal(access("ck/thesis", F_OK), -1);
    write_bytes("ck/thesis", "mine", 4);
    assert_int_equal(claim_folder(DIGEST, false, false, &owner, &former),
                     PST_ERR_IO);
    assert_ok(pst_file_read("ck/thesis", 100, &text, &size, &diag), &diag);
    assert_true(size == 4 && memcmp(text, "mine", 4) == 0);
    pst_free(text);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_ok(claim_folder(DIGEST, false, false, &owner, &former), &diag);
    pst_checkpoint_release(owner);
}

static void belongs_to_one_run(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;
    int lock;

    (void)state;
    assert_int_equal(claim_folder(DIGEST, true, false, &a, &former),
                     PST_ERR_NOT_FOUND);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    for (int i = 0; i < 4; i++) { /* the owner is alive: nobody takes over */
        assert_int_equal(claim_folder(DIGEST, i & 1, i & 2, &b, &former),
                         PST_ERR_CONFIG);
        assert_non_null(strstr(diag.text, "belongs to a job that runs"));
    }
    assert_int_equal(pst_checkpoint_lock("ck", &lock, &diag), PST_ERR_BUSY);
    pst_checkpoint_release(a);
    /* The owner never saved, so the folder is free for any run. */
    assert_ok(claim_folder("other", false, false, &a, &former), &diag);
    pst_checkpoint_release(a);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_release(a);
    assert_ok(claim_folder(DIGEST, true, false, &a, &former), &diag);
    pst_checkpoint_release(a);
    assert_int_equal(claim_folder(DIGEST, false, false, &a, &former),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "--resume"));
    assert_non_null(strstr(diag.text, "--adopt"));
    assert_int_equal(claim_folder("other", false, false, &a, &former),
                     PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "another run of another model"));
    assert_int_equal(claim_folder("other", true, true, &a, &former),
                     PST_ERR_MISMATCH);
    assert_ok(claim_folder("other", false, true, &a, &former), &diag);
    assert_int_equal(former.n, 1);
    assert_int_equal(former.step, 1);
    assert_string_equal(former.folder, "former-1");
    assert_int_equal(access("ck/former-1/step-00000001/manifest.json", F_OK),
                     0);
    pst_checkpoint_release(a);
}

/* A run whose folder was moved away finds another run's folder in its place. */
static void sees_that_it_was_moved(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a, *b;

    (void)state;
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_ok(pst_checkpoint_check_owner(a, &diag), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    assert_int_equal(rename("ck", "ck.old"), 0);
    /* No other folder replaced it. */
    assert_ok(pst_checkpoint_check_owner(a, &diag), &diag);
    assert_ok(claim_folder(DIGEST, false, false, &b, &former), &diag);
    assert_int_equal(pst_checkpoint_check_owner(a, &diag), PST_ERR_CONFIG);
    assert_non_null(strstr(diag.text, "moved away"));
    assert_ok(pst_checkpoint_check_owner(b, &diag), &diag);
    pst_checkpoint_release(b);
    /* The name of run b stays in the folder after that run has ended. */
    assert_int_equal(pst_checkpoint_check_owner(a, &diag), PST_ERR_CONFIG);
    /* A run that has not written its name yet keeps the folder, too. */
    assert_ok(claim_folder(DIGEST, false, false, &b, &former), &diag);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_int_equal(pst_checkpoint_restore_owner(a, &diag), PST_ERR_CONFIG);
    assert_int_equal(access("ck/owner.json", F_OK), -1);
    pst_checkpoint_release(b);
    assert_int_equal(rename("ck", "ck.new"), 0);
    assert_int_equal(rename("ck.old", "ck"), 0);
    assert_ok(pst_checkpoint_check_owner(a, &diag), &diag);
    pst_checkpoint_release(a);
    assert_int_equal(system("rm -r ck.new"), 0);
}

/* A process that is killed releases the folder. */
static void killed_owners_leave_it_free(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    int fds[2], status;
    char c = 0;
    pid_t pid;

    (void)state;
    assert_int_equal(pipe(fds), 0);
    pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        c = claim_folder(DIGEST, false, false, &a, &former) == PST_OK;
        if (write(fds[1], &c, 1) == 1)
            (void)pause();
        _exit(1);
    }
    assert_int_equal(read(fds[0], &c, 1), 1);
    assert_int_equal(c, 1);
    assert_int_equal(claim_folder(DIGEST, false, false, &a, &former),
                     PST_ERR_CONFIG);
    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    pst_checkpoint_release(a);
    close(fds[0]);
    close(fds[1]);
}

/* Makes owner.json look as if a process of another host had written it. */
/* Claims the folder as a user who may not write what is in it, in a process of
 * its own, which returns the result. */
static int claim_as_other(bool adopt)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *o;
    enum pst_status s;
    int status;
    const pid_t pid = fork();

    if (pid == 0) {
        if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0)
            _exit(99);
        s = claim_folder(DIGEST, true, adopt, &o, &former);
        if (s == PST_ERR_CONFIG)
            _exit(strstr(diag.text, "belongs to a job that runs") ? 1 : 98);
        _exit(s == PST_ERR_IO ? 2 : 97);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    return WEXITSTATUS(status);
}

/* The lock of another user may be readable only, or not even that. */
static void sees_the_lock_of_another_user(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;

    (void)state;
    assert_int_equal(chmod(".", 0755), 0);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_int_equal(chmod("ck", 0755), 0);
    assert_int_equal(chmod("ck/owner.json", 0644), 0);
    assert_int_equal(chmod("ck/lock", 0444), 0);
    assert_int_equal(claim_as_other(false), 1);
    assert_int_equal(claim_as_other(true), 1);
    assert_int_equal(chmod("ck/owner.json", 0), 0);
    assert_int_equal(claim_as_other(false), 1);
    assert_int_equal(chmod("ck/owner.json", 0644), 0);
    assert_int_equal(chmod("ck/lock", 0), 0);
    assert_int_equal(claim_as_other(false), 1);
    assert_int_equal(claim_as_other(true), 2);
    pst_checkpoint_release(a);
    /* Nobody has the folder now, but the other user cannot lock it. */
    assert_int_equal(chmod("ck/owner.json", 0644), 0);
    assert_int_equal(claim_as_other(false), 2);
    assert_int_equal(chmod("ck/lock", 0444), 0);
    assert_int_equal(claim_as_other(false), 2);
    assert_int_equal(chmod("ck/lock", 0644), 0);
}

static void move_owner(const char *host)
{
    char here[256] = "", *text = NULL;
    struct pst_str moved = {0};
    const char *at;
    size_t size;

    assert_int_equal(gethostname(here, sizeof(here) - 1), 0);
    assert_ok(pst_file_read("ck/owner.json", 65536, &text, &size, &diag),
              &diag);
    at = strstr(text, "\"host\": \"");
    assert_non_null(at);
    at += strlen("\"host\": \"");
    assert_int_equal(strncmp(at, here, strlen(here)), 0);
    pst_str_addn(&moved, text, (size_t)(at - text));
    pst_str_addf(&moved, "%s%s", host, at + strlen(here));
    assert_ok(pst_file_write("ck/owner.json", moved.text, moved.len, &diag),
              &diag);
    pst_str_fini(&moved);
    pst_free(text);
}

/* A free lock proves nothing about a process of another host that did not
 * record its end. */
static void doubts_what_another_host_left(void **state)
{
    struct pst_checkpoint_former former;
    struct pst_checkpoint_owner *a;
    const char *host = NULL;
    int64_t ended = -1;
    int status;
    pid_t pid;

    (void)state;
    pid = fork();
    if (pid == 0)
        _exit(claim_folder(DIGEST, false, false, &a, &former) != PST_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    move_owner("elsewhere");
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_true(pst_checkpoint_may_be_in_use(a, &host, &ended));
    assert_string_equal(host, "elsewhere");
    assert_int_equal(ended, pid);
    pst_checkpoint_release(a);
    move_owner("elsewhere"); /* this process has recorded its end */
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    assert_false(pst_checkpoint_may_be_in_use(a, &host, &ended));
    pst_checkpoint_release(a);
    pid = fork();
    if (pid == 0)
        _exit(claim_folder(DIGEST, false, false, &a, &former) != PST_OK);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_ok(claim_folder(DIGEST, false, false, &a, &former), &diag);
    /* The owner is of this host. */
    assert_false(pst_checkpoint_may_be_in_use(a, &host, &ended));
    pst_checkpoint_release(a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(folder_of_a_step_is_refused, clean),
        cmocka_unit_test_teardown(folder_in_that_of_a_run_is_refused, clean),
        cmocka_unit_test_teardown(second_folder_has_the_name_of_the_first,
                                  clean),
        cmocka_unit_test_teardown(record_is_no_link, clean),
        cmocka_unit_test_teardown(belongs_to_one_run, clean),
        cmocka_unit_test_teardown(sees_that_it_was_moved, clean),
        cmocka_unit_test_teardown(sees_the_lock_of_another_user, clean),
        cmocka_unit_test_teardown(killed_owners_leave_it_free, clean),
        cmocka_unit_test_teardown(doubts_what_another_host_left, clean),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
