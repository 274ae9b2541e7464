// SPDX-License-Identifier: Apache-2.0
/* Fuzz targets for schedules, costs, options, expressions, graphs, log lines,
 * frames and flight records. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/common/config.h"
#include "daemon/common/control/frame.h"
#include "daemon/ctl/flight/blame.h"
#include "daemon/ctl/report/line.h"
#include "daemon/loop/serve/serving.h"
#include "stages/base/alloc.h"
#include "stages/graph/graph.h"
#include "stages/graph/sizes/symbol.h"
#include "stages/ops/core/op.h"
#include "stages/sched/costs.h"
#include "stages/sched/sched.h"
#include "tests/fuzz/targets/target.h"
#include "tests/sched/lines.h"

/* --- frames -------------------------------------------------------------- */

/* Checks that a packed frame can be unpacked again. */
static void use_frame(const pstd_frame *frame)
{
    unsigned char *packed;
    struct pst_diag diag;
    pstd_frame *again;
    size_t size;

    if (pstd_frame_pack(frame, PSTD_REPLY_MAX, &packed, &size, &diag) != PST_OK)
        return;
    fuzz_check(pstd_frame_length(packed) == size - 4,
               "a frame says another length than it has");
    fuzz_check(pstd_frame_unpack(packed + 4, size - 4, PSTD_REPLY_FIELD, &again,
                                 &diag) == PST_OK,
               diag.text);
    pstd_frame_free(again);
    pst_free(packed);
}

/* Feeds the bytes in pieces, whose sizes are taken from the bytes
 * themselves. */
bool fuzz_frame(const uint8_t *data, size_t size)
{
    enum pst_status status = PST_OK;
    struct pstd_frames frames;
    struct pst_diag diag;
    bool ret = false;

    pst_diag_init(&diag);
    pstd_frames_init(&frames, PSTD_REQUEST_MAX, PSTD_REQUEST_FIELD);
    for (size_t at = 0; at < size && status != PST_ERR_INPUT;) {
        const size_t piece = PST_MIN(size - at, 1 + (size_t)data[at] % 64);
        pstd_frame *frame;

        status = pstd_frames_push(&frames, data + at, piece, &diag);
        at += piece;
        while (status == PST_OK) {
            status = pstd_frames_pop(&frames, &frame, &diag);
            if (status == PST_OK) {
                use_frame(frame);
                ret = true;
                pstd_frame_free(frame);
            }
        }
        if (status != PST_AGAIN)
            (void)fuzz_refused(status, &diag);
    }
    pstd_frames_fini(&frames);
    return ret;
}

/* --- requests --------------------------------------------------------------
 */

/* Returns the signature of a model with the inputs f32[n, 3] and bool[2, 2 n],
 * which are divided by samples, and an i64[4] that is not divided and is
 * optional. */
static const struct pstd_signature *served(void)
{
    static struct pstd_port inputs[] = {
        {.name = (char *)"x", .dim = 0, .each = 1, .outer = 1, .inner = 12},
        {.name = (char *)"mask", .dim = 1, .each = 2, .outer = 2, .inner = 2},
        {.name = (char *)"whole",
         .dim = -1,
         .each = 1,
         .optional = true,
         .outer = 1,
         .inner = 32},
    };
    static const struct pstd_signature signature = {.inputs = inputs,
                                                    .n_inputs =
                                                        PST_COUNT(inputs),
                                                    .samples = 4,
                                                    .microbatches = 2,
                                                    .most = 8};

    inputs[0].meta = pst_meta_make(PST_F32, 2, (const int64_t[]){4, 3});
    inputs[1].meta = pst_meta_make(PST_BOOL, 2, (const int64_t[]){2, 8});
    inputs[2].meta = pst_meta_make(PST_I64, 1, (const int64_t[]){4});
    return &signature;
}

