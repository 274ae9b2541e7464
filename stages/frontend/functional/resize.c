// SPDX-License-Identifier: Apache-2.0
/*
 * Storages that are freed and filled again inside the program, as sharded
 * parameters are. A storage has all of its bytes or none, and has no content
 * between growing and the write that fills all of it. The graph only keeps what
 * a caller can see: whether an input had bytes before the program, and whether
 * it has some after it.
 */
#include "stages/frontend/functional/functionalise.h"

#include "stages/frontend/functional/versions.h"
#include "stages/graph/sizes/extent.h"

#include <stdio.h>

enum pst_status pst_versions_bad_resize(const struct pst_functionalise *f,
                                        const struct pst_value *v,
                                        const char *error, const char *why)
{
    return pst_diag_set(f->build->diag, PST_E_MODEL_RESIZE,
                        "the storage of %%%s: %s (%s)", v->name, why, error);
}

/* True if the storage was made, written or read before its first resize: it had
 * bytes then. */
static bool was_used(const struct pst_functionalise *f,
                     const struct pst_storage *s)
{
    const struct pst_graph *graph = f->build->graph;

    if (s->owner->kind == PST_VALUE_NODE || s->version != s->owner)
        return true;
    for (size_t i = 0; i < graph->nodes.n; i++)
        if (pst_versions_reads(graph->nodes.at[i], s->owner))
            return true;
    return false;
}

/* At the first resize, records the size that the storage had before the
 * program. */
static void record_first_size(const struct pst_functionalise *f,
                              struct pst_storage *s, int64_t full,
                              int64_t bytes)
{
    s->resized = true;
    s->bytes_full = full;
    s->bytes_before = bytes == full && !was_used(f, s) ? 0 : full;
    s->bytes_now = s->bytes_before;
}

static enum pst_status check_resize(const struct pst_functionalise *f,
                                    const struct pst_value *v,
                                    const struct pst_storage *s, int64_t bytes)
{
    char why[160];

    if (bytes == s->bytes_now)
        return PST_OK;
    if (bytes < 0 || (bytes != 0 && bytes != s->bytes_full)) {
        (void)snprintf(why, sizeof(why),
                       "is resized from %lld to %lld bytes; only all of its "
                       "%lld bytes can come or go",
                       (long long)s->bytes_now, (long long)bytes,
                       (long long)s->bytes_full);
        return pst_versions_bad_resize(f, v, "E_RESIZE_PARTIAL", why);
    }
    if (bytes == 0 && s->changed)
        return s->bytes_before == 0
                   ? pst_versions_bad_resize(
                         f, v, "E_SHARDED_MUT",
                         "is changed after it was filled, and freed then: the "
                         "change would be lost")
                   : pst_versions_bad_resize(
                         f, v, "E_RESIZE_MUT",
                         "is changed, and freed then: the change would be "
                         "lost");
    return PST_OK;
}

enum pst_status pst_functionalise_resize(struct pst_functionalise *f,
                                         struct pst_value *v, int64_t bytes)
{
    struct pst_storage *s;
    enum pst_status status;

    if (!pst_versions_add_facts(f))
        return f->build->status;
    if (f->facts[v->id].renamed != NULL)
        return pst_versions_bad_resize(f, v, "E_RESIZE_SET",
                                       "was given another geometry before it "
                                       "is resized");
    if (v->kind == PST_VALUE_PARAM)
        return pst_versions_bad_resize(
            f, v, "E_SHARDED_MUT",
            "is that of a parameter, which the model itself cannot free");
    s = pst_versions_storage(f, v);
    if (s == NULL)
        return f->build->status;
    if (!pst_versions_cover(v, s->version))
        return pst_versions_bad_resize(f, v, "E_RESIZE_VIEW",
                                       "is resized by a name that sees a part "
                                       "of it");
    if (bytes != 0 && pst_extent_numel(f->build, s->version).expr != NULL)
        return pst_versions_bad_resize(f, v, "E_RESIZE_PARTIAL",
                                       "has a free size, and is resized to a "
                                       "number of bytes that is not");
    if (!s->resized && bytes == 0 && pst_meta_bytes(&s->version->meta) == 0)
        return PST_OK; /* no byte goes, and none is missing later */
    if (!s->resized)
        record_first_size(f, s, (int64_t)pst_meta_bytes(&s->version->meta),
                          bytes);
    status = check_resize(f, v, s, bytes);
    if (status != PST_OK || bytes == s->bytes_now)
        return status;
    s->bytes_now = bytes;
    s->hole = bytes != 0;
    s->changed = false;
    s->since = f->build->source != NULL ? f->build->source : "";
    if (bytes == 0) /* no update at the end: nothing is left */
        s->version = s->owner;
    return PST_OK;
}

bool pst_versions_is_filled(struct pst_functionalise *f,
                            const struct pst_value *v,
                            const struct pst_storage *s)
{
    char why[200];

    if (s == NULL || !s->resized || (s->bytes_now != 0 && !s->hole))
        return true;
    (void)snprintf(why, sizeof(why), "is read, but %s by the resize%s%.100s",
                   s->bytes_now == 0 ? "was freed" : "was grown and not filled",
                   s->since[0] != '\0' ? " at " : "", s->since);
    f->build->status = pst_versions_bad_resize(f, v, "E_RESIZE_UNINIT", why);
    return false;
}

bool pst_versions_note_write(struct pst_functionalise *f,
                             const struct pst_write_target *t)
{
    struct pst_storage *s = t->storage;
    const bool whole = pst_versions_cover(t->value, s->version);

    if (!s->resized) {
        s->changed = true;
        return true;
    }
    if (s->bytes_now == 0 || (s->hole && !whole))
        return pst_versions_is_filled(f, t->value, s);
    s->changed = !s->hole;
    s->hole = false;
    return true;
}

bool pst_versions_finish_resize(struct pst_functionalise *f,
                                struct pst_storage *s)
{
    struct pst_value *owner = s->owner;

    if (!s->resized)
        return true;
    if (s->hole)
        return pst_versions_is_filled(f, owner, s);
    if (f->facts[owner->id].original != NULL)
        owner = f->facts[owner->id].original;
    owner->empty_before =
        owner->kind == PST_VALUE_INPUT && s->bytes_before == 0;
    owner->empty_after = owner->kind == PST_VALUE_INPUT && s->bytes_now == 0;
    return true;
}
