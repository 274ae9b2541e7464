// SPDX-License-Identifier: Apache-2.0
/* Tests which checkpoints are in the past of a run that has gone back, and
 * which run two folders belong to. */
#include "stages/files/checkpoint/pair.h"

#include "tests/files/checkpoints.h"

static struct pst_checkpoint_rewinds rewinds_of(unsigned n,
                                                const uint64_t (*pairs)[2])
{
    struct pst_checkpoint_rewinds ret = {0};

    for (unsigned i = 0; i < n; i++)
        pst_checkpoint_add_rewind(&ret, pairs[i][0], pairs[i][1]);
    return ret;
}

static void check(const struct pst_checkpoint_rewinds *r, unsigned n,
                  const uint64_t (*want)[2])
{
    assert_int_equal(r->n, n);
    for (unsigned i = 0; i < n; i++) {
        assert_int_equal(r->at[i].course, want[i][0]);
        assert_int_equal(r->at[i].step, want[i][1]);
    }
}

/* A rewind makes those superfluous that went back less far before it, in any
 * order. */
static void rewinds_are_few(void **state)
{
    static const uint64_t three[][2] = {{5, 10}, {7, 20}, {9, 30}};
    static const uint64_t order[][2] = {{9, 30}, {5, 10}, {7, 20}, {5, 10}};
    static const uint64_t back[][2] = {{5, 10}, {7, 20}, {9, 30}, {11, 20}};
    static const uint64_t left[][2] = {{5, 10}, {11, 20}};
    static const uint64_t late[][2] = {{11, 20}, {7, 20}, {9, 30}};
    struct pst_checkpoint_rewinds r = rewinds_of(3, three);

    (void)state;
    check(&r, 3, three);
    assert_int_equal(pst_checkpoint_course(&r), 9);
    r = rewinds_of(4, order);
    check(&r, 3, three);
    r = rewinds_of(4, back);
    check(&r, 2, left);
    r = rewinds_of(3, late);
    check(&r, 1, &left[1]);
    r = rewinds_of(0, three);
    assert_int_equal(pst_checkpoint_course(&r), 0);
    /* The oldest one is forgotten. */
    for (unsigned i = 0; i < 2 * PST_CHECKPOINT_REWINDS; i++)
        pst_checkpoint_add_rewind(&r, 100 + i, 1000 + i);
    assert_int_equal(r.n, PST_CHECKPOINT_REWINDS);
    assert_int_equal(r.at[0].step, 1000 + PST_CHECKPOINT_REWINDS);
    pst_checkpoint_add_rewind(&r, 101, 1001);
    assert_int_equal(r.n, PST_CHECKPOINT_REWINDS);
    assert_int_equal(pst_checkpoint_course(&r),
                     99 + 2 * PST_CHECKPOINT_REWINDS);
}

static void leaves_courses(void **state)
{
    static const uint64_t pairs[][2] = {{5, 10}, {7, 20}};
    const struct pst_checkpoint_rewinds r = rewinds_of(2, pairs);

    (void)state;
    assert_false(pst_checkpoint_is_left(&r, 0, 10));
    assert_true(pst_checkpoint_is_left(&r, 0, 11));
    assert_false(pst_checkpoint_is_left(&r, 5, 20));
    assert_true(pst_checkpoint_is_left(&r, 5, 21));
    assert_false(pst_checkpoint_is_left(&r, 7, 1000));
    assert_true(pst_checkpoint_new_course(0) > 1600000000000);
    assert_int_equal(pst_checkpoint_new_course((uint64_t)1 << 60),
                     ((uint64_t)1 << 60) + 1);
}

/* Saves a checkpoint of that course. */
static void save_course(uint64_t step, uint64_t course)
{
    const struct pst_checkpoint_info info = {.step = step,
                                             .seed = UINT64_MAX - 1,
                                             .model_digest = DIGEST,
                                             .optimizer = "adamw",
                                             .course = course};
    struct pst_checkpoint_shard shard = {0};

    assert_ok(save_shard(step, 0, 8, 1, &shard), &diag);
    assert_ok(pst_checkpoint_commit("ck", &info, NULL, &shard, 1, 0, &diag),
              &diag);
}

/* Returns the step that is opened, or the negative status. */
static int64_t open_step(uint64_t step, const struct pst_checkpoint_lineage *of,
                         struct pst_str *notes)
{
    const struct pst_checkpoint_query query = {.dir = "ck",
                                               .step = step,
                                               .lineage = of,
                                               .skipped = note_skipped,
                                               .ctx = notes};
    struct pst_checkpoint *ckpt;
    const enum pst_status status = pst_checkpoint_open(&query, &ckpt, &diag);
    int64_t ret = status;

