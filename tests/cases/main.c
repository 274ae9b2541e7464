// SPDX-License-Identifier: Apache-2.0
/*
 * Numeric cases of operators (../shared/ops/cases.py) through import,
 * inference, gradients and kernels, all in this process:
 *
 *     cases DIR [-f TEXT] [-s I/N] [-t TIER] [-k ref|best] [-x FILE] [-v] [-q]
 *
 * -f TEXT  cases whose operator contains TEXT (several: any of them)
 * -s I/N   every N-th case, beginning with the I-th
 * -k       reference kernels or the best ones of the processor (PST_ISA);
 *          without it both, one after the other
 * -x FILE  names of cases that are known to fail, one a line; only others make
 *          the exit status 1
 * -v       a line for every case that does not pass
 * -q       no table, the last line only
 */
#include "tests/cases/case.h"

#include "stages/base/map.h"
#include "stages/base/str.h"

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
    struct pst_map known;
};

struct row {
    const char *op;
    unsigned count[N_VERDICTS];
    const char *first; /* what went wrong first; owned */
};

static struct row rows[4096];
static size_t n_rows;
static unsigned total[N_VERDICTS], unexpected;

static int usage(void)
{
    fputs("usage: cases DIR [-f TEXT]... [-s I/N] [-k ref|best] [-x FILE] "
          "[-v] [-q]\n",
          stderr);
    return 2;
}

static bool read_known(struct options *o, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[512];

    if (file == NULL)
        return false;
    while (fgets(line, sizeof(line), file) != NULL) {
        line[strcspn(line, " \n")] = '\0';
        if (line[0] != '\0' && line[0] != '#' &&
            !pst_map_put(&o->known, line, o))
            break;
    }
    fclose(file);
    return true;
}

static bool parse(int argc, char **argv, struct options *o)
{
    int c;

    o->shards = 1;
    o->reference = o->best = true;
    while ((c = getopt(argc, argv, "f:s:k:x:vq")) != -1) {
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
            if (!read_known(o, optarg))
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

static bool is_asked_for(const struct options *o, const char *op)
{
    for (size_t i = 0; i < o->n_filters; i++)
        if (strstr(op, o->filters[i]) != NULL)
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

static void run_one(const struct options *o, const json_t *spec, bool reference)
{
    const char *name = json_string_value(json_object_get(spec, "case"));
    const char *op = json_string_value(json_object_get(spec, "op"));
    struct row *row = row_of(op);
    char text[PST_DIAG_TEXT] = "";
    const enum verdict v =
        case_run(spec, o->dir, reference, text, sizeof(text));

    row->count[v]++;
    total[v]++;
    if (v == VERDICT_PASS)
        return;
    if (row->first == NULL)
        row->first = strdup(text);
    if (v == VERDICT_FAIL && !pst_map_has(&o->known, name))
        unexpected++;
    if (o->verbose)
        printf("%s %s %s (%s): %s\n", v == VERDICT_FAIL ? "FAIL" : "MISSING",
               name, reference ? "ref" : "best",
               json_string_value(json_object_get(spec, "call")), text);
}

static void print_table(void)
{
    printf("%-52s %6s %6s %7s  %s\n", "operator", "passed", "failed", "missing",
           "first failure");
    for (size_t i = 0; i < n_rows; i++)
        printf("%-52s %6u %6u %7u  %.200s\n", rows[i].op,
               rows[i].count[VERDICT_PASS], rows[i].count[VERDICT_FAIL],
               rows[i].count[VERDICT_MISSING],
               rows[i].first != NULL ? rows[i].first : "");
}

static json_t *load(const char *dir)
{
    char path[4096];
    json_error_t error;
    json_t *all;

    snprintf(path, sizeof(path), "%s/cases.json", dir);
    all = json_load_file(path, 0, &error);
    if (!json_is_array(all)) {
        fprintf(stderr, "%s: %s\n", path,
                all == NULL ? error.text : "this is no array");
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

    pst_map_init(&o.known, PST_TAG_TEST);
    if (!parse(argc, argv, &o))
        return usage();
    pst_diag_init(&diag);
    if (pst_registry_init(&diag) != PST_OK) {
        fprintf(stderr, "%s\n", diag.text);
        return 2;
    }
    all = load(o.dir);
    if (all == NULL)
        return 2;
    json_array_foreach(all, i, spec)
    {
        if (!is_asked_for(&o, json_string_value(json_object_get(spec, "op"))))
            continue;
        if (count++ % o.shards != o.shard)
            continue;
        if (o.reference)
            run_one(&o, spec, true);
        if (o.best)
            run_one(&o, spec, false);
    }
    if (!o.quiet)
        print_table();
    printf("%u passed, %u failed, %u missing (%u not known to fail)\n",
           total[VERDICT_PASS], total[VERDICT_FAIL], total[VERDICT_MISSING],
           unexpected);
    for (i = 0; i < n_rows; i++)
        free((void *)rows[i].first);
    json_decref(all);
    pst_map_fini(&o.known);
    return unexpected > 0;
}
