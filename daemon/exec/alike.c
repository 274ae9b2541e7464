// SPDX-License-Identifier: Apache-2.0
/* What all ranks must have alike: the program, options, plan and data. */
#include "daemon/exec/alike.h"

#include <stdio.h>
#include <string.h>

#include "stages/base/fs.h"
#include "stages/run/facts.h"

#define SAMPLES      64
#define SAMPLE_BYTES 4096

static enum pst_status compare(struct pstd_executor *w, struct pst_facts *facts,
                               struct pst_diag *diag)
{
    const enum pst_status status = pst_facts_compare(facts, w->transport, diag);

    pst_facts_fini(facts);
    return status;
}

/* Other builds may compute other bits, and speak otherwise. */
static void add_program(struct pst_facts *facts)
{
    struct pst_file file = {0};
    char digest[33] = "not readable";

    if (pst_file_open("/proc/self/exe", &file, NULL) == PST_OK &&
        pst_file_digest(&file, digest, NULL) != PST_OK)
        (void)snprintf(digest, sizeof(digest), "not readable");
    pst_file_close(&file);
    pst_facts_add(facts, "the program", PST_VERSION ", build %.16s", digest);
}

/* A file may have another name on each host: what matters is whether there is
 * one. What is in it is compared where it is read. */
static void add_options(struct pst_facts *facts,
                        const struct pstd_config *config)
{
    size_t n;
    const struct pstd_option *rows = pstd_options(&n);

    for (size_t i = 0; i < n; i++) {
        struct pst_str text = {0};
        char name[40];
        bool any;

        if (!(rows[i].groups & PSTD_OPT_EQUAL))
            continue;
        any = pstd_config_text(config, &rows[i], &text);
        (void)snprintf(name, sizeof(name), "--%s", rows[i].name);
        pst_facts_add(facts, name, "%s",
                      !any                        ? "not given"
                      : rows[i].type == PSTD_PATH ? "given"
                                                  : pst_str_text(&text));
        pst_str_fini(&text);
    }
}

enum pst_status pstd_compare_start(struct pstd_executor *w,
                                   struct pst_diag *diag)
{
    struct pst_facts facts = {0};
    enum pst_status status;

    add_program(&facts); /* alone: what follows depends on it */
    status = compare(w, &facts, diag);
    if (status != PST_OK)
        return status;
    facts = (struct pst_facts){0};
    add_options(&facts, pstd_mailbox_config(w->mailbox));
    return compare(w, &facts, diag);
}

enum pst_status pstd_compare_plan(struct pstd_executor *w,
                                  struct pst_diag *diag)
{
    struct pst_facts facts = {0};

    pst_facts_add(&facts, "the plan's digest", "%s", w->plan->digest);
    return compare(w, &facts, diag);
}

/* FNV-1a of pieces all over the file: a whole one may be larger than what a
 * start should take. */
static enum pst_status sample(const struct pst_file *file, uint64_t *ret)
{
    const uint64_t room =
        file->size > SAMPLE_BYTES ? file->size - SAMPLE_BYTES : 0;
    const size_t bytes = (size_t)PST_MIN(file->size, (uint64_t)SAMPLE_BYTES);
    unsigned char piece[SAMPLE_BYTES];
    uint64_t hash = 0xcbf29ce484222325u;

    for (unsigned k = 0; k < SAMPLES; k++) {
        const enum pst_status status = pst_file_read_at(
            file, room / (SAMPLES - 1) * k, piece, bytes, NULL);

        if (status != PST_OK)
            return status;
        for (size_t i = 0; i < bytes; i++)
            hash = (hash ^ piece[i]) * 0x100000001b3u;
    }
    *ret = hash;
    return PST_OK;
}

enum pst_status pstd_compare_data(struct pstd_executor *w, const char *path,
                                  struct pst_diag *diag)
{
    struct pst_facts facts = {0};
    struct pst_file file = {0};
    uint64_t digest;

    if (pst_file_open(path, &file, NULL) == PST_OK &&
        sample(&file, &digest) == PST_OK)
        pst_facts_add(&facts, "the --data file", "%llu bytes, digest %016llx",
                      (unsigned long long)file.size,
                      (unsigned long long)digest);
    else
        pst_facts_add(&facts, "the --data file", "not readable");
    pst_file_close(&file);
    return compare(w, &facts, diag);
}
