// SPDX-License-Identifier: Apache-2.0
#include "stages/base/map.h"

#include <string.h>
#include <xxhash.h>

/* Slots hold index + 1 of an entry; 0 is free. At most 3/4 are taken. */
#define FIRST_SLOTS ((size_t)16)

void pst_map_init(struct pst_map *map, enum pst_tag tag)
{
    *map = (struct pst_map){.tag = tag};
}

void pst_map_fini(struct pst_map *map)
{
    for (size_t i = 0; i < map->n; i++)
        pst_free(map->entries[i].key);
    pst_free(map->entries);
    pst_free(map->slots);
    *map = (struct pst_map){.tag = map->tag};
}

/* The slot of the key, or the free one where it belongs. */
static size_t find_slot(const struct pst_map_entry *entries,
                        const uint32_t *slots, size_t n_slots, const char *key)
{
    const size_t mask = n_slots - 1;
    size_t s = (size_t)XXH3_64bits(key, strlen(key)) & mask;

    while (slots[s] && strcmp(entries[slots[s] - 1].key, key) != 0)
        s = (s + 1) & mask;
    return s;
}

static const struct pst_map_entry *find(const struct pst_map *map,
                                        const char *key)
{
    uint32_t slot;

    if (!map->n)
        return NULL;
    slot = map->slots[find_slot(map->entries, map->slots, map->n_slots, key)];
    return slot ? &map->entries[slot - 1] : NULL;
}

void *pst_map_get(const struct pst_map *map, const char *key)
{
    const struct pst_map_entry *e = find(map, key);

    return e ? e->value : NULL;
}

int pst_map_has(const struct pst_map *map, const char *key)
{
    return find(map, key) != NULL;
}

static int grow_slots(struct pst_map *map)
{
    const size_t n_slots = map->n_slots ? 2 * map->n_slots : FIRST_SLOTS;
    uint32_t *slots;

    if (n_slots > UINT32_MAX / 2)
        return 0;
    slots = pst_calloc(map->tag, n_slots, sizeof(*slots));
    if (!slots)
        return 0;
    for (size_t i = 0; i < map->n; i++)
        slots[find_slot(map->entries, slots, n_slots, map->entries[i].key)] =
            (uint32_t)i + 1;
    pst_free(map->slots);
    map->slots = slots;
    map->n_slots = n_slots;
    return 1;
}

static int grow_entries(struct pst_map *map)
{
    const size_t cap = map->cap ? 2 * map->cap : FIRST_SLOTS;
    struct pst_map_entry *entries;

    entries = pst_realloc(map->tag, map->entries, cap * sizeof(*entries));
    if (!entries)
        return 0;
    map->entries = entries;
    map->cap = cap;
    return 1;
}

int pst_map_put(struct pst_map *map, const char *key, void *value)
{
    size_t slot;
    char *copy;

    if (4 * (map->n + 1) > 3 * map->n_slots && !grow_slots(map))
        return 0;
    slot = find_slot(map->entries, map->slots, map->n_slots, key);
    if (map->slots[slot]) {
        map->entries[map->slots[slot] - 1].value = value;
        return 1;
    }
    if (map->n == map->cap && !grow_entries(map))
        return 0;
    copy = pst_strdup(map->tag, key);
    if (!copy)
        return 0;
    map->entries[map->n++] = (struct pst_map_entry){copy, value};
    map->slots[slot] = (uint32_t)map->n;
    return 1;
}
