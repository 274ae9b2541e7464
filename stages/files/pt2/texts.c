// SPDX-License-Identifier: Apache-2.0
#include "stages/files/pt2/texts.h"

#include "stages/base/alloc.h"
#include "stages/base/str.h"

#include <string.h>

#define FIRST_SLOTS ((size_t)256)

/* Returns the slot of the text; if the text is absent, the free slot for it. */
static struct pst_texts_slot *find_slot(const struct pst_texts *texts,
                                        const char *raw, size_t len,
                                        uint32_t hash)
{
    const size_t mask = texts->n_slots - 1;
    size_t at = hash & mask;

    for (;; at = (at + 1) & mask) {
        struct pst_texts_slot *slot = &texts->slots[at];

        if (slot->raw == NULL || (slot->hash == hash && slot->len == len &&
                                  memcmp(slot->raw, raw, len) == 0))
            return slot;
    }
}

const char *pst_texts_find(const struct pst_texts *texts, const char *raw,
                           size_t len)
{
    if (texts->n == 0 || len > UINT32_MAX)
        return NULL;
    return find_slot(texts, raw, len, (uint32_t)pst_hash(raw, len, 0))->text;
}

static bool grow_slots(struct pst_texts *texts)
{
    struct pst_texts more = {.n = texts->n,
                             .n_slots = texts->n_slots > 0 ? 2 * texts->n_slots
                                                           : FIRST_SLOTS};

    more.slots = pst_calloc(PST_TAG_ARCHIVE, more.n_slots, sizeof(*more.slots));
    if (more.slots == NULL)
        return false;
    for (size_t i = 0; i < texts->n_slots; i++) {
        const struct pst_texts_slot *slot = &texts->slots[i];

        if (slot->raw != NULL)
            *find_slot(&more, slot->raw, slot->len, slot->hash) = *slot;
    }
    pst_texts_fini(texts);
    *texts = more;
    return true;
}

bool pst_texts_add(struct pst_texts *texts, const char *raw, size_t len,
                   const char *text)
{
    const uint32_t hash = (uint32_t)pst_hash(raw, len, 0);

    if (len > UINT32_MAX)
        return true; /* too long to be cached: it is parsed each time */
    if (2 * (texts->n + 1) > texts->n_slots && !grow_slots(texts))
        return false;
    *find_slot(texts, raw, len, hash) =
        (struct pst_texts_slot){raw, text, (uint32_t)len, hash};
    texts->n++;
    return true;
}

void pst_texts_fini(struct pst_texts *texts)
{
    pst_free(texts->slots);
    *texts = (struct pst_texts){.slots = NULL};
}
