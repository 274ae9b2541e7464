// SPDX-License-Identifier: Apache-2.0
/*
 * Runs numeric cases of operators (README.md) through import, inference,
 * gradients and kernels, all in this process:
 *
 *     cases DIR [-f TEXT] [-s I/N] [-k ref|best] [-x FILE] [-o FILE] [-v] [-q]
 *
 *   -f TEXT  cases whose operator or call contains TEXT; may be repeated
 *   -s I/N   every N-th case, beginning with the I-th
 *   -k       reference kernels or the best ones of the processor (PST_ISA);
 *            default: both, one after the other
 *   -x FILE  excuses, one line per wrong tensor or refused program, with its
 *            reason (excuse.h); if all cases are run, an unneeded line fails
 *   -o FILE  writes a line per case: its name and passed, failed or refused
 *   -v       prints a line for every case that does not pass
 *   -q       prints no table, only the last line
 */
#include "tests/cases/case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILTERS 64

struct options {
    const char *dir;
    const char *filters[MAX_FILTERS];
    size_t n_filters;
    unsigned shard, shards;
    bool reference, best, verbose, quiet;
    struct excuses *excuses;
    FILE *verdicts;
};

struct row {
    const char *op;
    unsigned count[N_VERDICTS];
    const char *first; /* first failure; owned */
};

static struct row rows[4096];
static size_t n_rows;
static unsigned total[N_VERDICTS];

static int usage(void)
{
    fputs("usage: cases DIR [-f TEXT]... [-s I/N] [-k ref|best] [-x FILE] "
          "[-o FILE] [-v] [-q]\n",
          stderr);
    return 2;
}

static bool parse(int argc, char **argv, struct options *o)
{
    int c;

    o->shards = 1;
    o->reference = o->best = true;
    while ((c = getopt(argc, argv, "f:s:k:x:o:vq")) != -1) {
        if (c == 'f' && o->n_filters < MAX_FILTERS)
            o->filters[o->n_filters++] = optarg;
        else if (c == 's') {
            char *end;

            o->shard = (unsigned)strtoul(optarg, &end, 10);
            o->shards = *end == '/' ? (unsigned)strtoul(end + 1, NULL, 10) : 0;
            if (o->shards == 0 || o->shard >= o->shards)
                return false;
        } else if (c == 'k') {
            o->reference = strcmp(optarg, "ref") == 0;
            o->best = !o->reference;
        } else if (c == 'x') {
            o->excuses = excuses_read(optarg);
            if (o->excuses == NULL)
                return false;
        } else if (c == 'o') {
            o->verdicts = fopen(optarg, "w");
            if (o->verdicts == NULL)
                return false;
        } else if (c == 'v')
            o->verbose = true;
        else if (c == 'q')
            o->quiet = true;
        else
            return false;
    }
    if (optind + 1 != argc)
        return false;
    o->dir = argv[optind];
    return true;
}

static bool is_asked_for(const struct options *o, json_t *spec)
{
    const char *op = json_string_value(json_object_get(spec, "op"));
    const char *call = json_string_value(json_object_get(spec, "call"));

    for (size_t i = 0; i < o->n_filters; i++)
        if (strstr(op, o->filters[i]) != NULL ||
            (call != NULL && strstr(call, o->filters[i]) != NULL))
            return true;
    return o->n_filters == 0;
}

static struct row *row_of(const char *op)
{
    if (n_rows == 0 || strcmp(rows[n_rows - 1].op, op) != 0) {
        if (n_rows == PST_COUNT(rows))
            exit(2);
        rows[n_rows++].op = op;
    }
    return &rows[n_rows - 1];
}

static const char *const words[N_VERDICTS] = {"passed", "failed", "refused"};

static enum verdict run_kernels(const struct options *o, const json_t *spec,
                                bool reference)
{
    struct row *row = row_of(json_string_value(json_object_get(spec, "op")));
    char text[PST_DIAG_TEXT] = "";
    const enum verdict v =
        case_run(spec, o->dir, reference, o->excuses, text, sizeof(text));

    if (v == VERDICT_PASS)
        return v;
    if (row->first == NULL)
        row->first = strdup(text);
    if (o->verbose)
        printf("%s %s %s (%s): %s\n", words[v],
               json_string_value(json_object_get(spec, "case")),
               reference ? "ref" : "best",
               json_string_value(json_object_get(spec, "call")), text);
    return v;
}

/* Counts a program once, even if it runs with both kinds of kernels. */
static void run_one(const struct options *o, const json_t *spec)
{
    struct row *row = row_of(json_string_value(json_object_get(spec, "op")));
    enum verdict v = VERDICT_PASS, w;

    for (int k = 0; k < 2; k++) {
        if (!(k == 0 ? o->reference : o->best))
            continue;
        w = run_kernels(o, spec, k == 0);
        v = v == VERDICT_FAIL || w == VERDICT_PASS ? v : w;
    }
    row->count[v]++;
    total[v]++;
    if (o->verdicts != NULL)
        (void)fprintf(o->verdicts, "%s %s\n",
                      json_string_value(json_object_get(spec, "case")),
                      words[v]);
}

static void print_table(void)
{
    printf("%-52s %6s %6s %7s  %s\n", "operator", "passed", "failed", "refused",
           "first failure");
    for (size_t i = 0; i < n_rows; i++)
        printf("%-52s %6u %6u %7u  %.200s\n", rows[i].op,
               rows[i].count[VERDICT_PASS], rows[i].count[VERDICT_FAIL],
               rows[i].count[VERDICT_REFUSED],
               rows[i].first != NULL ? rows[i].first : "");
}

static json_t *load_cases(const char *dir)
{
    char path[4096];
    json_error_t error;
    json_t *all;

    snprintf(path, sizeof(path), "%s/cases.json", dir);
    all = json_load_file(path, 0, &error);
    if (!json_is_array(all)) {
        fprintf(stderr, "%s: %s\n", path,
                all == NULL ? error.text : "this is not an array");
        json_decref(all);
        return NULL;
    }
    return all;
}

int main(int argc, char **argv)
{
    struct options o = {0};
    struct pst_diag diag;
    unsigned count = 0;
    json_t *all, *spec;
    size_t i;

    if (!parse(argc, argv, &o))
        return usage();
    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return 2;
    }
    all = load_cases(o.dir);
    if (all == NULL)
        return 2;
    json_array_foreach(all, i, spec)
    {
        if (!is_asked_for(&o, spec))
            continue;
        if (count++ % o.shards != o.shard)
            continue;
        run_one(&o, spec);
    }
    if (o.n_filters == 0 && o.shards == 1)
        total[VERDICT_FAIL] += excuses_print_stale(o.excuses);
    if (!o.quiet)
        print_table();
    printf("%u passed, %u failed, %u refused as expected\n",
           total[VERDICT_PASS], total[VERDICT_FAIL], total[VERDICT_REFUSED]);
    for (i = 0; i < n_rows; i++)
        free((void *)rows[i].first);
    json_decref(all);
    excuses_free(o.excuses);
    if (o.verdicts != NULL && fclose(o.verdicts) != 0)
        return 2;
    return total[VERDICT_FAIL] > 0;
}
