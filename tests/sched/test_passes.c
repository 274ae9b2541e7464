// SPDX-License-Identifier: Apache-2.0
/*
 * Compares with tests/data/schedules.tar.xz: PyTorch's single passes, its
 * parser and its refusals (conformance cases 32, 34, 36 to 43).
 */
#include "tests/sched/golden.h"

/* --- single passes ------------------------------------------------------ */

/* Parses schedules of ranks that are separated by "|", as in "0F0 . 0B0 | 1F0".
 */
static struct pst_schedule *parse_lists(const char *lists)
{
    struct pst_schedule *s = NULL;
    struct pst_str text = {0};
    struct pst_diag diag;

    for (const char *at = lists; *at; at++) {
        if (strncmp(at, " | ", 3) == 0) {
            pst_str_add(&text, "\n");
            at += 2;
        } else {
            pst_str_addn(&text, *at == ' ' ? "," : at, 1);
        }
    }
    assert_ok(
        pst_schedule_parse(pst_str_text(&text), text.len, "golden", &s, &diag),
        &diag);
    pst_str_fini(&text);
    return s;
}

static void assert_text(const struct pst_schedule *s, const char *want)
{
    struct pst_str got = {0}, sorted = {0};

    for (unsigned r = 0; r < s->n_ranks; r++) {
        pst_str_add(&got, r ? " | " : "");
        print_rank(s, r, &got);
    }
    pst_str_add(&sorted, want);
    sort_reshards(&got);
    sort_reshards(&sorted);
    assert_string_equal(pst_str_text(&got), pst_str_text(&sorted));
    pst_str_fini(&got);
    pst_str_fini(&sorted);
}

static unsigned fields(char *line, char **field, unsigned max)
{
    unsigned n = 0;

    for (char *at = line; at && n < max; n++) {
        field[n] = at;
        at = strchr(at, '\t');
        if (at)
            *at++ = '\0';
    }
    return n;
}

static void assert_steps(const struct pst_schedule *s, const char *want)
{
    struct pst_diag diag;
    size_t steps;

    assert_ok(pst_torch_steps(s, &steps, &diag), &diag);
    assert_int_equal(steps, strtoul(want, NULL, 10));
}

/* Calls `try` for every line of passes.txt that begins with kind. */
static void each_pass(const char *kind, unsigned want_lines,
                      void (*try)(char **field))
{
    char *text = read_file("passes.txt"), *at = text, *line, *field[6];
    unsigned lines = 0;

    while ((line = next_line(&at)) != NULL) {
        if (strncmp(line, kind, strlen(kind)) != 0 ||
            line[strlen(kind)] != '\t')
            continue;
        (void)fields(line, field, 6);
        try(field);
        lines++;
    }
    assert_int_equal(lines, want_lines);
    free(text);
}

static void try_print_of_parse(char **field)
{
    struct pst_action a[2];
    struct pst_str text = {0};
    const unsigned n = pst_action_parse(field[1], strlen(field[1]), a);

    assert_in_range(n, 1, 2);
    pst_actions_print(a, n, " ", &text);
    assert_string_equal(pst_str_text(&text), field[2]);
    pst_str_fini(&text);
}

static void try_lenient(char **field)
{
    struct pst_action a[2];

    assert_int_equal(pst_action_parse(field[1], strlen(field[1]), a), 0);
}

static void case_36_parse_and_print(void **state)
{
    static const char *const ours[] = {
        "0SEND_F1>3", "3RECV_F1<0", "3SEND_B0>0",     "0RECV_B0<3",
        "0COPY_F2",   "1COPY_B2",   "0REDUCE_GRAD#7", ".",
    };

    (void)state;
    each_pass("print-of-parse", 14, try_print_of_parse);
    each_pass("lenient-parse", 6, try_lenient);
    for (size_t i = 0; i < PST_COUNT(ours); i++) {
        char text[32], *field[] = {NULL, text, text};

        (void)snprintf(text, sizeof(text), "%s", ours[i]);
        try_print_of_parse(field);
    }
}

static void try_unshard(char **field)
{
    struct pst_schedule *s = parse_lists(field[1]);
    struct pst_diag diag;

    assert_ok(pst_torch_fetch(s, PST_TORCH_WINDOW, &diag), &diag);
    assert_text(s, field[2]);
    pst_schedule_free(s);
}

/* Expects the same actions from our pass and from PyTorch's, for a schedule
 * without idle slots. */
