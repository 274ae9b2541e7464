// SPDX-License-Identifier: Apache-2.0
/*
 * Tests protobuf that protobuf-c alone would unpack until the stack or the
 * memory overflows: plans and control frames of some megabytes. Each is refused
 * within 40 ms of CPU time, ten times the goal, and takes at most four times
 * its size in memory. Both are measured in a process of its own, as the best of
 * several tries.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "daemon/common/control/frame.h"
#include "plan.pb-c.h"
#include "stages/base/fold/fold.h"
#include "stages/base/str.h"
#include "stages/split/store/pack.h"
#include "tests/fuzz/measure.h"
#include "tests/test.h"

/* With sanitizers, which take most of the time for fresh memory, time and
 * memory are not compared. */
#define BIG   ((size_t)(SANITIZED ? 1 : 4) << 20)
#define DEPTH 100000
/* Milliseconds of CPU time: ten times the goal on an idle machine, which is 1
 * ms for each MiB. */
#define MAX_MS  40.0
#define MAX_FOR 4 /* times the input's size */
/* Used instead of MAX_FOR for a folded plan, since each of its lines is
 * allocated. */
#define MAX_LINES 8
#define TRIES     (SANITIZED ? 1 : 5)

/* --- bytes ---------------------------------------------------------------- */

static void put_varint(struct bytes *b, uint64_t value)
{
    unsigned char byte;

    for (; value >= 0x80; value >>= 7) {
        byte = (unsigned char)(value | 0x80);
        put(b, &byte, 1);
    }
    byte = (unsigned char)value;
    put(b, &byte, 1);
}

static void put_head(struct bytes *b, unsigned field, size_t n)
{
    put_varint(b, (uint64_t)field << 3 | 2);
    put_varint(b, n);
}

static size_t varint_size(uint64_t value)
{
    size_t n = 1;

    for (; value >= 0x80; value >>= 7)
        n++;
    return n;
}

/* --- what is wrong with them ---------------------------------------------- */

/* Nests messages with these field numbers, in turns. */
static void nest(struct bytes *b, const unsigned *fields, unsigned n_fields)
{
    size_t *size = calloc(DEPTH + 1, sizeof(*size));

    assert_non_null(size);
    for (unsigned i = DEPTH; i-- > 0;)
        size[i] = 1 + varint_size(size[i + 1]) + size[i + 1];
    for (unsigned i = 0; i < DEPTH; i++)
        put_head(b, fields[i % n_fields], size[i + 1]);
    free(size);
}

static void repeat(struct bytes *b, const char *bytes, size_t n)
{
    while (b->n + n <= BIG)
        put(b, bytes, n);
}

/* Appends n bytes of text, which cost only their size, then empty messages up
 * to BIG bytes. */
static void pad(struct bytes *b, unsigned field, unsigned text, size_t n)
{
    static const char zeros[1 << 16];
    const char empty[] = {(char)(field << 3 | 2), 0};

    put_head(b, text, n);
    for (size_t left = n; left > 0;) {
        const size_t part = PST_MIN(left, sizeof(zeros));

        put(b, zeros, part);
        left -= part;
    }
    repeat(b, empty, sizeof(empty));
}

/* Returns the number of a message's field of kind `type`, greater than `after`;
 * 0: none. */
static unsigned find_field(const ProtobufCMessageDescriptor *desc,
                           ProtobufCType type, bool repeated, unsigned after)
{
    unsigned best = 0;

    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];

        if (f->type == type &&
            (f->label == PROTOBUF_C_LABEL_REPEATED) == repeated &&
            f->id > after && f->id < 16 && (best == 0 || f->id < best))
            best = f->id;
    }
    return best;
}

/* --- readers -------------------------------------------------------------- */

static enum pst_status read_plan(const struct bytes *b, struct pst_diag *diag)
{
    struct pst_plan *plan = NULL;
    const enum pst_status status = pst_plan_unpack(b->at, b->n, &plan, diag);

    if (status == PST_OK)
        pst_plan_free(plan);
    return status;
}

