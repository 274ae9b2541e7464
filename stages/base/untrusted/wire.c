// SPDX-License-Identifier: Apache-2.0
#include "stages/base/untrusted/wire.h"

#include <string.h>

#include "stages/base/checked.h"

/* Heap overhead of a block in bytes, and bytes of the record that protobuf-c
 * makes of each field while it unpacks a message. */
#define BLOCK 16
#define NOTE  64

struct scan {
    const unsigned char *at, *end;
    size_t fields, unknown, empty, bytes;
    const struct pst_wire_limits *limits;
    struct pst_diag *diag;
};

static enum pst_status report_damage(const struct scan *s, const char *what)
{
    return pst_diag_set(s->diag, PST_E_RECORD_DAMAGED, "%s", what);
}

/* protobuf-c reads at most 10 bytes of a number, and 5 of a tag or a length. */
#define NUMBER 10
#define SHORT  5

static enum pst_status scan_varint(struct scan *s, unsigned max, uint64_t *ret)
{
    uint64_t value = 0;

    for (unsigned shift = 0; shift < 7 * max; shift += 7) {
        if (s->at == s->end)
            return report_damage(s, "it ends within a number");
        if (shift < 64)
            value |= (uint64_t)(*s->at & 0x7f) << shift;
        if (!(*s->at++ & 0x80)) {
            *ret = value;
            return PST_OK;
        }
    }
    return report_damage(s, max == NUMBER
                                ? "a number of more than 10 bytes"
                                : "a tag or length of more than 5 bytes");
}

static enum pst_status scan_skip(struct scan *s, uint64_t n)
{
    if (n > (size_t)(s->end - s->at))
        return report_damage(s, "a field is longer than what holds it");
    s->at += n;
    return PST_OK;
}

static enum pst_status count_memory(struct scan *s, size_t fields, size_t bytes)
{
    s->fields = pst_size_add(s->fields, fields);
    s->bytes = pst_size_add(s->bytes, bytes);
    if (s->fields > s->limits->fields)
        return report_damage(s, "too many fields");
    return s->bytes > s->limits->bytes
               ? report_damage(s, "it takes too much memory for its size")
               : PST_OK;
}

static enum pst_status scan_message(struct scan *s,
                                    const ProtobufCMessageDescriptor *desc,
                                    unsigned depth);

/* Returns the bytes of an element of a packed list in memory; 0 if the type
 * cannot be packed. */
static size_t element_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_INT64:
    case PROTOBUF_C_TYPE_SINT64:
    case PROTOBUF_C_TYPE_UINT64:
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_STRING:
    case PROTOBUF_C_TYPE_BYTES:
    case PROTOBUF_C_TYPE_MESSAGE:
        return 0;
    default:
        return 4;
    }
}

/* Returns the encoded size of a fixed-size number; 0 for a varint. */
static size_t fixed_size(ProtobufCType type)
{
    switch (type) {
    case PROTOBUF_C_TYPE_FIXED64:
    case PROTOBUF_C_TYPE_SFIXED64:
    case PROTOBUF_C_TYPE_DOUBLE:
        return 8;
    case PROTOBUF_C_TYPE_FIXED32:
    case PROTOBUF_C_TYPE_SFIXED32:
    case PROTOBUF_C_TYPE_FLOAT:
        return 4;
    default:
        return 0;
    }
}

/* True if protobuf-c accepts this wire type for the field: it would refuse
 * another only after unpacking everything before it. */
static bool is_of_type(const ProtobufCFieldDescriptor *field, unsigned wire)
{
    const size_t item = element_size(field->type);
    const size_t fixed = fixed_size(field->type);

    if (item == 0)
        return wire == 2;
    if (wire == 2)
        return field->label == PROTOBUF_C_LABEL_REPEATED;
    return wire == (fixed == 8 ? 1 : fixed == 4 ? 5 : 0);
}

/* Counts the elements of a packed list. A varint has at least one byte, and
 * only its last one is below 0x80. */
static enum pst_status count_packed(struct scan *s, const unsigned char *p,
                                    size_t n, ProtobufCType type, size_t *ret)
{
    const unsigned char *end = s->end;
    enum pst_status status = PST_OK;
    const size_t item = fixed_size(type);
    uint64_t value;

    *ret = n / PST_MAX(item, (size_t)1);
    if (item > 0)
        return n % item == 0 ? PST_OK
                             : report_damage(s, "a list ends within a number");
    s->at = p;
    s->end = p + n;
    for (*ret = 0; s->at < s->end && status == PST_OK; (*ret)++)
        status = scan_varint(s, NUMBER, &value);
    s->end = end;
    return status;
}