/* Checks that an accepted request contains all bytes that a step reads. */
static void use_request(const struct pstd_signature *s,
                        const struct pstd_ask *ask)
{
    size_t bytes = 0;
    volatile unsigned char sum = 0;

    fuzz_check(ask->samples >= 1 && ask->samples <= s->most, "samples");
    for (size_t i = 0; i < s->n_inputs; i++) {
        const size_t n = pstd_port_bytes(&s->inputs[i], ask->samples);

        fuzz_check(ask->inputs[i] != NULL || s->inputs[i].optional, "missing");
        for (size_t k = 0; ask->inputs[i] != NULL && k < n; k++)
            sum = (unsigned char)(sum + ask->inputs[i][k]);
        if (ask->inputs[i] != NULL)
            fuzz_check_values(s->inputs[i].meta.dtype, ask->inputs[i], n);
        bytes += ask->inputs[i] != NULL ? n : 0;
    }
    fuzz_check(bytes == ask->bytes, "bytes");
}

bool fuzz_request(const uint8_t *data, size_t size)
{
    const struct pstd_signature *s = served();
    struct pstd_ask *ask = NULL;
    pstd_frame *frame = NULL;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstd_frame_unpack(data, size, PSTD_REQUEST_FIELD, &frame, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    if (frame->body_case != PST__CONTROL__FRAME__BODY_REQUEST ||
        frame->request->body_case != PST__CONTROL__REQUEST__BODY_INFER) {
        pstd_frame_free(frame);
        return false;
    }
    status = pstd_serving_read(s, frame->request->infer, &ask, &diag);
    pstd_frame_free(frame);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    use_request(s, ask);
    pstd_ask_free(ask);
    return true;
}

/* --- schedules and costs ------------------------------------------------- */

bool fuzz_csv(const uint8_t *data, size_t size)
{
    struct pst_schedule_options options = {.microbatches = 1, .train = true};
    struct pst_schedule *sched = NULL;
    struct pst_str out = {0};
    struct pst_diag diag;
    enum pst_status status;
    char name[80];

    pst_diag_init(&diag);
    status =
        pst_schedule_parse((const char *)data, size, "fuzz.csv", &sched, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    print_lines(sched, &out);
    pst_str_fini(&out);
    options.ranks = sched->n_ranks;
    options.stages = sched->n_stages;
    options.microbatches = sched->n_microbatches;
    pst_schedule_free(sched);
    if (options.stages > 4096 || options.microbatches > 65536)
        return true;
    (void)snprintf(name, sizeof(name), "csv:%s", fuzz_file(data, size));
    options.name = name;
    status = pst_schedule_make(&options, &sched, &diag);
    if (status == PST_OK)
        status = pst_schedule_lower(sched, NULL, 0, NULL, 0, 1, &diag);
    else
        sched = NULL;
    if (status != PST_OK)
        (void)fuzz_refused(status, &diag);
    pst_schedule_free(sched);
    return status == PST_OK;
}

bool fuzz_costs(const uint8_t *data, size_t size)
{
    struct pst_costs costs;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_costs_read(fuzz_file(data, size), &costs, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    for (unsigned s = 0; s < costs.n_stages; s++)
        fuzz_check(costs.stages[s].seconds.forward >= 0 &&
                       costs.stages[s].seconds.forward < 1e300,
                   "a stage takes no time that is a number");
    pst_costs_fini(&costs);
    return true;
}

/* --- options ------------------------------------------------------------- */

/* Checks that two configs have the same options. */
static void check_same(const struct pstd_config *a, const struct pstd_config *b)
{
    struct pst_str first = {0}, second = {0};

    pstd_config_dump(a, ~(uint64_t)0, &first);
    pstd_config_dump(b, ~(uint64_t)0, &second);
    fuzz_check(strcmp(pst_str_text(&first), pst_str_text(&second)) == 0,
               "an option reads back to another");
    pst_str_fini(&first);
    pst_str_fini(&second);
}

/* Checks that options that are set can be printed and read back into an equal
 * copy, as a request carries them: names and values, each with a NUL. */
static void use_options(const struct pstd_config *config)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);
    struct pst_str all = {0}, line = {0};
    struct pstd_config again;
    struct pst_diag diag;
    const char *name, *value;
    char *at;

    fuzz_check(pstd_config_copy(&again, config, &diag) == PST_OK, "no copy");
    pstd_config_given_text(config, ~(uint64_t)0, &line);
    at = line.text;
    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};

        if (config->given[i] && pstd_config_text(config, &rows[i], &text)) {
            fuzz_check(at != NULL && pstd_config_next_given(&at, &name, &value),
                       "an option is not in the line of all");
            fuzz_check(strcmp(name, rows[i].name) == 0 &&
                           strcmp(value, pst_str_text(&text)) == 0,
                       "an option is another one in the line of all");
            pst_str_addn(&all, name, strlen(name) + 1);
            pst_str_addn(&all, value, strlen(value) + 1);
        }
        pst_str_fini(&text);
    }
    fuzz_check(pstd_config_set_all(&again, ~(uint64_t)0, pst_str_text(&all),
                                   all.len, &diag) == PST_OK,
               diag.text);
    check_same(config, &again);
    pst_str_fini(&all);
    pst_str_fini(&line);
    pstd_config_fini(&again);
}

