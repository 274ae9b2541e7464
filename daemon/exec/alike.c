// SPDX-License-Identifier: Apache-2.0
/* Checks that all ranks have the same program, options, plan and data. */
#include "daemon/exec/alike.h"

#include <stdio.h>
#include <string.h>

#include "daemon/common/setting.h"
#include "stages/base/host/fs.h"
#include "stages/base/str.h"
#include "stages/files/data/list.h"
#include "stages/files/given.h"
#include "stages/ops/plugin/plugin.h"
#include "stages/ops/rates/rates.h"
#include "stages/run/facts.h"

#define WHOLE_BYTES  ((uint64_t)4 << 20)
#define SAMPLES      ((uint64_t)64)
#define SAMPLE_BYTES ((uint64_t)4096)

static enum pst_status compare_facts(struct pstd_executor *w,
                                     struct pst_facts *facts,
                                     struct pst_diag *diag)
{
    const enum pst_status status = pst_facts_compare(facts, w->transport, diag);

    pst_facts_fini(facts);
    return status;
}

/* Adds version and build of this program: other builds may differ in the last
 * bits of results, and in the protocol. */
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

/* Adds the plugins, whose files each rank reads on its own host. */
static void add_plugins(struct pst_facts *facts)
{
    struct pst_str text = {0};

    for (const struct pst_plugin *p = pst_plugins(); p != NULL; p = p->next)
        pst_str_addf(&text, "%s%s %s, digest %.16s", text.len > 0 ? "; " : "",
                     p->name, p->version, p->digest);
    pst_facts_add(facts, "the plugins", "%s",
                  text.len > 0 ? pst_str_text(&text) : "none");
    pst_str_fini(&text);
}

static void emit_rates(struct pstd_executor *w, const char *path,
                       double seconds, const struct pst_diag *why)
{
    const struct pst_rates *rates = pst_rates_here();
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_MEASURED);
    pstd_note_real(&note, "f32_gflops", rates->f32 * 1e-9);
    pstd_note_real(&note, "bf16_gflops", rates->bf16 * 1e-9);
    pstd_note_real(&note, "seconds", seconds);
    pstd_note_text(&note, "path", path);
    pstd_note_text(&note, "text", path[0] == '\0' ? why->text : "");
    pstd_mailbox_post(w->mailbox, &note, true);
}

/* Measures the rates of rank 0's machine if that was never done. */
static enum pst_status ensure_rates(struct pstd_executor *w,
                                    struct pst_diag *diag)
{
    const double since = pst_now();
    struct pst_str path = {0};
    bool is_new;
    enum pst_status status;

    pst_diag_init(diag);
    status = pst_rates_ensure(&is_new, &path, diag);
    if (status == PST_OK && is_new)
        emit_rates(w, pst_str_text(&path), pst_now() - since, diag);
    pst_str_fini(&path);
    return status;
}

/* Shares rank 0's rates with all ranks, so that all make the same choices. */
static enum pst_status share_rates(struct pstd_executor *w,
                                   struct pst_diag *diag)
{
    struct pst_rates rates = *pst_rates_here();
    const enum pst_status status = pst_engine_broadcast(
        w->transport, &rates, sizeof(rates), NULL, NULL, diag);

    if (status == PST_OK)
        pst_rates_adopt(&rates);
    return status;
}

enum pst_status pstd_share_rates(struct pstd_executor *w, const char *dtype,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    if (strcmp(dtype, "bf16") != 0 &&
        (w->plan == NULL || !pst_plan_casts_bf16(w->plan)))
        return PST_OK;
    if (w->rank == 0)
        status = ensure_rates(w, diag);
    status = pstd_agree_status(w, status, diag);
    return status == PST_OK ? share_rates(w, diag) : status;
}

enum pst_status pstd_compare_program(struct pstd_executor *w,
                                     struct pst_diag *diag)
{
    struct pst_facts facts = {0};
    enum pst_status status;

    /* The program is compared first: another build may describe the other facts
     * differently. */
    add_program(&facts);
    status = compare_facts(w, &facts, diag);
    if (status == PST_OK)
        status = share_rates(w, diag);
    if (status != PST_OK)
        return status;
    facts = (struct pst_facts){0};
    pstd_config_facts(pstd_mailbox_config(w->mailbox), PSTD_OPT_EQUAL, &facts);
    add_plugins(&facts);
    return compare_facts(w, &facts, diag);
}

enum pst_status pstd_compare_plan(struct pstd_executor *w,
                                  struct pst_diag *diag)
{
    struct pst_facts facts = {0};

    pst_facts_add(&facts, "the plan's digest", "%s", w->plan->digest);
    return compare_facts(w, &facts, diag);
}

