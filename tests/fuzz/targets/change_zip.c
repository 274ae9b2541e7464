// SPDX-License-Identifier: Apache-2.0
/* Changes of JSON, and of what an archive of stored entries contains. The
 * archive is written anew with correct sizes and offsets; fuzz_model corrects
 * its checksums. */
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/macros.h"
#include "tests/fuzz/targets/change.h"
#include "tests/fuzz/targets/target.h"

/* Changes JSON; any bytes of it once in so many times. */
static size_t change_json(struct fuzz_chance *c, uint8_t *data, size_t size,
                          size_t most, size_t times)
{
    json_t *root = fuzz_pick(c, times) > 0
                       ? json_loadb((const char *)data, size, 0, NULL)
                       : NULL;
    char *text = NULL;
    size_t n;

    if (root == NULL)
        return c->bytes(data, size, most);
    for (size_t k = 1 + fuzz_pick(c, 3); k > 0; k--)
        mutate(&c->random, root);
    text = json_dumps(root, JSON_COMPACT);
    json_decref(root);
    n = text != NULL ? strlen(text) : 0;
    if (n > 0 && n <= most) {
        memcpy(data, text, n);
        size = n;
    }
    free(text);
    return size;
}

size_t fuzz_change_json(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most)
{
    return change_json(c, data, size, most, 2);
}

/* --- archives ------------------------------------------------------------ */

#define MAX_ENTRIES 64
#define LOCAL       30
#define CENTRAL     46
#define END         22
#define MAX_NAME    255

struct entry {
    const uint8_t *name, *data;
    size_t name_size, size;
};

struct archive {
    struct entry at[MAX_ENTRIES];
    size_t n;
};

static void put(uint8_t *at, size_t value, unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        at[i] = (uint8_t)(value >> (8 * i));
}

/* Reads the entry whose central header is at *at; advances *at. */
static bool read_entry(const uint8_t *data, size_t size, size_t *at,
                       struct entry *ret)
{
    const uint8_t *h = data + *at;
    size_t local, begin;

    if (*at > size || size - *at < CENTRAL || memcmp(h, "PK\1\2", 4) != 0 ||
        fuzz_get(h + 10, 2) != 0)
        return false;
    ret->name_size = fuzz_get(h + 28, 2);
    ret->size = fuzz_get(h + 20, 4);
    local = fuzz_get(h + 42, 4);
    *at += CENTRAL + ret->name_size + fuzz_get(h + 30, 2) + fuzz_get(h + 32, 2);
    if (*at > size || ret->name_size > MAX_NAME || local > size - CENTRAL)
        return false;
    ret->name = h + CENTRAL;
    begin = local + LOCAL + fuzz_get(data + local + 26, 2) +
            fuzz_get(data + local + 28, 2);
    if (begin > size || ret->size > size - begin)
        return false;
    ret->data = data + begin;
    return true;
}

static bool read_archive(const uint8_t *data, size_t size, struct archive *ret)
{
    size_t at, n;

    ret->n = 0;
    if (size < CENTRAL + END || memcmp(data + size - END, "PK\5\6", 4) != 0)
        return false;
    n = fuzz_get(data + size - END + 10, 2);
    at = fuzz_get(data + size - END + 16, 4);
    if (n > MAX_ENTRIES)
        return false;
    for (size_t i = 0; i < n; i++)
        if (!read_entry(data, size, &at, &ret->at[ret->n++]))
            return false;
    return n > 0;
}

/* Returns the size of the archive as write_archive writes it. */
static size_t archive_size(const struct archive *a)
{
    size_t ret = END;

    for (size_t i = 0; i < a->n; i++)
        ret += LOCAL + CENTRAL + 2 * a->at[i].name_size + a->at[i].size;
    return ret;
}

