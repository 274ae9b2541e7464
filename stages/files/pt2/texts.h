// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_TEXTS_H
#define PENSTOCK_STAGES_FILES_PT2_TEXTS_H
/*
 * Cache of parsed strings, keyed by their raw text in the file (between the
 * quotes): the layers of a model repeat the same strings, so most of them are
 * not parsed character by character. Borrows the file and the texts. One
 * thread.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pst_texts_slot {
    const char *raw;  /* raw text in the file; NULL: the slot is free */
    const char *text; /* parsed text */
    uint32_t len, hash;
};

/* A zeroed struct is empty. */
struct pst_texts {
    struct pst_texts_slot *slots;
    size_t n, n_slots; /* a power of two, at most half of them taken */
};

/* Returns the parsed text; NULL if it is not cached. */
const char *pst_texts_find(const struct pst_texts *texts, const char *raw,
                           size_t len);
/* Adds a text that is not cached; false if memory runs out. */
bool pst_texts_add(struct pst_texts *texts, const char *raw, size_t len,
                   const char *text) PST_MUST_CHECK;
void pst_texts_fini(struct pst_texts *texts);

#endif
