// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_MAP_H
#define PENSTOCK_STAGES_BASE_MAP_H
/*
 * Hash map from text to pointer. Keys are copied. Iteration is in insertion
 * order, so that no output depends on hashing.
 */
#include "stages/base/arena.h"

struct pst_map_entry {
    char *key;
    void *value;
};

struct pst_map_slot {
    uint32_t entry, hash;
};

struct pst_map {
    enum pst_tag tag;
    struct pst_arena keys;
    struct pst_map_entry *entries; /* 0..n-1 in insertion order */
    size_t n, cap;
    struct pst_map_slot *slots;
    size_t n_slots;
};

void pst_map_init(struct pst_map *map, enum pst_tag tag);
void pst_map_fini(struct pst_map *map);
/* Returns the value of the key; NULL if it is absent. */
void *pst_map_get(const struct pst_map *map, const char *key);
int pst_map_has(const struct pst_map *map, const char *key);
/* Inserts or replaces; returns 0 if memory runs out. */
int pst_map_put(struct pst_map *map, const char *key,
                void *value) PST_MUST_CHECK;

#endif