/* Sets --NAME=VALUE as `penstock set` does in a run. */
static void set_running(const char *word)
{
    const char *equals = strchr(word, '=');
    struct pstd_config config;
    char name[64];
    struct pst_diag diag;
    enum pst_status status;

    if (strncmp(word, "--", 2) != 0 || equals == NULL ||
        equals - word - 2 >= (ptrdiff_t)sizeof(name))
        return;
    pst_diag_init(&diag);
    (void)snprintf(name, sizeof(name), "%.*s", (int)(equals - word - 2),
                   word + 2);
    status = pstd_config_init(&config, &diag);
    fuzz_check(status == PST_OK, diag.text);
    status = pstd_config_set_running(&config, name, equals + 1, &diag);
    if (status != PST_OK)
        (void)fuzz_refused(status, &diag);
    pstd_config_fini(&config);
}

/* Reads each line as a word of a command line. */
bool fuzz_options(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size), *words[64] = {NULL}, *rest = text;
    struct pstd_config config;
    struct pst_diag diag;
    enum pst_status status;
    int n = 1; /* argv[0] is the program's name */

    pst_diag_init(&diag);
    while (n < (int)PST_COUNT(words) && rest != NULL)
        words[n++] = strsep(&rest, "\n");
    set_running(words[1]);
    status = pstd_config_init(&config, &diag);
    fuzz_check(status == PST_OK, diag.text);
    status = pstd_config_parse(&config, ~(uint64_t)0, n, words, &diag);
    if (status == PST_OK)
        use_options(&config);
    else
        (void)fuzz_refused(status, &diag);
    pstd_config_fini(&config);
    free(text);
    return status == PST_OK;
}

/* --- expressions and graphs ---------------------------------------------- */

static bool use_expr(struct pst_symbols *symbols, const char *text)
{
    struct pst_number number;
    struct pst_diag diag;
    enum pst_status status;
    int64_t i;

    status = pst_symbols_declare(symbols, text, &diag);
    if (status != PST_OK)
        (void)fuzz_refused(status, &diag);
    if (status == PST_OK && symbols->at.n == 1) {
        status = pst_symbols_solve(symbols, text, 12, &diag);
        if (status != PST_OK)
            (void)fuzz_refused(status, &diag);
    }
    for (size_t k = 0; k < symbols->at.n; k++)
        if (!symbols->at.at[k].known) {
            symbols->at.at[k].known = true;
            symbols->at.at[k].value = (int64_t)k + 2;
        }
    status = pst_symbols_eval(symbols, text, &number, &diag);
    if (status != PST_OK)
        (void)fuzz_refused(status, &diag);
    status = pst_symbols_int(symbols, text, &i, &diag);
    return status == PST_OK || fuzz_refused(status, &diag);
}