static void try_ours(const char *lists, unsigned window)
{
    struct pst_schedule *s = parse_lists(lists), *torch = parse_lists(lists);
    bool stages[64];
    struct pst_str want = {0};
    struct pst_diag diag;

    memset(stages, true, sizeof(stages));
    assert_true(s->n_stages <= PST_COUNT(stages));
    assert_ok(pst_torch_fetch(torch, window, &diag), &diag);
    for (unsigned r = 0; r < torch->n_ranks; r++) {
        pst_str_add(&want, r ? " | " : "");
        print_rank(torch, r, &want);
    }
    pst_sched_pack(s);
    assert_ok(pst_schedule_unshard(s, window, stages, &diag), &diag);
    assert_text(s, pst_str_text(&want));
    pst_str_fini(&want);
    pst_schedule_free(s);
    pst_schedule_free(torch);
}

static void try_unshard_ours(char **field)
{
    if (strstr(field[1], "OVERLAP") == NULL) /* lowering separates these */
        for (unsigned window = 1; window <= 5; window++)
            try_ours(field[1], window);
}

static unsigned seed = 1;

static unsigned pick(unsigned n)
{
    seed = seed * 1103515245 + 12345;
    return (seed >> 16) % n;
}

/* Random schedules of up to 6 stages. */
static void unshards_as_torch_does(void **state)
{
    (void)state;
    each_pass("unshard", 9, try_unshard_ours);
    for (unsigned i = 0; i < 200; i++) {
        const unsigned n = 1 + pick(6), windows = 1 + pick(6);
        struct pst_str lists = {0};

        for (unsigned k = 0; k < 12; k++)
            pst_str_addf(&lists, "%s%u%c%u", k ? " " : "", pick(n),
                         pick(2) ? 'F' : 'B', k);
        try_ours(pst_str_text(&lists), windows);
        pst_str_fini(&lists);
    }
}

/* Expects this lowered schedule of one rank with all stages, for a window of
 * that many stages. */
static void assert_unsharded(const char *list, unsigned window,
                             const char *want)
{
    struct pst_schedule *s = parse_lists(list);
    struct pst_diag diag;
    bool stages[8];

    memset(stages, true, sizeof(stages));
    assert_ok(pst_schedule_unshard(s, window, stages, &diag), &diag);
    assert_text(s, want);
    pst_schedule_free(s);
}

static unsigned unshards(const char *list, unsigned window)
{
    struct pst_schedule *s = parse_lists(list);
    struct pst_diag diag;
    bool stages[8];
    unsigned n = 0;

    memset(stages, true, sizeof(stages));
    assert_ok(pst_schedule_unshard(s, window, stages, &diag), &diag);
    for (size_t i = 0; i < s->ranks[0].n; i++)
        n += s->ranks[0].at[i].kind == PST_ACT_UNSHARD;
    pst_schedule_free(s);
    return n;
}

static void unshards_in_windows(void **state)
{
    static const char there_and_back[] = "0F0 1F0 2F0 3F0 3B0 2B0 1B0 0B0";

    (void)state;
    assert_unsharded("0F0 0F1 0B0 0B1", 3, "0UNSHARD 0F0 0F1 0B0 0B1 0RESHARD");
    assert_unsharded("0F0 0F1 1F0 1F1 1B0 1B1 0B0 0B1", 3,
                     "0UNSHARD 1UNSHARD 0F0 0F1 1F0 1F1 1B0 1B1 1RESHARD 0B0 "
                     "0B1 0RESHARD");
    assert_unsharded(there_and_back, 3,
                     "0UNSHARD 1UNSHARD 2UNSHARD 0F0 0RESHARD 3UNSHARD 1F0 2F0 "
                     "3F0 3B0 3RESHARD 0UNSHARD 2B0 2RESHARD 1B0 1RESHARD 0B0 "
                     "0RESHARD");
    assert_int_equal(unshards(there_and_back, 1), 7);
    assert_int_equal(unshards(there_and_back, 3), 5);
    assert_int_equal(unshards(there_and_back, 4), 4);
}

static void case_37_fetch_and_release(void **state)
{
    (void)state;
    each_pass("unshard", 9, try_unshard);
}

static void try_reduce(char **field)
{
    struct pst_schedule *s = parse_lists(field[2]);
    struct pst_diag diag;

    s->n_microbatches = (unsigned)strtoul(field[1], NULL, 10);
    assert_ok(pst_torch_reduce(s, &diag), &diag);
    assert_text(s, field[3]);
    pst_schedule_free(s);
}

static void case_38_reductions(void **state)
{
    (void)state;
    each_pass("reduce_grad", 7, try_reduce);
}

static void try_merge(char **field)
{
    struct pst_schedule *s = parse_lists(field[1]);
    struct pst_diag diag;

    assert_ok(pst_torch_merge(s, &diag), &diag);
    assert_text(s, field[2]);
    pst_schedule_free(s);
}

