// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_TEXTS_H
#define PENSTOCK_STAGES_FILES_PT2_TEXTS_H
/*
 * Texts that a parser has read, found by how they stand in the file between
 * their quotes: the layers of a model say the same again and again, and what
 * was read once need not be looked at character by character. Borrows the file
 * and the texts. One thread.
 */
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct pst_texts_slot {
    const char *raw;  /* in the file; NULL: free */
    const char *text; /* what it stands for */
    uint32_t len, hash;
};

/* Zero-initialised is empty. */
struct pst_texts {
    struct pst_texts_slot *slots;
    size_t n, n_slots; /* a power of two, at most half of them taken */
};

/* NULL if it was not read before. */
const char *pst_texts_find(const struct pst_texts *texts, const char *raw,
                           size_t len);
/* A text that is not there. False: no memory. */
bool pst_texts_add(struct pst_texts *texts, const char *raw, size_t len,
                   const char *text) PST_MUST_CHECK;
void pst_texts_fini(struct pst_texts *texts);

#endif
