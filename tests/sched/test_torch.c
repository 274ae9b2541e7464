// SPDX-License-Identifier: Apache-2.0
/*
 * Against shared/schedules: what PyTorch generates, lowers, simulates and
 * refuses, action for action. Conformance cases 32 to 43 are named by number.
 */
#include "stages/sched/generate.h"
#include "stages/sched/torch/torch.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tests/test.h"

#define MAX_RANKS 128

static const char *folder;

/* --- text --------------------------------------------------------------- */

static char *read_file(const char *name)
{
    char path[512], *text = NULL;
    FILE *file;
    long size;

    (void)snprintf(path, sizeof(path), "%s/%s", folder, name);
    file = fopen(path, "r");
    assert_non_null(file);
    (void)fseek(file, 0, SEEK_END);
    size = ftell(file);
    rewind(file);
    text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, file), size);
    text[size] = '\0';
    (void)fclose(file);
    return text;
}

/* Cuts the line off and moves on; NULL at the end. */
static char *next_line(char **at)
{
    char *line = *at, *end;

    if (!line || !*line)
        return NULL;
    end = strchr(line, '\n');
    *at = end ? end + 1 : NULL;
    if (end)
        *end = '\0';
    return line;
}

static int compare_words(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* Several RESHARDs in a row stand in the order of a hash set: sorts them. */
static void sort_reshards(struct pst_str *line)
{
    char *copy = strdup(pst_str_text(line)), *save = NULL;
    char *run[64];
    size_t n = 0;
    struct pst_str out = {0};

    for (char *word = strtok_r(copy, " ", &save); word || n;
         word = word ? strtok_r(NULL, " ", &save) : NULL) {
        const bool reshard = word && strstr(word, "RESHARD");

        if (reshard) {
            assert_in_range(n, 0, 63);
            run[n++] = word;
            continue;
        }
        qsort(run, n, sizeof(*run), compare_words);
        for (size_t i = 0; i < n; i++)
            pst_str_addf(&out, "%s%s", out.len ? " " : "", run[i]);
        n = 0;
        if (word)
            pst_str_addf(&out, "%s%s", out.len ? " " : "", word);
    }
    free(copy);
    pst_str_fini(line);
    *line = out;
}

static void print_rank(const struct pst_schedule *s, unsigned r,
                       struct pst_str *out)
{
    pst_actions_print(s->ranks[r].at, s->ranks[r].n, " ", out);
}

/* --- blocks ------------------------------------------------------------- */

struct block {
    char kind[24], name[32]; /* ours: "zb-h1" */
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

/* The next block of the text; false: none. */
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

static struct pst_schedule *make(const char *name, unsigned ranks,
                                 unsigned stages, unsigned n, bool idle)
{
    const struct pst_schedule_options o = {.name = name,
                                           .ranks = ranks,
                                           .stages = stages,
                                           .microbatches = n,
                                           .train = true,
                                           .exact = true,
                                           .idle = idle};
    struct pst_schedule *s = NULL;
    struct pst_diag diag;

    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    return s;
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
        assert_int_equal(pst_schedule_peak_rank(s, r), strtoul(at, &end, 10));
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

/* Case 44: hand-overs are added, then nothing can hang, even if sends block. */
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

/* Returns false for kinds that are not ours to make. */
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

/* --- single passes ------------------------------------------------------ */

/* "0F0 . 0B0 | 1F0" becomes lines and cells. */
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

/* Calls try for every line of passes.txt that begins with kind. */
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

/* From the generator, and once more by way of text. */
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

/* "NAME V=2 n=3 P=4": exact refuses as well; else only what cannot be. */
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
    assert_non_null(strstr(diag.text, "gpipe, 1f1b, interleaved-1f1b"));
    o.name = "inTERLeaved1f1B";
    assert_ok(pst_schedule_make(&o, &s, &diag), &diag);
    assert_string_equal(s->name, "interleaved-1f1b");
    pst_schedule_free(s);
    rows = pst_sched_rows(&n);
    assert_int_equal(n, 9);
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

/* "check P=2 S=2 n=1: LISTS", "lower ranks=0,1: LISTS": either the text is
 * refused or no schedule comes of it. */
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
    if (status != (ranks > stages ? PST_ERR_CONFIG : PST_ERR_INPUT))
        fail_msg("%s: %s", lists, pst_status_name(status));
}

/* "simulate ranks=0: LISTS", "defer ranks=0,1: LISTS". Refused by PyTorch's
 * simulator, and by ours; a receive that nothing sends, by lowering. */
static void try_simulation(const char *line, const char *lists)
{
    const struct pst_link link = {0, 1, true};
    struct pst_schedule *s = parse_lists(lists);
    enum pst_status status;
    struct pst_diag diag;
    size_t steps;

    s->train = true; /* else gradients would not matter */
    if (line[0] == 's')
        status = pst_torch_steps(s, &steps, &diag);
    else
        status =
            pst_schedule_lower(s, &link, s->n_stages - 1, NULL, 0, 0, &diag);
    if (status != PST_ERR_INPUT && status != PST_ERR_UNSUPPORTED)
        fail_msg("%s: %s", lists, pst_status_name(status));
    pst_schedule_free(s);
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
                lists = "0F0 0B0"; /* ranks 0 and 2: lines have no numbers */
            try_lists(lists, ranks, stages, n);
        } else if (strncmp(line, "lower ranks=0,", 14) == 0) {
            try_lists(strstr(lists, "(empty)") ? "0F0 0B0" : lists,
                      line[14] == '0' ? 1 : 2, 2, strstr(lists, "1B1") ? 2 : 1);
        } else if (strncmp(line, "csv compute_only", 16) == 0) {
            /* Messages are welcome in ours, but not so few. */
            try_lists(lists, strchr(lists, '/') ? 2 : 1,
                      strchr(lists, '/') ? 2 : 1, 1);
        } else if (strncmp(line, "simulate ", 9) == 0 ||
                   strncmp(line, "defer ", 6) == 0) {
            try_simulation(line, lists);
        } else if (strncmp(line, "parse ", 6) == 0) {
            assert_int_equal(pst_action_parse(line + 6, strlen(line + 6), a),
                             0);
        } else {
            continue;
        }
        lines++;
    }
    assert_int_equal(lines, 32);
    free(text);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(case_32_names),
        cmocka_unit_test(case_33_34_35_44_lists_peaks_steps_safety),
        cmocka_unit_test(case_34_refusals),
        cmocka_unit_test(case_36_parse_and_print),
        cmocka_unit_test(case_37_fetch_and_release),
        cmocka_unit_test(case_38_reductions),
        cmocka_unit_test(case_39_merge),
        cmocka_unit_test(case_40_sends_and_receives),
        cmocka_unit_test(case_41_zero_bubble_by_way_of_text),
        cmocka_unit_test(case_42_refused_lists),
        cmocka_unit_test(case_43_placement),
    };

    if (argc < 2)
        return 2;
    folder = argv[1];
    if (access(folder, R_OK) != 0)
        return 77;
    return cmocka_run_group_tests_name("sched-torch", tests, NULL, NULL);
}