static void case_39_merge(void **state)
{
    (void)state;
    each_pass("merge", 9, try_merge);
}

static void try_sendrecv(char **field)
{
    struct pst_schedule *s = parse_lists(field[3]);
    const char *at = field[1];
    struct pst_diag diag;

    for (unsigned k = 0; k < s->n_stages; k++, at += 2)
        assert_int_equal(s->rank_of[k], at[0] - '0');
    assert_ok(pst_torch_lower(s, PST_TORCH_SENDRECV, &diag), &diag);
    assert_text(s, field[4]);
    assert_steps(s, field[2]);
    pst_schedule_free(s);
}

static void case_40_sends_and_receives(void **state)
{
    (void)state;
    each_pass("sendrecv", 7, try_sendrecv);
}

/* Merges and lowers a generated schedule that was printed and read back. */
static void try_merged(char **field)
{
    struct pst_schedule *s = make("InterleavedZeroBubble", 2, 4, 8, true);
    struct pst_schedule *again;
    struct pst_str text = {0};
    struct pst_diag diag;

    for (unsigned r = 0; r < 2; r++) {
        pst_str_add(&text, r ? " | " : "");
        print_rank(s, r, &text);
    }
    again = parse_lists(pst_str_text(&text));
    pst_str_fini(&text);
    assert_ok(pst_torch_merge(again, &diag), &diag);
    assert_ok(pst_torch_lower(again, PST_TORCH_SENDRECV, &diag), &diag);
    assert_text(again, field[5]);
    assert_steps(again, field[4]);
    pst_schedule_free(again);
    pst_schedule_free(s);
}

static void case_41_zero_bubble_by_way_of_text(void **state)
{
    (void)state;
    each_pass("zb-merged", 1, try_merged);
}

static void try_place(char **field)
{
    const unsigned ranks = (unsigned)strtoul(field[2], NULL, 10);
    const unsigned stages = (unsigned)strtoul(field[3], NULL, 10);
    struct pst_str text = {0};
    struct pst_diag diag;
    int rank_of[32];

    assert_ok(
        pst_schedule_place(field[1][0] == 'v' ? PST_PLACE_V : PST_PLACE_LOOP,
                           stages, ranks, NULL, rank_of, &diag),
        &diag);
    for (unsigned k = 0; k < stages; k++)
        pst_str_addf(&text, "%s%d", k ? "," : "", rank_of[k]);
    assert_string_equal(pst_str_text(&text), field[4]);
    pst_str_fini(&text);
}

static void case_43_placement(void **state)
{
    int rank_of[8];

    (void)state;
    each_pass("place", 8, try_place);
    assert_int_equal(pst_schedule_place(PST_PLACE_V, 6, 4, NULL, rank_of, NULL),
                     PST_ERR_USAGE);
}

/* --- what PyTorch refuses ----------------------------------------------- */

/* Expects the refusal of "NAME V=2 n=3 P=4", which PyTorch refuses: with
 * `exact` always, otherwise only if it is impossible. */
static void try_construction(const char *what)
{
    char name[32];
    unsigned per_rank, n, ranks;
    struct pst_schedule_options o = {.name = name, .train = true};
    struct pst_schedule *s = NULL;
    enum pst_status status;
    struct pst_diag diag;
    bool never;

    assert_int_equal(
        sscanf(what, "%31s V=%u n=%u P=%u", name, &per_rank, &n, &ranks), 4);
    o.ranks = ranks;
    o.stages = per_rank * ranks;
    o.microbatches = n;
    o.exact = true;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    o.exact = false;
    status = pst_schedule_make(&o, &s, &diag);
    never = strstr(name, "V") && (per_rank != 2 || name[0] == 'D');
    if (never) {
        assert_int_equal(status, PST_ERR_USAGE);
        return;
    }
    assert_ok(status, &diag);
    assert_ok(pst_torch_lower(s, PST_TORCH_RUNTIME, &diag), &diag);
    pst_schedule_free(s);
}

static void case_34_refusals(void **state)
{
    char *text = read_file("errors.txt"), *at = text, *line;
    unsigned lines = 0;

    (void)state;
    while ((line = next_line(&at)) != NULL)
        if (line[0] != '#' && strstr(line, " V=")) {
            try_construction(line);
            lines++;
        }
    assert_int_equal(lines, 149);
    free(text);
}

