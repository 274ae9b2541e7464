// SPDX-License-Identifier: Apache-2.0
/*
 * Converts a packed message to lines and back. A line begins with a letter for
 * the number of its field, 'a' for 1; then
 *
 *     a17         an integer, as in the varint
 *     a[1 2 3     a list of these
 *     a"text      text; its further lines begin with '|'
 *     a{          a message: lines up to "}"
 */
#include "stages/base/fold/fold.h"

#include <stdbool.h>
#include <string.h>

#define MAX_FIELD 26
#define MAX_DEPTH 8

static enum pst_status report_unfit(struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_RECORD_UNFIT,
                        "lines cannot say what is in the message");
}

/* --- folding a message to lines ------------------------------------------- */

static bool read_varint(const unsigned char **at, const unsigned char *end,
                        uint64_t *ret)
{
    *ret = 0;
    for (unsigned shift = 0; shift < 64 && *at < end; shift += 7) {
        const unsigned char byte = *(*at)++;

        *ret |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80))
            return true;
    }
    return false;
}

static void add_text(struct pst_str *out, const char *text, size_t len)
{
    const char *end = text + len, *stop;

    pst_str_add(out, "\"");
    while ((stop = memchr(text, '\n', (size_t)(end - text))) != NULL) {
        pst_str_addn(out, text, (size_t)(stop + 1 - text));
        pst_str_add(out, "|");
        text = stop + 1;
    }
    pst_str_addn(out, text, (size_t)(end - text));
    pst_str_add(out, "\n");
}

static bool add_list(struct pst_str *out, const unsigned char *at,
                     const unsigned char *end)
{
    const char *separator = "[";
    uint64_t value;

    if (at == end)
        return false;
    while (at < end) {
        if (!read_varint(&at, end, &value))
            return false;
        pst_str_add(out, separator);
        pst_str_add_u64(out, value);
        separator = " ";
    }
    pst_str_add(out, "\n");
    return true;
}

static bool add_message(struct pst_str *out,
                        const ProtobufCMessageDescriptor *descriptor,
                        const unsigned char *at, const unsigned char *end,
                        unsigned depth);

/* Appends a length-delimited field, whose bytes are between at and end. */
static bool add_bytes(struct pst_str *out,
                      const ProtobufCFieldDescriptor *field,
                      const unsigned char *at, const unsigned char *end,
                      unsigned depth)
{
    switch (field->type) {
    case PROTOBUF_C_TYPE_STRING:
        add_text(out, (const char *)at, (size_t)(end - at));
        return true;
    case PROTOBUF_C_TYPE_MESSAGE:
        pst_str_add(out, "{\n");
        if (!add_message(out, field->descriptor, at, end, depth + 1))
            return false;
        pst_str_add(out, "}\n");
        return true;
    case PROTOBUF_C_TYPE_INT32:
    case PROTOBUF_C_TYPE_SINT32:
    case PROTOBUF_C_TYPE_UINT32:
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_BOOL:
    case PROTOBUF_C_TYPE_ENUM:
        return add_list(out, at, end);
    default:
        return false;
    }
}

static bool add_message(struct pst_str *out,
                        const ProtobufCMessageDescriptor *descriptor,
                        const unsigned char *at, const unsigned char *end,
                        unsigned depth)
{
    while (at < end) {
        const ProtobufCFieldDescriptor *field;
        const unsigned char *stop;
        uint64_t tag, n;
        char letter;

        if (depth > MAX_DEPTH || !read_varint(&at, end, &tag) ||
            !read_varint(&at, end, &n) || tag >> 3 == 0 || tag >> 3 > MAX_FIELD)
            return false;
        letter = (char)('a' + (tag >> 3) - 1);
        pst_str_addn(out, &letter, 1);
        if ((tag & 7) == 0) {
            pst_str_add_u64(out, n);
            pst_str_addn(out, "\n", 1);
            continue;
        }
        field = protobuf_c_message_descriptor_get_field(descriptor,
                                                        (unsigned)(tag >> 3));
        if ((tag & 7) != 2 || field == NULL || n > (size_t)(end - at))
            return false;
        stop = at + n;
        if (!add_bytes(out, field, at, stop, depth))
            return false;
        at = stop;
    }
    return true;
}

enum pst_status pst_message_lines(const ProtobufCMessageDescriptor *descriptor,
                                  const void *data, size_t size,
                                  struct pst_str *ret, struct pst_diag *diag)
{
    const unsigned char *at = data;

    if (!add_message(ret, descriptor, at, at + size, 0))
        return report_unfit(diag);
    return ret->failed ? pst_diag_nomem(diag, size) : PST_OK;
}

/* --- unfolding lines to a message ----------------------------------------- */

