// SPDX-License-Identifier: Apache-2.0
/*
 * Compares with tests/data/schedules.tar.xz: the schedules that PyTorch
 * generates and lowers, action by action, with their peaks and steps
 * (conformance cases 33, 34, 35, 44).
 */
#include "tests/sched/golden.h"
#include "tests/sched/lines.h"

#define MAX_RANKS 128

/* --- blocks ------------------------------------------------------------- */

struct block {
    char kind[24], name[32]; /* our name: "zb-h1" */
    unsigned per_rank, n, ranks, stages;
    char peak[512], hash[32];
    size_t steps, steps_packed; /* 0: not given */
    char *lines[MAX_RANKS];
    unsigned n_lines;
};

static void read_key(struct block *b, const char *word)
{
    const char *value = strchr(word, '=');

    assert_non_null(value);
    value++;
    if (word[0] == 'V')
        b->per_rank = (unsigned)strtoul(value, NULL, 10);
    else if (word[0] == 'n')
        b->n = (unsigned)strtoul(value, NULL, 10);
    else if (word[0] == 'P')
        b->ranks = (unsigned)strtoul(value, NULL, 10);
    else if (word[0] == 'S')
        b->stages = (unsigned)strtoul(value, NULL, 10);
    else if (strncmp(word, "peak=", 5) == 0)
        (void)snprintf(b->peak, sizeof(b->peak), "%s", value);
    else if (strncmp(word, "fnv1a64=", 8) == 0)
        (void)snprintf(b->hash, sizeof(b->hash), "%s", value);
    else if (strncmp(word, "steps=", 6) == 0)
        b->steps = strtoul(value, NULL, 10);
    else if (strncmp(word, "steps_packed=", 13) == 0)
        b->steps_packed = strtoul(value, NULL, 10);
    else
        fail_msg("key %s", word);
}

/* Reads the next block of the text; false: there is none. */
static bool read_block(char **at, struct block *b)
{
    char *line = next_line(at), *save = NULL, *word;

    memset(b, 0, sizeof(*b));
    while (line && (!*line || *line == '#'))
        line = next_line(at);
    if (!line)
        return false;
    word = strtok_r(line, " ", &save);
    (void)snprintf(b->kind, sizeof(b->kind), "%s", word);
    while ((word = strtok_r(NULL, " ", &save)) != NULL)
        read_key(b, word);
    while ((line = next_line(at)) != NULL && *line) {
        assert_in_range(b->n_lines, 0, MAX_RANKS - 1);
        b->lines[b->n_lines++] = line;
    }
    return true;
}

static void assert_lists(const struct pst_schedule *s, const struct block *b)
{
    uint64_t hash = 0xCBF29CE484222325u;
    char text[32];

    for (unsigned r = 0; r < b->ranks; r++) {
        struct pst_str got = {0}, want = {0};

        print_rank(s, r, &got);
        for (size_t i = 0; i <= got.len; i++) {
            hash ^= (unsigned char)(i < got.len ? got.text[i] : '\n');
            hash *= 0x100000001B3u;
        }
        if (!b->hash[0]) {
            pst_str_add(&want, b->lines[r]);
            sort_reshards(&got);
            sort_reshards(&want);
            if (strcmp(pst_str_text(&got), pst_str_text(&want)) != 0)
                fail_msg("%s V=%u n=%u P=%u rank %u:\n%s\nnot\n%s", b->kind,
                         b->per_rank, b->n, b->ranks, r, pst_str_text(&got),
                         pst_str_text(&want));
        }
        pst_str_fini(&got);
        pst_str_fini(&want);
    }
    (void)snprintf(text, sizeof(text), "%016llx", (unsigned long long)hash);
    if (b->hash[0])
        assert_string_equal(text, b->hash);
    else
        assert_int_equal(b->n_lines, b->ranks);
}

static void assert_peaks(const struct pst_schedule *s, const struct block *b)
{
    const char *at = b->peak;
    char *end;

    for (unsigned r = 0; r < b->ranks; r++) {
        assert_int_equal(peak_of_rank(s, r), strtoul(at, &end, 10));
        at = end + (*end == ',');
    }
}