static enum pst_status hash_piece(const struct pst_file *file, uint64_t at,
                                  size_t bytes, uint64_t *hash)
{
    unsigned char piece[SAMPLE_BYTES];
    const enum pst_status status =
        pst_file_read_at(file, at, piece, bytes, NULL);

    if (status == PST_OK)
        *hash = pst_hash(piece, bytes, *hash);
    return status;
}

/* Digests the whole file if it is small. Otherwise digests pieces spread over
 * it, since reading everything would delay the start; the last piece ends at
 * the end of the file. */
enum pst_status pstd_hash_data(const struct pst_file *file, uint64_t *ret)
{
    const bool whole = file->size <= WHOLE_BYTES;
    const uint64_t last = file->size - PST_MIN(file->size, SAMPLE_BYTES);
    uint64_t hash = 0;
    enum pst_status status = PST_OK;

    for (uint64_t at = 0; whole && at < file->size && status == PST_OK;
         at += SAMPLE_BYTES)
        status = hash_piece(
            file, at, (size_t)PST_MIN(file->size - at, SAMPLE_BYTES), &hash);
    for (uint64_t k = 0; !whole && k < SAMPLES && status == PST_OK; k++)
        status = hash_piece(file,
                            last / (SAMPLES - 1) * k +
                                last % (SAMPLES - 1) * k / (SAMPLES - 1),
                            SAMPLE_BYTES, &hash);
    *ret = hash;
    return status;
}

/* Adds an open file: its size to *bytes, its digest to *digest. only: it is the
 * only file of the data, whose digest is the result. */
static enum pst_status add_open_file(const struct pst_file *file, bool only,
                                     uint64_t *bytes, uint64_t *digest)
{
    uint64_t one[2] = {0, file->size};
    const enum pst_status status = pstd_hash_data(file, &one[0]);

    *bytes += file->size;
    if (status == PST_OK)
        *digest = only ? one[0] : pst_hash(one, sizeof(one), *digest);
    return status;
}

static enum pst_status add_file(const char *path, bool only, uint64_t *bytes,
                                uint64_t *digest)
{
    struct pst_file file = {0};
    enum pst_status status = pst_file_open(path, &file, NULL);

    if (status == PST_OK)
        status = add_open_file(&file, only, bytes, digest);
    pst_file_close(&file);
    return status;
}

/* Adds the shards of an index of tensors. */
static enum pst_status add_shards(const char *path, uint64_t *bytes,
                                  uint64_t *digest)
{
    struct pst_given *given;
    enum pst_status status = pst_given_open(path, &given, NULL);

    if (status != PST_OK)
        return status;
    for (size_t i = 0; i < pst_given_files(given) && status == PST_OK; i++)
        status = add_open_file(pst_given_file(given, i), false, bytes, digest);
    pst_given_close(given);
    return status;
}

void pstd_describe_data(const char *text, struct pst_str *ret)
{
    uint64_t bytes = 0, digest = 0;
    struct pst_data_list list;
    enum pst_status status = pst_data_list_read(text, &list, NULL);

    if (status != PST_OK) {
        pst_str_add(ret, "not readable");
        return;
    }
    for (size_t i = 0; i < list.files.n && status == PST_OK; i++) {
        const char *path = list.files.at[i];

        status = add_file(path, list.files.n == 1, &bytes, &digest);
        if (status == PST_OK && pst_has_suffix(path, PST_DATA_SHARD_INDEX))
            status = add_shards(path, &bytes, &digest);
    }
    if (status != PST_OK)
        pst_str_add(ret, "not readable");
    else if (list.files.n > 1)
        pst_str_addf(ret, "%zu files, ", list.files.n);
    if (status == PST_OK)
        pst_str_addf(ret, "%llu bytes, digest %016llx",
                     (unsigned long long)bytes, (unsigned long long)digest);
    for (unsigned k = 0; k < list.n && list.weighted && status == PST_OK; k++)
        pst_str_addf(ret, "%s%.9g", k > 0 ? ":" : ", weights ",
                     list.sources[k].weight);
    pst_data_list_fini(&list);
}

enum pst_status pstd_compare_data(struct pstd_executor *w, const char *path,
                                  struct pst_diag *diag)
{
    struct pst_facts facts = {0};
    struct pst_str text = {0};

    pstd_describe_data(path, &text);
    pst_facts_add(&facts, "the --data file", "%s", pst_str_text(&text));
    pst_str_fini(&text);
    return compare_facts(w, &facts, diag);
}

void pstd_emit_setting(struct pstd_executor *w, uint64_t step,
                       const struct pstd_setting_change *change)
{
    struct pstd_note note;

    pstd_note_init(&note, PSTD_EVENT_RESUME_CHANGED);
    pstd_note_int(&note, "step", (int64_t)step);
    pstd_note_text(&note, "name", change->name);
    pstd_note_text(&note, "before", change->before);
    pstd_note_text(&note, "now", change->now);
    pstd_note_text(&note, "text", change->text);
    pstd_mailbox_post(w->mailbox, &note, true);
}