struct reader {
    const char *at, *end; /* the remaining lines */
    const char *stop;     /* end of the current line */
    struct pst_diag *diag;
};

static enum pst_status report_damage(const struct reader *r)
{
    return pst_diag_set(r->diag, PST_E_RECORD_DAMAGED,
                        "a line that is not a part of a message");
}

static bool next_line(struct reader *r)
{
    if (r->at == r->end)
        return false;
    r->stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
    return r->stop != NULL;
}

void pst_put_varint(struct pst_str *out, uint64_t value)
{
    char byte;

    for (; value >= 0x80; value >>= 7) {
        byte = (char)(value | 0x80);
        pst_str_addn(out, &byte, 1);
    }
    byte = (char)value;
    pst_str_addn(out, &byte, 1);
}

static bool read_number(struct reader *r, uint64_t *ret)
{
    const char *from = r->at;

    for (*ret = 0; r->at < r->stop && *r->at >= '0' && *r->at <= '9'; r->at++)
        if (__builtin_mul_overflow(*ret, 10, ret) ||
            __builtin_add_overflow(*ret, (uint64_t)(*r->at - '0'), ret))
            return false;
    return r->at > from;
}

static void put_part(struct pst_str *out, unsigned field,
                     const struct pst_str *part)
{
    pst_put_varint(out, (uint64_t)field << 3 | 2);
    pst_put_varint(out, part->len);
    pst_str_addn(out, pst_str_text(part), part->len);
}

static bool read_list(struct reader *r, struct pst_str *part)
{
    uint64_t value;

    do {
        r->at++;
        if (!read_number(r, &value))
            return false;
        pst_put_varint(part, value);
    } while (r->at < r->stop && *r->at == ' ');
    return r->at == r->stop;
}

/* Reads a text of one or more lines; leaves r at the end of the last one. */
static void read_text(struct reader *r, struct pst_str *part)
{
    pst_str_addn(part, r->at + 1, (size_t)(r->stop - r->at - 1));
    while (r->stop + 1 < r->end && r->stop[1] == '|') {
        r->at = r->stop + 1;
        r->stop = memchr(r->at, '\n', (size_t)(r->end - r->at));
        if (r->stop == NULL) {
            r->stop = r->end;
            return;
        }
        pst_str_add(part, "\n");
        pst_str_addn(part, r->at + 1, (size_t)(r->stop - r->at - 1));
    }
}

static enum pst_status read_message(struct reader *r, struct pst_str *out,
                                    unsigned depth);

/* Reads the part of a line after its letter. */
static enum pst_status read_part(struct reader *r, char kind,
                                 struct pst_str *part, unsigned depth)
{
    if (kind == '[')
        return read_list(r, part) ? PST_OK : report_damage(r);
    if (kind == '"') {
        read_text(r, part);
        return PST_OK;
    }
    if (kind != '{' || r->at + 1 != r->stop || depth == MAX_DEPTH)
        return report_damage(r);
    r->at = r->stop + 1;
    return read_message(r, part, depth + 1);
}

/* Reads lines up to "}", or up to the end of the text at depth 0. Leaves r at
 * the end of the last line. */
static enum pst_status read_message(struct reader *r, struct pst_str *out,
                                    unsigned depth)
{
    while (next_line(r)) {
        const unsigned field = (unsigned)(*r->at - 'a') + 1;
        struct pst_str part = {0};
        enum pst_status status;
        uint64_t value;

        if (depth > 0 && r->stop - r->at == 1 && *r->at == '}')
            return PST_OK;
        if (r->stop - r->at < 2 || *r->at < 'a' || field > MAX_FIELD)
            return report_damage(r);
        r->at++;
        if (*r->at >= '0' && *r->at <= '9') {
            if (!read_number(r, &value) || r->at != r->stop)
                return report_damage(r);
            pst_put_varint(out, (uint64_t)field << 3);
            pst_put_varint(out, value);
            r->at = r->stop + 1;
            continue;
        }
        status = read_part(r, *r->at, &part, depth);
        if (status == PST_OK)
            put_part(out, field, &part);
        if (part.failed || out->failed)
            status = pst_diag_nomem(r->diag, part.len);
        pst_str_fini(&part);
        if (status != PST_OK)
            return status;
        r->at = r->stop < r->end ? r->stop + 1 : r->end;
    }
    return depth == 0 && r->at == r->end ? PST_OK : report_damage(r);
}

enum pst_status pst_message_pack(const struct pst_str *lines,
                                 struct pst_str *ret, struct pst_diag *diag)
{
    struct reader r = {.at = pst_str_text(lines), .diag = diag};

    r.end = r.at + lines->len;
    return read_message(&r, ret, 0);
}
