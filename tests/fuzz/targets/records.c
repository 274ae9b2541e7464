// SPDX-License-Identifier: Apache-2.0
/* Fuzz targets for the JSON of a .pt2, for plans and for manifests. */
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plan.pb-c.h"
#include "stages/base/fold/fold.h"
#include "stages/base/untrusted/wire.h"
#include "stages/files/checkpoint/manifest.h"
#include "stages/files/pt2/document.h"
#include "stages/ops/core/op.h"
#include "stages/split/plan.h"
#include "stages/split/store/pack.h"
#include "tests/fuzz/targets/target.h"

bool fuzz_document(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct pst_document *doc;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_document_parse("fuzz", text, size, &doc, &diag);
    free(text); /* the reader needs nothing of it any more */
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    for (const struct pst_doc_graph *g = doc->graphs; g != NULL; g = g->next)
        for (size_t i = 0; i < g->n_nodes; i++)
            fuzz_check(strlen(g->nodes[i].target) < size &&
                           g->nodes[i].place != NULL,
                       "a node without a target or a place");
    pst_document_free(doc);
    return true;
}

bool fuzz_payloads(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    struct pst_doc_payloads payloads;
    struct pst_doc_meta meta;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_payloads_parse("fuzz", text, size, &payloads, &diag);
    free(text);
    if (status != PST_OK)
        (void)fuzz_refused(status, &diag);
    for (size_t i = 0; status == PST_OK && i < payloads.n; i++) {
        const struct pst_doc_tensor *tensor = payloads.at[i].tensor;
        enum pst_status fits;

        fuzz_check(payloads.at[i].fqn != NULL, "a payload without a name");
        if (tensor == NULL)
            continue;
        fits = pst_doc_meta(tensor, NULL, &meta, &diag);
        if (fits != PST_OK)
            (void)fuzz_refused(fits, &diag);
    }
    pst_payloads_fini(&payloads);
    return status == PST_OK;
}

/* --- plans --------------------------------------------------------------- */

static bool use_plan(const uint8_t *data, size_t size)
{
    struct pst_plan *plan;
    struct pst_diag diag;
    enum pst_status status;
    size_t again;
    void *body;

    pst_diag_init(&diag);
    status = pst_registry_init(&diag); /* otherwise no node has an operator */
    if (status == PST_OK)
        status = pst_plan_unpack(data, size, &plan, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    status = pst_plan_check(plan, &diag);
    if (status != PST_OK) {
        (void)fuzz_refused(status, &diag);
    } else {
        status = pst_plan_body(plan, &body, &again, &diag);
        fuzz_check(status == PST_OK, diag.text);
        pst_free(body);
    }
    pst_plan_free(plan);
    return status == PST_OK;
}

/* Runs may repeat a line until there are 16 MB of them, which takes a tenth of
 * a second; tests/fuzz/test_bombs.c has such plans. */
#define MAX_LINES ((size_t)128 << 10)

/* Sets the version to ours and the digest to that of the body, or of the text
 * that lines and runs unfold to. */
static bool fix_plan(Penstock__Plan__PlanFile *file, char digest[33])
{
    struct pst_folded folded = {0};
    struct pst_str lines = {0}, body = {0};
    struct pst_diag diag;
    bool ret = true;

    file->version = PST_PLAN_VERSION;
    if (file->body.len > 0) {
        pst_digest(file->body.data, file->body.len, digest);
        return true;
    }
    ret = pst_fold_unpack_runs(file->runs.data, file->runs.len, 1 << 17,
                               &folded, &diag) == PST_OK;
    pst_str_addn(&folded.lines, (const char *)file->lines.data,
                 file->lines.len);
    ret = ret && pst_unfold_lines(&folded, MAX_LINES, &lines, &diag) == PST_OK;
    ret = ret && pst_message_pack(&lines, &body, &diag) == PST_OK;
    if (ret)
        pst_digest(pst_str_text(&body), body.len, digest);
    pst_str_fini(&body);
    pst_str_fini(&lines);
    pst_folded_fini(&folded);
    return ret;
}

bool fuzz_plan(const uint8_t *data, size_t size)
{
    /* protobuf-c alone would unpack a bomb; only the plan's reader refuses it.
     */
    const struct pst_wire_limits limits = {64, 16, 16, 1 << 22, 1};
    Penstock__Plan__PlanFile *file;
    struct pst_diag diag;
    bool ret = use_plan(data, size);
    char digest[33];

    if (pst_wire_scan(&penstock__plan__plan_file__descriptor, data, size,
                      &limits, &diag) != PST_OK)
        return ret;
    file = penstock__plan__plan_file__unpack(NULL, size, data);
    if (file != NULL && fix_plan(file, digest)) {
        char *old = file->digest;
        uint8_t *packed;

        file->digest = digest;
        packed = malloc(penstock__plan__plan_file__get_packed_size(file) + 1);
        fuzz_check(packed != NULL, "no memory for a plan");
        ret |= use_plan(packed, penstock__plan__plan_file__pack(file, packed));
        free(packed);
        file->digest = old;
    }
    if (file != NULL)
        penstock__plan__plan_file__free_unpacked(file, NULL);
    return ret;
}

/* --- manifests ----------------------------------------------------------- */

static bool use_manifest(const void *data, size_t size)
{
    struct pst_manifest m;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    pst_manifest_init(&m);
    fuzz_put(PST_MANIFEST_FILE, data, size);
    status = pst_manifest_read(fuzz_folder(), &m, &diag);
    if (status != PST_OK) {
        (void)fuzz_refused(status, &diag);
    } else {
        const uint64_t step = m.info.step;
        const size_t shards = m.shards.n, tensors = m.tensors.n;
        const struct pst_checkpoint_info was = m.info;

        status = pst_manifest_write(fuzz_folder(), &m, &diag);
        fuzz_check(status == PST_OK, diag.text);
        pst_manifest_fini(&m);
        pst_manifest_init(&m);
        status = pst_manifest_read(fuzz_folder(), &m, &diag);
        fuzz_check(status == PST_OK, diag.text);
        fuzz_check(m.info.step == step && m.shards.n == shards &&
                       m.tensors.n == tensors &&
                       strcmp(m.info.options, was.options) == 0,
                   "a manifest reads back to another");
    }
    pst_manifest_fini(&m);
    return status == PST_OK;
}

bool fuzz_manifest(const uint8_t *data, size_t size)
{
    json_t *root;
    char *text = NULL, digest[33];
    bool ret = use_manifest(data, size);

    root = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, NULL);
    if (json_is_object(root)) {
        (void)json_object_del(root, "digest");
        text = json_dumps(root, JSON_COMPACT | JSON_SORT_KEYS);
    }
    if (text != NULL) {
        pst_digest(text, strlen(text), digest);
        free(text);
        (void)json_object_set_new(root, "digest", json_string(digest));
        text = json_dumps(root, 0);
    }
    if (text != NULL)
        ret |= use_manifest(text, strlen(text));
    free(text);
    json_decref(root);
    return ret;
}