/* Reads a frame as it arrives: in pieces, after its length. */
static enum pst_status read_frame(const struct bytes *b, size_t max_bytes,
                                  size_t max_fields, struct pst_diag *diag)
{
    enum pst_status status = PST_AGAIN;
    struct pstd_frames frames;
    pstd_frame *frame = NULL;
    unsigned char head[4];

    for (unsigned i = 0; i < 4; i++)
        head[i] = (unsigned char)(b->n >> (8 * i));
    pstd_frames_init(&frames, max_bytes, max_fields);
    if (pstd_frames_push(&frames, head, 4, diag) != PST_OK)
        status = PST_ERR_NOMEM;
    for (size_t at = 0; at < b->n && status == PST_AGAIN;) {
        const size_t part = PST_MIN(b->n - at, (size_t)65536);

        status = pstd_frames_push(&frames, b->at + at, part, diag);
        if (status == PST_OK)
            status = pstd_frames_pop(&frames, &frame, diag);
        at += part;
    }
    if (status == PST_OK)
        pstd_frame_free(frame);
    pstd_frames_fini(&frames);
    return status;
}

static enum pst_status read_request(const struct bytes *b,
                                    struct pst_diag *diag)
{
    return read_frame(b, PSTD_REQUEST_MAX, PSTD_REQUEST_FIELD, diag);
}

static enum pst_status read_reply(const struct bytes *b, struct pst_diag *diag)
{
    return read_frame(b, PSTD_REPLY_MAX, PSTD_REPLY_FIELD, diag);
}

/* Largest cost of all refused inputs, with its name. */
struct worst {
    double ms, times;
    char slowest[80], largest[80];
    unsigned n;
};

static struct worst worst;

static unsigned n_failed;

static void PST_PRINTF(1, 2) failed(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    (void)vfprintf(stderr, fmt, args);
    va_end(args);
    n_failed++;
}

/* Expects a refusal within the limits. harmless: the input may be accepted too,
 * as fields that another version has added. */
static void expect_refusal(reader_fn read, const struct bytes *b,
                           const char *what, bool harmless)
{
    const size_t most = MAX_FOR * b->n + SLACK;
    const struct measured m =
        measure(read, b, (struct tries){TRIES, MAX_MS, most});
    const double times = (double)m.grown / (double)b->n;

    if (getenv("PST_VERBOSE") != NULL)
        print_message("%-40s %9zu bytes %7.2f ms %6.2f times  %s\n", what, b->n,
                      m.ms, times, m.text);
    if (m.status == PST_OK
            ? !harmless
            : (m.status != PST_ERR_INPUT && m.status != PST_ERR_VERSION) ||
                  m.text[0] == '\0')
        failed("%s: %s\n", what, pst_status_name(m.status));
    worst.n++;
    if (m.ms > worst.ms) {
        worst.ms = m.ms;
        (void)snprintf(worst.slowest, sizeof(worst.slowest), "%s", what);
    }
    if (b->n > BIG / 2 && times > worst.times) {
        worst.times = times;
        (void)snprintf(worst.largest, sizeof(worst.largest), "%s", what);
    }
    if (!SANITIZED && m.ms > MAX_MS)
        failed("%s: refused in %.1f ms\n", what, m.ms);
    if (!SANITIZED && m.grown > most)
        failed("%s: %zu bytes take %zu\n", what, b->n, m.grown);
}

/* --- of each message ------------------------------------------------------ */

/* Wraps bytes as the reader expects them. */
typedef void (*wrap_fn)(const struct bytes *in, struct bytes *out);

struct way {
    const char *name;
    reader_fn read;
    wrap_fn wrap;
    const ProtobufCMessageDescriptor *desc;
};

static void wrap_none(const struct bytes *in, struct bytes *out)
{
    put(out, in->at, in->n);
}

/* Makes the input the body of a plan file with a matching digest. */
static void wrap_body(const struct bytes *in, struct bytes *out)
{
    char digest[33];

    pst_digest(in->at, in->n, digest);
    put_varint(out, 1 << 3);
    put_varint(out, PST_PLAN_VERSION);
    put_head(out, 2, 32);
    put(out, digest, 32);
    put_head(out, 3, in->n);
    put(out, in->at, in->n);
}