    if (status != PST_OK)
        return ret;
    ret = (int64_t)ckpt->info.step;
    assert_int_equal(ckpt->info.course, ret == 15 ? 5 : 0);
    pst_checkpoint_close(ckpt);
    return ret;
}

static void opens_only_the_past(void **state)
{
    struct pst_checkpoint_lineage of = {.newest = UINT64_MAX};
    struct pst_checkpoint_former former;
    struct pst_str notes = {0};

    (void)state;
    save_course(10, 0);
    save_course(15, 5);
    save_course(20, 0);
    save_course(30, 0);
    assert_int_equal(open_step(PST_CHECKPOINT_LATEST, &of, NULL), 30);
    of.newest = 29;
    assert_int_equal(open_step(PST_CHECKPOINT_LATEST, &of, NULL), 20);
    of.newest = 9;
    assert_int_equal(open_step(PST_CHECKPOINT_LATEST, &of, NULL),
                     PST_ERR_NOT_FOUND);
    of.newest = UINT64_MAX;
    pst_checkpoint_add_rewind(&of.rewinds, 5, 10);
    assert_int_equal(open_step(PST_CHECKPOINT_LATEST, &of, &notes), 15);
    assert_string_equal(pst_str_text(&notes),
                        "step-00000030: is not in the past of the run, which "
                        "has gone back to an earlier step with --resume=STEP "
                        "since then\n");
    pst_str_fini(&notes);
    assert_int_equal(open_step(20, &of, NULL), PST_ERR_NOT_FOUND);
    assert_non_null(strstr(diag.text, "is not in the past of the run"));
    assert_int_equal(open_step(10, &of, NULL), 10);
    pst_checkpoint_add_rewind(&of.rewinds, 6, 5);
    assert_int_equal(open_step(PST_CHECKPOINT_LATEST, &of, NULL),
                     PST_ERR_NOT_FOUND);
    of.rewinds.n = 0;
    assert_ok(pst_checkpoint_set_left_aside("ck", &of.rewinds, &former, &diag),
              &diag);
    assert_int_equal(former.n, 0);
    pst_checkpoint_add_rewind(&of.rewinds, 5, 10);
    assert_ok(pst_checkpoint_set_left_aside("ck", &of.rewinds, &former, &diag),
              &diag);
    assert_int_equal(former.n, 2);
    assert_int_equal(former.step, 30);
    assert_true(is_there(10) && is_there(15) && !is_there(20));
}

static enum pst_status claim_folder(
    const char *folder, const char *run, bool adopt,
    const struct pst_checkpoint_rewinds *rewinds,
    struct pst_checkpoint_owner **ret)
{
    const bool is_first = strcmp(folder, "ck") == 0;
    const struct pst_checkpoint_claim claim = {.dir = folder,
                                               .model_digest = DIGEST,
                                               .run = run,
                                               .fallback =
                                                   is_first ? "second" : NULL,
                                               .first = is_first ? NULL : "ck",
                                               .rewinds = rewinds,
                                               .adopt = adopt};
    struct pst_checkpoint_former former;

    return pst_checkpoint_acquire(&claim, ret, &former, &diag);
}

/* A folder in which nothing can be locked is refused if it would be refused
 * otherwise. */
static void unlocked_folder_is_checked(void **state)
{
    struct pst_checkpoint_owner *owner;

    (void)state;
    assert_ok(claim_folder("ck", "a", false, NULL, &owner), &diag);
    assert_ok(save(1, 8, 1, 0), &diag);
    pst_checkpoint_release(owner);
    assert_int_equal(unlink("ck/lock"), 0);
    assert_int_equal(mkdir("ck/lock", 0777), 0);
    assert_int_equal(claim_folder("ck", "b", false, NULL, &owner),
                     PST_ERR_CONFIG);
    assert_int_equal(diag.error, PST_E_CHECKPOINT_OTHER_RUN);
    assert_int_equal(claim_folder("ck", "b", true, NULL, &owner), PST_ERR_IO);
    assert_true(is_there(1));
}

/* A folder that the run had at its last save is missing, or an empty one is in
 * its place. */