static size_t write_archive(const struct archive *a, uint8_t *out)
{
    static const uint8_t first[] = {'P', 'K', 3, 4, 20};
    static const uint8_t second[] = {'P', 'K', 1, 2, 20, 0, 20};
    static const uint8_t last[] = {'P', 'K', 5, 6};
    size_t locals[MAX_ENTRIES], at = 0, central;

    for (size_t i = 0; i < a->n; i++) {
        const struct entry *e = &a->at[i];

        locals[i] = at;
        memset(out + at, 0, LOCAL);
        memcpy(out + at, first, sizeof(first));
        put(out + at + 18, e->size, 4);
        put(out + at + 22, e->size, 4);
        put(out + at + 26, e->name_size, 2);
        memcpy(out + at + LOCAL, e->name, e->name_size);
        memcpy(out + at + LOCAL + e->name_size, e->data, e->size);
        at += LOCAL + e->name_size + e->size;
    }
    central = at;
    for (size_t i = 0; i < a->n; i++) {
        const struct entry *e = &a->at[i];

        memset(out + at, 0, CENTRAL);
        memcpy(out + at, second, sizeof(second));
        put(out + at + 20, e->size, 4);
        put(out + at + 24, e->size, 4);
        put(out + at + 28, e->name_size, 2);
        put(out + at + 42, locals[i], 4);
        memcpy(out + at + CENTRAL, e->name, e->name_size);
        at += CENTRAL + e->name_size;
    }
    memset(out + at, 0, END);
    memcpy(out + at, last, sizeof(last));
    put(out + at + 8, a->n, 2);
    put(out + at + 10, a->n, 2);
    put(out + at + 12, at - central, 4);
    put(out + at + 16, central, 4);
    return at + END;
}

static bool is_json(const struct entry *e)
{
    return e->size > 1 && e->data[0] == '{';
}

/* Picks an entry: mostly one of JSON, the larger the likelier. */
static struct entry *pick_entry(struct fuzz_chance *c, struct archive *a)
{
    struct entry *ret = &a->at[fuzz_pick(c, a->n)];

    if (fuzz_pick(c, 8) == 0)
        return ret;
    for (unsigned i = 0; i < 16; i++) {
        struct entry *other = &a->at[fuzz_pick(c, a->n)];

        if (is_json(other) && (!is_json(ret) || other->size > ret->size))
            ret = other;
    }
    return ret;
}

/* Changes the content of an entry. Returns its new bytes, owned. */
static uint8_t *change_entry(struct fuzz_chance *c, struct entry *e,
                             size_t space)
{
    const size_t most = e->size + space;
    uint8_t *content = fuzz_alloc(most);

    memcpy(content, e->data, e->size);
    if (most > 0)
        e->size = is_json(e) ? change_json(c, content, e->size, most, 16)
                             : c->bytes(content, e->size, most);
    e->data = content;
    return content;
}

/* Reads the archive in the data. If it cannot be read, the data becomes a copy
 * of the one that was read before: what is derived from a damaged archive, or
 * from one with compressed entries, would never come further than the
 * container. */
static bool find_archive(uint8_t *data, size_t *size, size_t most,
                         struct archive *ret)
{
    static uint8_t last[1 << 14];
    static size_t last_size;

    if (read_archive(data, *size, ret)) {
        if (*size <= sizeof(last)) {
            memcpy(last, data, *size);
            last_size = *size;
        }
        return archive_size(ret) <= most;
    }
    if (last_size == 0 || last_size > most)
        return false;
    memcpy(data, last, last_size);
    *size = last_size;
    return read_archive(data, *size, ret) && archive_size(ret) <= most;
}

size_t fuzz_change_zip(struct fuzz_chance *c, uint8_t *data, size_t size,
                       size_t most)
{
    struct archive a;
    uint8_t *content = NULL, *out;
    struct entry *e;
    size_t now;

    /* Rarely any bytes: what they find is found by the target zip. */
    if (fuzz_pick(c, 128) == 0 || !find_archive(data, &size, most, &a))
        return c->bytes(data, size, most);
    e = pick_entry(c, &a);
    now = archive_size(&a);
    if (fuzz_pick(c, 64) == 0)
        *e = a.at[--a.n];
    else if (fuzz_pick(c, 64) == 0 && a.n < MAX_ENTRIES &&
             now + LOCAL + CENTRAL + 2 * e->name_size + e->size <= most)
        a.at[a.n++] = *e;
    else
        content = change_entry(c, e, most - now);
    out = fuzz_alloc(archive_size(&a));
    size = write_archive(&a, out);
    memcpy(data, out, size);
    free(out);
    free(content);
    return size;
}