/* Makes the input a field of a request, a reply or a message of the plan. */
static void wrap_in(unsigned field, const struct bytes *in, struct bytes *out)
{
    put_head(out, field, in->n);
    put(out, in->at, in->n);
}

static void wrap_request(const struct bytes *in, struct bytes *out)
{
    wrap_in(2, in, out);
}

static void wrap_train(const struct bytes *in, struct bytes *out)
{
    struct bytes train = map_bytes();

    wrap_in(14, in, &train);
    wrap_in(2, &train, out);
    (void)munmap(train.at, CAPACITY);
}

static void wrap_reply(const struct bytes *in, struct bytes *out)
{
    wrap_in(3, in, out);
}

static void wrap_log(const struct bytes *in, struct bytes *out)
{
    struct bytes log = map_bytes();

    wrap_in(13, in, &log);
    wrap_in(3, &log, out);
    (void)munmap(log.at, CAPACITY);
}

static void wrap_event(const struct bytes *in, struct bytes *out)
{
    wrap_in(4, in, out);
}

/* Makes the input the lines of a plan file, without a digest, which is not
 * checked before they are read. */
static void wrap_lines(const struct bytes *in, struct bytes *out)
{
    put_varint(out, 1 << 3);
    put_varint(out, PST_PLAN_VERSION);
    put_head(out, 4, in->n);
    put(out, in->at, in->n);
}

static void wrap_param(const struct bytes *in, struct bytes *out)
{
    struct bytes param = map_bytes();

    wrap_in(7, in, &param);
    wrap_body(&param, out);
    (void)munmap(param.at, CAPACITY);
}

static const struct way ways[] = {
    {"plan.pb", read_plan, wrap_none, &penstock__plan__plan_file__descriptor},
    {"its body", read_plan, wrap_body, &penstock__plan__plan__descriptor},
    {"a parameter", read_plan, wrap_param, &penstock__plan__param__descriptor},
    {"a frame", read_reply, wrap_none, &pst__control__frame__descriptor},
    {"a request", read_request, wrap_request,
     &pst__control__request__descriptor},
    {"options", read_reply, wrap_train, &pst__control__train__descriptor},
    {"a reply", read_reply, wrap_reply, &pst__control__reply__descriptor},
    {"a log", read_reply, wrap_log, &pst__control__event_list__descriptor},
    {"an event", read_reply, wrap_event, &pst__control__event__descriptor},
};

static void try_it(const struct way *way, struct bytes *b, const char *kind,
                   unsigned number, bool harmless)
{
    struct bytes wrapped = map_bytes();
    char what[80];

    (void)snprintf(what, sizeof(what), "%s: %s %u", way->name, kind, number);
    way->wrap(b, &wrapped);
    expect_refusal(way->read, &wrapped, what, harmless);
    (void)munmap(wrapped.at, CAPACITY);
    (void)munmap(b->at, CAPACITY);
    *b = map_bytes();
}

/* No message of the protocol contains itself. The reader takes deeper nesting
 * for text or for an unknown field, which is as cheap. */
static void nests(void **state)
{
    const struct way *way = *state;
    struct bytes b = map_bytes();

    for (unsigned i = 1; i < 16; i++) {
        const unsigned turns[] = {i, i % 15 + 1};

        nest(&b, turns, 1);
        try_it(way, &b, "nested fields", i, true);
        nest(&b, turns, 2);
        try_it(way, &b, "nested in turns", i, true);
        for (unsigned k = 0; k < DEPTH; k++)
            put_varint(&b, i << 3 | 3); /* a group begins */
        try_it(way, &b, "nested groups", i, false);
    }
    (void)munmap(b.at, CAPACITY);
    assert_int_equal(n_failed, 0);
}

/* Fills the input with empty messages: completely, or after so much text that a
 * limit relative to the input's size would accept them. */