static void case_32_names(void **state)
{
    struct pst_schedule_options o = {"foo", 2, 4, 4, true, NULL};
    struct pst_schedule *s = NULL;
    struct pst_diag diag;
    const struct pst_sched_row *rows;
    size_t n;

    (void)state;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "\"foo\""));
    assert_non_null(strstr(diag.text, " 1f1b, "));
    assert_non_null(strstr(diag.text, " interleaved-1f1b, "));
    assert_non_null(strstr(diag.text, "csv:FILE"));
    /* A schedule that cannot be chosen. */
    assert_null(strstr(diag.text, "inference"));
    o.name = "inTERLeaved1f1B";
    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    assert_string_equal(s->name, "interleaved-1f1b");
    pst_schedule_free(s);
    rows = pst_sched_rows(&n);
    for (size_t i = 0; i < n; i++) {
        o.name = rows[i].name;
        o.train = rows[i].trains;
        assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
        pst_schedule_free(s);
        o.train = false;
        assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
        assert_string_equal(s->name, "inference");
        pst_schedule_free(s);
    }
    o.train = true;
    assert_int_equal(pst_schedule_make(&o, &s, &diag), PST_ERR_USAGE);
    assert_non_null(strstr(diag.text, "forward only"));
}

/* Expects that LISTS of "check P=2 S=2 n=1: LISTS" or "lower ranks=0,1: LISTS"
 * are refused when they are read or when they are lowered. */
static void try_lists(const char *lists, unsigned ranks, unsigned stages,
                      unsigned n)
{
    struct pst_schedule_options o = {
        .ranks = ranks, .stages = stages, .microbatches = n, .train = true};
    char path[] = "/tmp/pst-sched-XXXXXX", name[64];
    const int fd = mkstemp(path);
    struct pst_schedule *s = NULL;
    FILE *file = fdopen(fd, "w");
    enum pst_status status;
    struct pst_diag diag;

    assert_non_null(file);
    for (const char *at = lists; *at; at++) {
        if (strncmp(at, " | ", 3) == 0 || strncmp(at, " / ", 3) == 0) {
            (void)fputc('\n', file);
            at += 2;
        } else {
            (void)fputc(*at == ' ' ? ',' : *at, file);
        }
    }
    (void)fclose(file);
    (void)snprintf(name, sizeof(name), "csv:%s", path);
    o.name = name;
    status = pst_schedule_make(&o, &s, &diag);
    if (status == PST_OK) {
        status = pst_torch_lower(s, PST_TORCH_RUNTIME, &diag);
        pst_schedule_free(s);
    }
    (void)unlink(path);
    if (status != (ranks > stages ? PST_ERR_USAGE : PST_ERR_INPUT))
        fail_msg("%s: %s", lists, pst_status_name(status));
}

/* Expects that LISTS of "simulate ranks=0: LISTS" are refused by the simulator,
 * and those of "defer ranks=0,1: LISTS", which have a receive without a send,
 * by lowering. */
static void try_simulation(const char *line, const char *lists)
{
    const struct pst_link link = {0, 1, true};
    struct pst_schedule *s = parse_lists(lists);
    enum pst_status status;
    struct pst_diag diag;
    size_t steps;

    s->train = true; /* otherwise gradients would not count */
    if (line[0] == 's')
        status = pst_torch_steps(s, &steps, &diag);
    else
        status =
            pst_schedule_lower(s, &link, s->n_stages - 1, NULL, 0, 0, &diag);
    if (status != PST_ERR_INPUT && status != PST_ERR_UNSUPPORTED)
        fail_msg("%s: %s", lists, pst_status_name(status));
    pst_schedule_free(s);
}

/* Rows of errors.txt that other tests cover, or that have no counterpart. */
static const char *const elsewhere[] = {
    " V=",    /* case_34_refusals */
    "class ", /* case_32_names */
    "place ", /* case_43_placement */
    /* Empty cells are gaps here, in any format. */
    "csv compute_comms", "csv other", /* there is one format */
    "hook ",                          /* actions cannot be replaced */
    /* There are no lists that could be too short: arguments come from a data
     * file and from the plan, and losses stay with the ranks. */
    "step ", "losses ", "loss ", "forward only with losses"};

static bool is_elsewhere(const char *line)
{
    for (size_t i = 0; i < PST_COUNT(elsewhere); i++)
        if (strncmp(line, elsewhere[i], strlen(elsewhere[i])) == 0 ||
            (i == 0 && strstr(line, elsewhere[i])))
            return true;
    return line[0] == '#';
}

