// SPDX-License-Identifier: Apache-2.0
/* Changes of protobuf messages: a field is removed, repeated or changed, and
 * the lengths of all messages around it are corrected. */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/macros.h"
#include "tests/fuzz/targets/change.h"
#include "tests/fuzz/targets/target.h"

#define MAX_FIELDS 512
#define MAX_DEPTH  6

enum { VARINT, FIXED64, DELIMITED, FIXED32 = 5 };

struct field {
    size_t begin, data, end; /* its tag, what follows it, its end */
    unsigned type;
    size_t text; /* begin of the payload of a delimited field */
};

static bool read_varint(const uint8_t *data, size_t size, size_t *at,
                        uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 64 && *at < size; shift += 7) {
        const uint8_t byte = data[(*at)++];

        value |= (uint64_t)(byte & 0x7f) << shift;
        if (byte < 0x80) {
            *ret = value;
            return true;
        }
    }
    return false;
}

static size_t write_varint(uint64_t value, uint8_t out[10])
{
    size_t n = 0;

    for (; value >= 0x80; value >>= 7)
        out[n++] = (uint8_t)(value | 0x80);
    out[n++] = (uint8_t)value;
    return n;
}

static bool read_field(const uint8_t *data, size_t size, size_t at,
                       struct field *ret)
{
    uint64_t tag, value;

    ret->begin = at;
    if (!read_varint(data, size, &at, &tag) || tag < 8 || tag >> 32 != 0)
        return false;
    ret->type = tag & 7;
    ret->data = at;
    ret->text = at;
    switch (ret->type) {
    case VARINT:
        if (!read_varint(data, size, &at, &value))
            return false;
        ret->end = at;
        return true;
    case FIXED64:
    case FIXED32:
        ret->end = at + (ret->type == FIXED64 ? 8 : 4);
        return ret->end <= size;
    case DELIMITED:
        if (!read_varint(data, size, &at, &value) || value > size - at)
            return false;
        ret->text = at;
        ret->end = at + (size_t)value;
        return true;
    default:
        return false;
    }
}

/* Splits a message into its fields; returns 0 if the bytes are none. */
static size_t split(const uint8_t *data, size_t size,
                    struct field fields[MAX_FIELDS])
{
    size_t n = 0, at = 0;

    while (at < size && n < MAX_FIELDS) {
        if (!read_field(data, size, at, &fields[n]))
            return 0;
        at = fields[n++].end;
    }
    return n;
}

static size_t change_number(struct fuzz_chance *c, uint8_t *data, size_t size,
                            size_t most, const struct field *f)
{
    static const uint64_t numbers[] = {
        0,         1,          2,         3,          4,
        7,         63,         64,        255,        65536,
        INT32_MAX, UINT32_MAX, INT64_MAX, UINT64_MAX, UINT64_MAX - 1,
        1u << 31,  1ull << 62, 1000001};
    static const double reals[] = {0, 1, -1, 0.5, 1e308, 1e-320, 3e9};
    uint8_t text[10];
    uint64_t value = 0;
    size_t at = f->data, n = f->end - f->data;

    if (f->type == VARINT) {
        (void)read_varint(data, size, &at, &value);
        value = fuzz_pick(c, 2) ? value + fuzz_pick(c, 5) - 2
                                : numbers[fuzz_pick(c, PST_COUNT(numbers))];
        n = write_varint(value, text);
    } else {
        memcpy(text, &reals[fuzz_pick(c, PST_COUNT(reals))], n);
    }
    return fuzz_replace(data, size, most, f->data, f->end, text, n);
}

static bool is_text(const uint8_t *data, size_t size)
{
    size_t n = 0;

    while (n < size && (data[n] == '\n' || (data[n] >= ' ' && data[n] < 0x7f)))
        n++;
    return n == size && size > 0;
}

static size_t change_message(struct fuzz_chance *c, uint8_t *data, size_t size,
                             size_t most, unsigned depth);

/* Changes what a field contains: a message, a text, or any bytes. */
static size_t change_content(struct fuzz_chance *c, uint8_t *data, size_t size,
                             size_t most, unsigned depth)
{
    struct field first;

    if (is_text(data, size))
        return fuzz_change_text(c, data, size, most);
    if (depth < MAX_DEPTH && read_field(data, size, 0, &first))
        return change_message(c, data, size, most, depth + 1);
    return c->bytes(data, size, most);
}

static size_t change_delimited(struct fuzz_chance *c, uint8_t *data,
                               size_t size, size_t most, const struct field *f,
                               unsigned depth)
{
    const size_t n = f->end - f->text;
    const size_t space = n + PST_MIN(most - size, (size_t)4096);
    uint8_t *all = fuzz_alloc(space + 10), *content, length[10];
    size_t changed, digits;

    content = all + 10;
    memcpy(content, data + f->text, n);
    changed = space > 0 ? change_content(c, content, n, space, depth) : 0;
    digits = write_varint(changed, length);
    memcpy(content - digits, length, digits);
    size = fuzz_replace(data, size, most, f->data, f->end, content - digits,
                        digits + changed);
    free(all);
    return size;
}

/* Picks a field; half of the time, the longer the likelier. */
static const struct field *pick_field(struct fuzz_chance *c,
                                      const struct field *fields, size_t n)
{
    const size_t at = fuzz_pick(c, fields[n - 1].end);
    size_t i = 0;

    if (fuzz_pick(c, 2))
        return &fields[fuzz_pick(c, n)];
    while (i + 1 < n && fields[i].end <= at)
        i++;
    return &fields[i];
}

static size_t repeat_field(uint8_t *data, size_t size, size_t most,
                           const struct field *from, size_t to)
{
    const size_t n = from->end - from->begin;
    uint8_t *copy = fuzz_alloc(n);

    memcpy(copy, data + from->begin, n);
    size = fuzz_replace(data, size, most, to, to, copy, n);
    free(copy);
    return size;
}

static size_t change_message(struct fuzz_chance *c, uint8_t *data, size_t size,
                             size_t most, unsigned depth)
{
    struct field fields[MAX_FIELDS];
    const size_t n = split(data, size, fields);
    const struct field *f;

    if (n == 0)
        return c->bytes(data, size, most);
    f = pick_field(c, fields, n);
    /* The outermost message has few fields: changes are rather inside. */
    switch (fuzz_pick(c, depth > 0 ? 8 : 64)) {
    case 0:
        return fuzz_replace(data, size, most, f->begin, f->end, "", 0);
    case 1:
        return repeat_field(data, size, most, f, fields[fuzz_pick(c, n)].begin);
    default:
        return f->type == DELIMITED
                   ? change_delimited(c, data, size, most, f, depth)
                   : change_number(c, data, size, most, f);
    }
}

size_t fuzz_change_wire(struct fuzz_chance *c, uint8_t *data, size_t size,
                        size_t most)
{
    return fuzz_pick(c, 64) == 0 ? c->bytes(data, size, most)
                                 : change_message(c, data, size, most, 0);
}