static void empties(void **state)
{
    static const unsigned of_1000[] = {200, 500, 800, 900, 930, 950, 960,
                                       970, 975, 980, 985, 990, 995};
    const struct way *way = *state;
    const unsigned text =
        find_field(way->desc, PROTOBUF_C_TYPE_STRING, false, 0);
    struct bytes b = map_bytes();
    unsigned field;

    for (int repeated = 0; repeated < 2; repeated++)
        for (field = 0; (field = find_field(way->desc, PROTOBUF_C_TYPE_MESSAGE,
                                            repeated != 0, field)) != 0;) {
            const char empty[] = {(char)(field << 3 | 2), 0};

            repeat(&b, empty, sizeof(empty));
            try_it(way, &b, "empty messages", field, false);
            for (unsigned k = 0; k < PST_COUNT(of_1000) && text != 0; k++) {
                pad(&b, field, text, BIG / 1000 * of_1000[k]);
                try_it(way, &b, "padded messages", field, false);
                pad(&b, field, text, BIG / 1000 * of_1000[k]);
                put_varint(&b, text << 3); /* a number instead of the text */
                put_varint(&b, 1);
                try_it(way, &b, "padded and another kind", field, false);
            }
        }
    for (field = 0; (field = find_field(way->desc, PROTOBUF_C_TYPE_STRING, true,
                                        field)) != 0;) {
        const char empty[] = {(char)(field << 3 | 2), 0};

        repeat(&b, empty, sizeof(empty));
        try_it(way, &b, "empty texts", field, false);
    }
    (void)munmap(b.at, CAPACITY);
    assert_int_equal(n_failed, 0);
}

static void unknowns(void **state)
{
    static const char varint[] = "\xa8\x3e\x01",
                      fixed64[] = "\xa9\x3e\0\0\0\0\0\0\0",
                      fixed32[] = "\xad\x3e\0\0\0", empty[] = "\xaa\x3e";
    const struct way *way = *state;
    struct bytes b = map_bytes();

    repeat(&b, varint, 3);
    try_it(way, &b, "unknown numbers", 1, false);
    repeat(&b, fixed64, 10);
    try_it(way, &b, "unknown numbers", 8, false);
    repeat(&b, fixed32, 6);
    try_it(way, &b, "unknown numbers", 4, false);
    repeat(&b, empty, 3);
    try_it(way, &b, "unknown bytes", 0, false);
    /* The maximum number of unknown fields. */
    for (unsigned i = 0; i < 64; i++) {
        static const char zeros[1 << 16];

        put(&b, empty, 2);
        put_varint(&b, sizeof(zeros));
        put(&b, zeros, sizeof(zeros));
    }
    try_it(way, &b, "large unknown bytes", 64, true);
    (void)munmap(b.at, CAPACITY);
    assert_int_equal(n_failed, 0);
}

static void truncated(void **state)
{
    static const char ones[] = "\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80";
    const struct way *way = *state;
    const unsigned text =
        find_field(way->desc, PROTOBUF_C_TYPE_STRING, false, 0);
    struct bytes b = map_bytes();

    for (unsigned n = 1; n < sizeof(ones); n++) {
        put(&b, ones, n);
        try_it(way, &b, "cut tags of", n, false);
        put_varint(&b, 100 << 3);
        put(&b, ones, n);
        try_it(way, &b, "cut numbers of", n, false);
        put_varint(&b, 100 << 3 | 2);
        put(&b, ones, n);
        try_it(way, &b, "cut lengths of", n, false);
        if (text == 0)
            continue;
        pad(&b, text, text, BIG - BIG / 1000);
        put(&b, ones, n);
        try_it(way, &b, "cut behind texts", n, false);
    }
    repeat(&b, ones, 10);
    try_it(way, &b, "a number of bytes", 10, false);
    repeat(&b, "\xff", 1);
    try_it(way, &b, "a number of bytes", 255, false);
    (void)munmap(b.at, CAPACITY);
    assert_int_equal(n_failed, 0);
}

