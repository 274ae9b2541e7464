// SPDX-License-Identifier: Apache-2.0
#include "stages/run/state/edges.h"

#include <string.h>

#include "stages/base/host/alive.h"

struct head {
    uint64_t offset, bytes;
};

/* Returns the offset of byte x of the file from the start of the span, clamped
 * to the span. */
static size_t clamp_to_span(const struct pst_shard_span *span, uint64_t x)
{
    return x <= span->begin ? 0 : (size_t)PST_MIN(x - span->begin, span->bytes);
}

void pst_spans_divide(struct pst_shard_span *spans, size_t n, uint64_t page)
{
    for (size_t i = 0, next; i < n; i = next) {
        const uint64_t begin = spans[i].begin;
        const uint64_t first = (begin + page - 1) / page * page;
        uint64_t end = begin + spans[i].bytes, last;

        for (next = i + 1; next < n && spans[next].begin == end; next++)
            end += spans[next].bytes;
        last = PST_MAX(end / page * page, first);
        for (size_t k = i; k < next; k++) {
            spans[k].own_begin = clamp_to_span(&spans[k], first);
            spans[k].own_end = clamp_to_span(&spans[k], last);
        }
    }
}

enum pst_status pst_edges_add(struct pst_edges *edges, uint64_t offset,
                              const void *data, size_t bytes,
                              struct pst_diag *diag)
{
    const struct head head = {offset, bytes};

    if (bytes == 0)
        return PST_OK;
    if (!pst_vec_reserve(PST_TAG_EXEC, edges, sizeof(head) + bytes))
        return pst_diag_nomem(diag, sizeof(head) + bytes);
    memcpy(edges->at + edges->n, &head, sizeof(head));
    memcpy(edges->at + edges->n + sizeof(head), data, bytes);
    edges->n += sizeof(head) + bytes;
    return PST_OK;
}

static enum pst_status write_edge(struct pst_safetensors_writer *w,
                                  const struct pst_file *file,
                                  const struct head *head, const void *data,
                                  void *back, struct pst_diag *diag)
{
    const size_t bytes = (size_t)head->bytes;
    enum pst_status status =
        pst_safetensors_writer_put_at(w, head->offset, data, bytes, diag);

    if (status == PST_OK)
        status = pst_file_read_at(file, head->offset, back, bytes, diag);
    if (status == PST_OK && memcmp(back, data, bytes) != 0)
        status = pst_diag_set(diag, PST_E_CHECKPOINT_READ_BACK,
                              "%s: was read back with other bytes than were "
                              "written",
                              file->path);
    pst_alive_progress();
    return status;
}

enum pst_status pst_edges_write(const struct pst_edges *edges,
                                struct pst_safetensors_writer *w,
                                const struct pst_file *file,
                                struct pst_diag *diag)
{
    void *back = pst_alloc(PST_TAG_EXEC, PST_MAX(edges->n, (size_t)1));
    enum pst_status status =
        back != NULL ? PST_OK : pst_diag_nomem(diag, edges->n);
    size_t at = 0;

    while (at < edges->n && status == PST_OK) {
        const size_t left = edges->n - at;
        struct head head = {0};

        if (left > sizeof(head))
            memcpy(&head, edges->at + at, sizeof(head));
        if (head.bytes == 0 || head.bytes > left - sizeof(head)) {
            status = pst_diag_set(diag, PST_E_INTERNAL_BUG,
                                  "%s: what another rank has sent is cut",
                                  file->path);
            break;
        }
        at += sizeof(head);
        status = write_edge(w, file, &head, edges->at + at, back, diag);
        at += (size_t)head.bytes;
    }
    pst_free(back);
    return status;
}