bool fuzz_expr(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    const char *first = NULL, *second = NULL;
    const struct pst_expr *expr = NULL;
    struct pst_symbols symbols;
    struct pst_arena arena;
    struct pst_diag diag;
    enum pst_status status;
    bool ret = false;

    pst_diag_init(&diag);
    pst_symbols_init(&symbols);
    pst_arena_init(&arena, PST_TAG_ARCHIVE);
    status = pst_expr_parse(&arena, text, &expr, &diag);
    if (status == PST_OK)
        status = pst_expr_print(&arena, expr, &first, &diag);
    if (status == PST_OK) {
        status = pst_expr_parse(&arena, first, &expr, &diag);
        if (status == PST_OK)
            status = pst_expr_print(&arena, expr, &second, &diag);
        fuzz_check(status == PST_OK, diag.text);
        fuzz_check(strcmp(first, second) == 0,
                   "an expression reads back to another");
        ret = use_expr(&symbols, text);
    } else {
        (void)fuzz_refused(status, &diag);
    }
    pst_arena_fini(&arena);
    pst_symbols_fini(&symbols);
    free(text);
    return ret;
}

bool fuzz_graph(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct pst_graph *graph, *again = NULL;
    struct pst_str first = {0}, second = {0};
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_registry_init(&diag);
    if (status == PST_OK)
        status = pst_graph_parse(text, &graph, &diag);
    free(text);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    pst_graph_print(graph, &first);
    status = pst_graph_parse(pst_str_text(&first), &again, &diag);
    fuzz_check(status == PST_OK, diag.text);
    pst_graph_print(again, &second);
    fuzz_check(strcmp(pst_str_text(&first), pst_str_text(&second)) == 0,
               "a graph reads back to another");
    pst_str_fini(&first);
    pst_str_fini(&second);
    pst_graph_free(again);
    pst_graph_free(graph);
    return true;
}

/* --- logs and flight records --------------------------------------------- */

bool fuzz_line(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct pstctl_line line;
    const bool ret = pstctl_line_parse(text, &line);

    if (ret) {
        fuzz_check(line.n <= PSTCTL_LINE_FIELDS && line.rank >= -1,
                   "a line has what none can have");
        for (size_t i = 0; i < line.n; i++) {
            (void)pstctl_line_text(&line, line.keys[i]);
            (void)pstctl_line_number(&line, line.keys[i]);
        }
    }
    free(text);
    return ret;
}

#define FLIGHT_HEAD 56 /* bytes before the records (watch/flight.c) */

/* Reads flight records of several ranks. The bytes are the beginning of each
 * file; the rest of it is zeros. Each rank has one record less than the rank
 * before it. */
bool fuzz_flight(const uint8_t *data, size_t size)
{
    const size_t all_bytes =
        FLIGHT_HEAD + PST_FLIGHT_RECORDS * sizeof(struct pst_flight_record);
    struct pst_flight_log log = {0};
    struct pst_str out = {0};
    struct pst_diag diag;
    enum pst_status status;
    const char *path = fuzz_file(data, PST_MIN(size, all_bytes));

    fuzz_check(truncate(path, (off_t)all_bytes) == 0,
               "cannot extend a file in memory");
    pst_diag_init(&diag);
    status = pst_flight_read(path, &log, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    if (log.ranks <= 64) {
        struct pst_flight_log all[64] = {{0}};
        struct pstctl_blamed verdict;

        for (unsigned i = 0; i < log.ranks; i++) {
            all[i] = log;
            all[i].n -= PST_MIN(i, log.n);
        }
        verdict = pstctl_find_blamed(all, log.ranks);
        pstctl_print_blamed(&verdict, all, &out);
        for (size_t i = 0; i < log.n; i++)
            pstctl_print_record(&log.at[i], &out);
    }
    pst_str_fini(&out);
    pst_free(log.at);
    return true;
}