static size_t steps_of(const struct block *b, const char *name,
                       enum pst_torch_mode mode)
{
    struct pst_schedule *s = make(name, b->ranks, b->stages, b->n, true);
    struct pst_diag diag;
    size_t steps = 0;

    assert_ok(pst_torch_lower(s, mode, &diag), &diag);
    assert_ok(pst_torch_steps(s, &steps, &diag), &diag);
    pst_schedule_free(s);
    return steps;
}

/* Asserts, for case 44, that with local copies added nothing can hang, even if
 * sends block. */
static void assert_safe(struct pst_schedule *s)
{
    struct pst_link links[64];
    struct pst_diag diag;

    assert_in_range(s->n_stages, 1, 64);
    for (unsigned k = 0; k + 1 < s->n_stages; k++)
        links[k] = (struct pst_link){(int)k, (int)k + 1, true};
    assert_ok(pst_schedule_lower(s, links, s->n_stages - 1, NULL, 0, 2, &diag),
              &diag);
    assert_ok(pst_schedule_check(s, links, s->n_stages - 1, NULL, 0, &diag),
              &diag);
}

/* Returns false for kinds that we do not generate. */
static bool try_block(const struct block *b, const char *name)
{
    const bool lists =
        strcmp(b->kind, "compute") == 0 || strcmp(b->kind, "executed") == 0;
    struct pst_schedule *s;
    struct pst_diag diag;

    if (!lists && strcmp(b->kind, "runtime") != 0 &&
        strcmp(b->kind, "sendrecv") != 0 &&
        strcmp(b->kind, "sendrecv-packed") != 0)
        return false;
    s = make(name, b->ranks, b->stages, b->n, true);
    if (lists) {
        assert_lists(s, b);
        assert_peaks(s, b);
        if (b->steps)
            assert_int_equal(steps_of(b, name, PST_TORCH_SENDRECV), b->steps);
        if (b->steps_packed)
            assert_int_equal(steps_of(b, name, PST_TORCH_SENDRECV_PACKED),
                             b->steps_packed);
    } else {
        const enum pst_torch_mode mode =
            strcmp(b->kind, "runtime") == 0    ? PST_TORCH_RUNTIME
            : strcmp(b->kind, "sendrecv") == 0 ? PST_TORCH_SENDRECV
                                               : PST_TORCH_SENDRECV_PACKED;
        size_t steps;

        assert_ok(pst_torch_lower(s, mode, &diag), &diag);
        assert_lists(s, b);
        if (b->steps) {
            assert_ok(pst_torch_steps(s, &steps, &diag), &diag);
            assert_int_equal(steps, b->steps);
        }
    }
    if (s->n_stages <= 32)
        assert_safe(s);
    pst_schedule_free(s);
    return true;
}

static unsigned try_file(const char *file, const char *name)
{
    char *text = read_file(file), *at = text;
    struct block b;
    unsigned n = 0;

    while (read_block(&at, &b))
        n += try_block(&b, name);
    free(text);
    return n;
}

static void case_33_34_35_44_lists_peaks_steps_safety(void **state)
{
    (void)state;
    assert_int_equal(try_file("GPipe.txt", "GPipe"), 125);
    assert_int_equal(try_file("1F1B.txt", "1F1B"), 94);
    assert_int_equal(try_file("Interleaved1F1B.txt", "Interleaved1F1B"), 414);
    assert_int_equal(try_file("LoopedBFS.txt", "LoopedBFS"), 442);
    assert_int_equal(
        try_file("InterleavedZeroBubble.txt", "InterleavedZeroBubble"), 414);
    assert_int_equal(try_file("ZBVZeroBubble.txt", "ZBVZeroBubble"), 124);
    assert_int_equal(try_file("DualPipeV.txt", "DualPipeV"), 51);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_33_34_35_44_lists_peaks_steps_safety),
    };

    if (argc < 2)
        return 2;
    folder = argv[1];
    return cmocka_run_group_tests_name("sched-torch", tests, NULL, NULL);
}