static void case_42_refused_lists(void **state)
{
    char *text = read_file("errors.txt"), *at = text, *line, *field[3];
    unsigned ranks, stages, n, lines = 0;
    struct pst_action a[2];

    (void)state;
    while ((line = next_line(&at)) != NULL) {
        const char *lists = strstr(line, ": ");

        (void)fields(line, field, 3);
        lists = strstr(line, ": ");
        lists = lists ? lists + 2 : "";
        if (sscanf(line, "check P=%u S=%u n=%u:", &ranks, &stages, &n) == 3) {
            if (strstr(lists, "given"))
                /* The line gives ranks 0 and 2; our lists have no rank
                 * numbers. */
                lists = "0F0 0B0";
            try_lists(lists, ranks, stages, n);
        } else if (strncmp(line, "lower ranks=0,", 14) == 0) {
            try_lists(strstr(lists, "(empty)") ? "0F0 0B0" : lists,
                      line[14] == '0' ? 1 : 2, 2, strstr(lists, "1B1") ? 2 : 1);
        } else if (strncmp(line, "csv compute_only", 16) == 0) {
            /* Messages are allowed here, but none may be missing. */
            try_lists(lists, strchr(lists, '/') ? 2 : 1,
                      strchr(lists, '/') ? 2 : 1, 1);
        } else if (strncmp(line, "simulate ", 9) == 0 ||
                   strncmp(line, "defer ", 6) == 0) {
            try_simulation(line, lists);
        } else if (strncmp(line, "parse ", 6) == 0) {
            assert_int_equal(pst_action_parse(line + 6, strlen(line + 6), a),
                             0);
        } else {
            if (!is_elsewhere(line))
                fail_msg("nothing tests this: %s", line);
            continue;
        }
        lines++;
    }
    assert_int_equal(lines, 32);
    free(text);
}

/* A failing allocation at any call causes no leak and no crash. */
static void survives_lack_of_memory(void **state)
{
    static const struct pst_schedule_options rows[] = {
        {"zb-h1", 2, 4, 5, true, NULL, NULL, false, true},
        {"looped-bfs", 2, 4, 3, true},
        {"zb-v", 2, 4, 3, true},
        {"dualpipe-v", 2, 4, 4, true},
        {"interleaved-1f1b", 2, 3, 3, true, NULL, "0=1,1=1,2=0"},
    };
    static const char text[] = "0F0,0SEND_F0,0RECV_B0,0B0\n"
                               "1RECV_F0,1F0,1B0,1SEND_B0\n";
    const uint64_t live = pst_alloc_live(PST_TAG_PLAN);
    const struct pst_link links[] = {{0, 1, true}, {1, 2, true}, {2, 3, true}};

    (void)state;
    for (size_t k = 0; k <= PST_COUNT(rows); k++) {
        const struct pst_schedule_options *o =
            k < PST_COUNT(rows) ? &rows[k] : NULL;
        enum pst_status status = PST_ERR_NOMEM;

        for (uint64_t n = 1; status != PST_OK; n++) {
            struct pst_schedule *s = NULL;
            const size_t n_links = (o ? o->stages : 2) - 1;
            struct pst_diag diag;

            assert_in_range(n, 1, 2000);
            pst_alloc_fail_at(n);
            status = o ? pst_schedule_make(o, &s, &diag)
                       : pst_schedule_parse(text, strlen(text), "x", &s, &diag);
            if (status == PST_OK && o && n % 2 && !o->place)
                status = pst_torch_lower(s, PST_TORCH_RUNTIME, &diag);
            if (status == PST_OK)
                status =
                    pst_schedule_lower(s, links, n_links, NULL, 0, 2, &diag);
            if (status == PST_OK)
                status = pst_schedule_check(s, links, n_links, NULL, 0, &diag);
            pst_alloc_fail_at(0);
            if (status != PST_OK && status != PST_ERR_NOMEM)
                fail_msg("%s", diag.text);
            pst_schedule_free(s);
            assert_int_equal(pst_alloc_live(PST_TAG_PLAN), live);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_32_names),
        cmocka_unit_test(case_34_refusals),
        cmocka_unit_test(case_36_parse_and_print),
        cmocka_unit_test(case_37_fetch_and_release),
        cmocka_unit_test(unshards_as_torch_does),
        cmocka_unit_test(unshards_in_windows),
        cmocka_unit_test(case_38_reductions),
        cmocka_unit_test(case_39_merge),
        cmocka_unit_test(case_40_sends_and_receives),
        cmocka_unit_test(case_41_zero_bubble_by_way_of_text),
        cmocka_unit_test(case_42_refused_lists),
        cmocka_unit_test(case_43_placement),
        cmocka_unit_test(survives_lack_of_memory),
    };

    if (argc < 2)
        return 2;
    folder = argv[1];
    return cmocka_run_group_tests_name("sched-passes", tests, NULL, NULL);
}