/* Tries the folded form of a plan, in which equal layers are stored once. */
static void lines(void **state)
{
    static const char *const all[] = {"c{\n}\n", "c{\n", "g{\nk{\n}\n}\n",
                                      "a\"\n",   "z1\n", "a1",
                                      "a[1 1\n", "}\n",  "i\"\n"};
    struct bytes b = map_bytes();

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(all); i++) {
        struct bytes file = map_bytes();
        struct measured m;

        repeat(&b, all[i], strlen(all[i]));
        wrap_lines(&b, &file);
        m = measure(read_plan, &file,
                    (struct tries){TRIES, INFINITY, MAX_LINES * file.n});
        if (m.status != PST_ERR_INPUT)
            failed("lines %u: %s\n", i, pst_status_name(m.status));
        if (!SANITIZED && m.grown > MAX_LINES * file.n)
            failed("lines %u: %zu bytes take %zu\n", i, file.n, m.grown);
        (void)munmap(file.at, CAPACITY);
        b.n = 0;
    }
    (void)munmap(b.at, CAPACITY);
    assert_int_equal(n_failed, 0);
}

/* Reads a plan file of the lines and one run that repeats them `count` times.
 */
static void try_run(const char *lines, uint64_t count, const char *said)
{
    const size_t most = (size_t)64 << 20;
    struct bytes b = map_bytes(), runs = map_bytes(), file = map_bytes();
    unsigned n = 0;
    struct measured m;

    put(&b, lines, strlen(lines));
    for (const char *at = lines; *at != '\0'; at++)
        n += *at == '\n';
    put_varint(&runs, n); /* lines before the run */
    put_varint(&runs, n); /* period */
    put_varint(&runs, count);
    put_varint(&runs, 0); /* deltas */
    wrap_lines(&b, &file);
    put_head(&file, 6, runs.n);
    put(&file, runs.at, runs.n);
    m = measure(read_plan, &file, (struct tries){1, INFINITY, most});
    if (getenv("PST_VERBOSE") != NULL)
        print_message("run of \"%.1s\": %.0f ms, %.1f MiB: %s\n", lines, m.ms,
                      (double)m.grown / 1048576, m.text);
    if (m.status != PST_ERR_INPUT || strstr(m.text, said) == NULL)
        failed("run of \"%.1s\": %s\n", lines, m.text);
    if (!SANITIZED && m.grown > most)
        failed("run of \"%.1s\": %zu bytes\n", lines, m.grown);
    (void)munmap(b.at, CAPACITY);
    (void)munmap(runs.at, CAPACITY);
    (void)munmap(file.at, CAPACITY);
}

/* A run takes no bytes in the file, however often it repeats its lines: without
 * end, and as often as is still accepted. */
static void repeated(void **state)
{
    static const char *const all[] = {"c{\n}\n", "a1\n", "\n",
                                      "z1\n",    "c{\n", "i\"\n"};

    (void)state;
    for (unsigned i = 0; i < PST_COUNT(all); i++) {
        const size_t size = strlen(all[i]);
        /* "c{" and "}" are two lines; each takes its offset, too. */
        const size_t each =
            i == 0 ? (size + 1) / 2 + sizeof(size_t) : size + sizeof(size_t);

        try_run(all[i], UINT32_MAX - 2, "too many");
        try_run(all[i], pst_fold_limit(size) / each / 2 * 2 - 4, "");
    }
    assert_int_equal(n_failed, 0);
}

int main(void)
{
    static const struct {
        const char *name;
        CMUnitTestFunction run;
    } parts[] = {{"nests", nests},
                 {"empties", empties},
                 {"unknowns", unknowns},
                 {"truncated", truncated}};
    static struct CMUnitTest tests[PST_COUNT(parts) * PST_COUNT(ways) + 2];
    size_t n = 0;
    int ret;

    for (size_t p = 0; p < PST_COUNT(parts); p++)
        for (size_t w = 0; w < PST_COUNT(ways); w++)
            tests[n++] = (struct CMUnitTest){.name = parts[p].name,
                                             .test_func = parts[p].run,
                                             .initial_state =
                                                 (void *)(uintptr_t)&ways[w]};
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(lines);
    tests[n++] = (struct CMUnitTest)cmocka_unit_test(repeated);
    ret = cmocka_run_group_tests_name("bombs", tests, NULL, NULL);
    print_message("%u bombs: %.2f ms at most (%s), %.2f times the size (%s)\n",
                  worst.n, worst.ms, worst.slowest, worst.times, worst.largest);
    return ret;
}