static enum pst_status scan_child(struct scan *s,
                                  const ProtobufCMessageDescriptor *desc,
                                  size_t n, unsigned depth)
{
    const unsigned char *end = s->end;
    enum pst_status status;

    if (n == 0 && ++s->empty > s->limits->empty)
        return report_damage(s, "too many empty messages");
    status = count_memory(s, 0, desc->sizeof_message + BLOCK);
    if (status != PST_OK)
        return status;
    s->end = s->at + n;
    status = scan_message(s, desc, depth + 1);
    s->end = end;
    return status;
}

/* Checks a length-delimited field. field: NULL if the descriptor lacks it. */
static enum pst_status scan_bytes(struct scan *s,
                                  const ProtobufCFieldDescriptor *field,
                                  unsigned depth)
{
    uint64_t n = 0;
    enum pst_status status = scan_varint(s, SHORT, &n);
    const unsigned char *at = s->at, *behind;
    size_t item, elements;

    if (status == PST_OK)
        status = scan_skip(s, n);
    if (status != PST_OK)
        return status;
    if (field != NULL && field->type == PROTOBUF_C_TYPE_MESSAGE) {
        s->at = at;
        return scan_child(s, field->descriptor, n, depth);
    }
    /* protobuf-c would end the text at a NUL, and drop what follows. */
    if (field != NULL && field->type == PROTOBUF_C_TYPE_STRING && n > 0 &&
        memchr(at, '\0', (size_t)n) != NULL)
        return report_damage(s, "a text that contains a NUL byte");
    item = field != NULL ? element_size(field->type) : 0;
    if (item == 0)
        return count_memory(s, 0, n + 1 + BLOCK);
    behind = s->at;
    status = count_packed(s, at, n, field->type, &elements);
    s->at = behind;
    return status == PST_OK
               ? count_memory(s, elements, pst_size_mul(elements, item) + BLOCK)
               : status;
}

/* True if a singular message field has occurred before; not known for fields
 * after the first 64 of the descriptor. */
static bool is_repeated(const ProtobufCMessageDescriptor *desc,
                        const ProtobufCFieldDescriptor *field, uint64_t *seen)
{
    const size_t i = (size_t)(field - desc->fields);
    const uint64_t bit = (uint64_t)1 << (i & 63);

    if (field->type != PROTOBUF_C_TYPE_MESSAGE ||
        field->label == PROTOBUF_C_LABEL_REPEATED || i > 63)
        return false;
    if (*seen & bit)
        return true;
    *seen |= bit;
    return false;
}

static enum pst_status scan_field(struct scan *s,
                                  const ProtobufCMessageDescriptor *desc,
                                  unsigned depth, uint64_t *seen)
{
    const ProtobufCFieldDescriptor *field;
    uint64_t tag = 0;
    enum pst_status status = scan_varint(s, SHORT, &tag);

    if (status != PST_OK)
        return status;
    if (tag >> 3 == 0 || tag >> 3 >= 1u << 29)
        return report_damage(s, "a field number out of range");
    field = protobuf_c_message_descriptor_get_field(desc, (unsigned)(tag >> 3));
    if (field == NULL && ++s->unknown > s->limits->unknown)
        return report_damage(s, "too many unknown fields");
    if (field != NULL && is_repeated(desc, field, seen))
        return report_damage(s, "a message stands twice where one belongs");
    if (field != NULL && !is_of_type(field, tag & 7))
        return report_damage(s, "a field of another kind than it has");
    /* Heap bytes: a slot in a list, or the record of an unknown field. */
    status = count_memory(s, 1, field == NULL ? 40 : 8);
    if (status != PST_OK)
        return status;
    switch (tag & 7) {
    case 0:
        return scan_varint(s, NUMBER, &tag);
    case 1:
        return scan_skip(s, 8);
    case 2:
        return scan_bytes(s, field, depth);
    case 5:
        return scan_skip(s, 4);
    default:
        return report_damage(s, "an unknown kind of field");
    }
}

static enum pst_status scan_message(struct scan *s,
                                    const ProtobufCMessageDescriptor *desc,
                                    unsigned depth)
{
    enum pst_status status = PST_OK;
    uint64_t seen = 0;
    size_t notes = 0;

    if (depth > s->limits->depth)
        return report_damage(s, "nested too deep");
    for (; s->at < s->end && status == PST_OK; notes += NOTE)
        status = scan_field(s, desc, depth, &seen);
    if (status != PST_OK)
        return status;
    /* protobuf-c frees the records of fields only after the message is
     * unpacked. */
    return pst_size_add(s->bytes, notes) > s->limits->bytes
               ? report_damage(s, "it takes too much memory for its size")
               : PST_OK;
}

enum pst_status pst_wire_scan(const ProtobufCMessageDescriptor *descriptor,
                              const void *data, size_t size,
                              const struct pst_wire_limits *limits,
                              struct pst_diag *diag)
{
    struct scan s = {.at = data, .limits = limits, .diag = diag};

    if (size == 0)
        return PST_OK;
    s.end = s.at + size;
    return scan_message(&s, descriptor, 0);
}
