// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_JSON_H
#define PENSTOCK_STAGES_FILES_PT2_JSON_H
/*
 * JSON parser for untrusted files: caps on size and depth, no duplicate keys,
 * exact 64-bit integers. Values are in an arena; the text is not needed
 * afterwards. Accessors treat NULL and values of the wrong kind as empty: they
 * return NULL, 0 or false. Messages name the location ("the signature"). Only
 * the document readers and stages/alias use pst_json. One thread.
 */
#include "stages/base/arena.h"
#include "stages/base/diag.h"
#include "stages/base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PST_JSON_MAX_DEPTH 64

enum pst_json_kind {
    PST_JSON_OBJECT,
    PST_JSON_ARRAY,
    PST_JSON_STRING,
    PST_JSON_INTEGER,
    PST_JSON_REAL,
    PST_JSON_BOOL,
    PST_JSON_NULL,
};

struct pst_json {
    enum pst_json_kind kind;
    uint32_t n;      /* number of elements or members */
    const char *key; /* key, if the value is a member of an object */
    union {
        int64_t integer;
        double real;
        bool boolean;
        const char *text;
        /* elements, or members in the order of the text */
        const struct pst_json *at;
    };
    /* hash table of a large object: index of a member, plus 1 */
    const uint32_t *slots;
};

/* Parses text (len bytes, followed by NUL); `what` names it in messages. */
enum pst_status pst_json_parse(const char *what, const char *text, size_t len,
                               struct pst_arena *arena,
                               const struct pst_json **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Builds the hash table of an object that the parser has read. PST_ERR_INPUT: a
 * duplicate key. */
enum pst_status pst_json_index(struct pst_json *object,
                               struct pst_arena *arena) PST_MUST_CHECK;

bool pst_json_is(const struct pst_json *json, enum pst_json_kind kind);
/* Return the number of elements of an array, and of members of an object. */
size_t pst_json_length(const struct pst_json *array);
size_t pst_json_members(const struct pst_json *object);
/* Return an element by its index, and a member by its key. */
const struct pst_json *pst_json_at(const struct pst_json *array, size_t i);
const struct pst_json *pst_json_get(const struct pst_json *object,
                                    const char *key);
/* Returns the member after `last`, or the first member if last is NULL. Returns
 * NULL after the last member. */
const struct pst_json *pst_json_next(const struct pst_json *object,
                                     const struct pst_json *last);
const char *pst_json_string(const struct pst_json *json);
int64_t pst_json_integer(const struct pst_json *json);
bool pst_json_true(const struct pst_json *json);
bool pst_json_false(const struct pst_json *json);
/* Accepts a number, or one of the strings "Infinity", "-Infinity", "NaN". */
bool pst_json_double(const struct pst_json *json, double *ret);

/* Returns a member of an object; NULL with a message if it is missing or has
 * another kind. where: the object in messages, such as "the signature". */
const struct pst_json *pst_json_member(const struct pst_json *object,
                                       const char *key, enum pst_json_kind kind,
                                       const char *where,
                                       struct pst_diag *diag);
/* Returns the text of a member; NULL in the cases in which pst_json_member
 * returns NULL. */
const char *pst_json_text(const struct pst_json *object, const char *key,
                          const char *where, struct pst_diag *diag);
/* Returns the tag of a union {"tag": payload}; NULL unless it is an object with
 * one key. */
const char *pst_json_union(const struct pst_json *object,
                           const struct pst_json **payload, const char *where,
                           struct pst_diag *diag);

#endif
