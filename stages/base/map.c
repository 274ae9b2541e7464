// SPDX-License-Identifier: Apache-2.0
#include "stages/base/map.h"

#include <string.h>
#include <xxhash.h>

/* Slots hold index + 1 of an entry; 0 is free. At most 3/4 are taken. They also
 * hold the hash, so that other keys are rarely compared. */
#define FIRST_SLOTS ((size_t)16)

static uint32_t hash_of(const char *key)
{
    return (uint32_t)XXH3_64bits(key, strlen(key));
}

void pst_map_init(struct pst_map *map, enum pst_tag tag)
{
    *map = (struct pst_map){.tag = tag};
    pst_arena_init(&map->keys, tag);
}

void pst_map_fini(struct pst_map *map)
{
    pst_arena_fini(&map->keys);
    pst_free(map->entries);
    pst_free(map->slots);
    pst_map_init(map, map->tag);
}

/* Returns the slot of the key; if the key is absent, the free slot for it. */
static size_t find_slot(const struct pst_map *map, const char *key,
                        uint32_t hash)
{
    const size_t mask = map->n_slots - 1;
    size_t s = hash & mask;

    while (map->slots[s].entry != 0 &&
           (map->slots[s].hash != hash ||
            strcmp(map->entries[map->slots[s].entry - 1].key, key) != 0))
        s = (s + 1) & mask;
    return s;
}

static const struct pst_map_entry *find_entry(const struct pst_map *map,
                                              const char *key)
{
    uint32_t entry;

    if (!map->n)
        return NULL;
    entry = map->slots[find_slot(map, key, hash_of(key))].entry;
    return entry != 0 ? &map->entries[entry - 1] : NULL;
}

void *pst_map_get(const struct pst_map *map, const char *key)
{
    const struct pst_map_entry *e = find_entry(map, key);

    return e ? e->value : NULL;
}

int pst_map_has(const struct pst_map *map, const char *key)
{
    return find_entry(map, key) != NULL;
}

static int grow_slots(struct pst_map *map)
{
    const size_t n_slots = map->n_slots ? 2 * map->n_slots : FIRST_SLOTS;
    struct pst_map_slot *slots;

    if (n_slots > UINT32_MAX / 2)
        return 0;
    slots = pst_calloc(map->tag, n_slots, sizeof(*slots));
    if (!slots)
        return 0;
    for (size_t i = 0; i < map->n_slots; i++) {
        size_t s = map->slots[i].hash & (n_slots - 1);

        if (map->slots[i].entry == 0)
            continue;
        while (slots[s].entry != 0)
            s = (s + 1) & (n_slots - 1);
        slots[s] = map->slots[i];
    }
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
    const uint32_t hash = hash_of(key);
    size_t slot;
    char *copy;

    if (4 * (map->n + 1) > 3 * map->n_slots && !grow_slots(map))
        return 0;
    slot = find_slot(map, key, hash);
    if (map->slots[slot].entry != 0) {
        map->entries[map->slots[slot].entry - 1].value = value;
        return 1;
    }
    if (map->n == map->cap && !grow_entries(map))
        return 0;
    copy = pst_arena_strdup(&map->keys, key);
    if (!copy)
        return 0;
    map->entries[map->n++] = (struct pst_map_entry){copy, value};
    map->slots[slot] = (struct pst_map_slot){(uint32_t)map->n, hash};
    return 1;
}