static void pair_misses_a_folder(void **state)
{
    struct pst_checkpoint_owner *owners[2];
    struct pst_checkpoint_pair pair;

    (void)state;
    assert_ok(claim_folder("ck", "a", false, NULL, &owners[0]), &diag);
    assert_ok(claim_folder("second", "a", false, NULL, &owners[1]), &diag);
    assert_int_equal(rename("second", "away"), 0);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_false(pair.gone[0] || pair.gone[1]); /* nothing was saved */
    assert_int_equal(rename("away", "second"), 0);
    pst_checkpoint_record_pair(owners[0], owners[1]);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_false(pair.gone[0] || pair.gone[1]);
    for (unsigned i = 0; i < 2; i++) {
        const char *dir = i == 0 ? "ck" : "second";

        assert_int_equal(rename(dir, "away"), 0);
        for (unsigned made = 0; made < 2; made++) {
            assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag),
                      &diag);
            assert_true(pair.gone[i] && !pair.gone[1 - i]);
            assert_int_equal(made ? rmdir(dir) : mkdir(dir, 0777), 0);
        }
        assert_int_equal(rename("away", dir), 0);
    }
    assert_int_equal(rename("ck", "away"), 0);
    assert_ok(pst_checkpoint_read_pair("away", "second", &pair, &diag), &diag);
    assert_false(pair.gone[0] || pair.gone[1]);
    assert_int_equal(rename("away", "ck"), 0);
    pst_checkpoint_release(owners[0]);
    pst_checkpoint_release(owners[1]);
    assert_int_equal(unlink("second/owner.json"), 0);
}

static void pair_has_one_run(void **state)
{
    static const uint64_t pairs[][2] = {{5, 10}, {7, 20}};
    const struct pst_checkpoint_rewinds one = rewinds_of(1, pairs),
                                        two = rewinds_of(2, pairs);
    struct pst_checkpoint_owner *first, *second;
    struct pst_checkpoint_pair pair;

    (void)state;
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_string_equal(pair.run, "");
    assert_ok(claim_folder("ck", "a", false, &one, &first), &diag);
    assert_ok(claim_folder("second", "a", false, &two, &second), &diag);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_string_equal(pair.run, "a");
    assert_false(pair.of_second || pair.lineage.ignored[0] ||
                 pair.lineage.ignored[1]);
    check(&pair.lineage.rewinds, 2, pairs);
    assert_int_equal(pair.missed, 20);
    assert_ok(pst_checkpoint_record_rewinds(first, &two, &diag), &diag);
    assert_ok(pst_checkpoint_read_pair("ck", NULL, &pair, &diag), &diag);
    check(&pair.lineage.rewinds, 2, pairs);
    assert_int_equal(pair.missed, 0);
    pst_checkpoint_release(second);
    /* Another run took the second folder. */
    assert_ok(claim_folder("second", "b", false, NULL, &second), &diag);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_string_equal(pair.run, "a");
    assert_true(pair.lineage.ignored[1] && !pair.replaced[1]);
    /* It has replaced run "a", whose folder it could not write. */
    assert_ok(pst_checkpoint_record_replaced(second, "ck", true, &diag), &diag);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_string_equal(pair.run, "b");
    assert_true(pair.of_second && pair.replaced[0] && pair.lineage.ignored[0]);
    assert_false(pair.replaced[1] || pair.lineage.ignored[1]);
    assert_int_equal(pair.lineage.rewinds.n, 0);
    /* The same with another folder at the path of the first one. */
    assert_ok(pst_checkpoint_read_pair(".", "second", &pair, &diag), &diag);
    assert_false(pair.replaced[0]);
    /* With a folder that names no run. */
    pst_checkpoint_release(first);
    assert_int_equal(unlink("ck/owner.json"), 0);
    assert_ok(pst_checkpoint_record_replaced(second, "ck", true, &diag), &diag);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_true(pair.replaced[0] && pair.lineage.ignored[0]);
    assert_ok(pst_checkpoint_record_replaced(second, "ck", false, &diag),
              &diag);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_false(pair.replaced[0] || pair.lineage.ignored[0]);
    /* A record that cannot be read counts if the other one says nothing. */
    pst_checkpoint_release(second);
    assert_int_equal(unlink("second/owner.json"), 0);
    assert_int_equal(mkdir("second/owner.json", 0777), 0);
    assert_int_equal(pst_checkpoint_read_pair("ck", "second", &pair, &diag),
                     PST_ERR_IO);
    assert_ok(claim_folder("ck", "a", false, NULL, &first), &diag);
    assert_ok(pst_checkpoint_read_pair("ck", "second", &pair, &diag), &diag);
    assert_true(pair.lineage.ignored[1] && !pair.lineage.ignored[0]);
    pst_checkpoint_release(first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rewinds_are_few),
        cmocka_unit_test(leaves_courses),
        cmocka_unit_test_setup(opens_only_the_past, clean),
        cmocka_unit_test_setup(unlocked_folder_is_checked, clean),
        cmocka_unit_test_setup(pair_misses_a_folder, clean),
        cmocka_unit_test_setup(pair_has_one_run, clean),
    };

    return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
