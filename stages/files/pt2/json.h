// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_JSON_H
#define PENSTOCK_STAGES_FILES_PT2_JSON_H
/*
 * JSON of untrusted files: caps on size and depth, no duplicate keys, exact
 * 64-bit integers. What is read lies in an arena; the text is not needed
 * afterwards. Functions that look take NULL, and anything else of the wrong
 * kind, as empty: they give NULL, 0 or false. Messages say where ("the
 * signature"). Only the readers of documents see a pst_json. One thread.
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
    uint32_t n;      /* elements or members */
    const char *key; /* of a member */
    union {
        int64_t integer;
        double real;
        bool yes;
        const char *text;
        const struct pst_json *at; /* elements; members in the text's order */
    };
    const uint32_t *slots; /* of many members: their numbers by hash, plus 1 */
};

/* Parses text (len bytes, NUL behind them); `what` names it in messages. */
enum pst_status pst_json_parse(const char *what, const char *text, size_t len,
                               struct pst_arena *arena,
                               const struct pst_json **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Of the parser: makes members findable. PST_ERR_INPUT: two have one key. */
enum pst_status pst_json_index(struct pst_json *object,
                               struct pst_arena *arena) PST_MUST_CHECK;

bool pst_json_is(const struct pst_json *json, enum pst_json_kind kind);
/* Number of elements of an array, of members of an object. */
size_t pst_json_length(const struct pst_json *array);
size_t pst_json_members(const struct pst_json *object);
/* An element; a member by its key. */
const struct pst_json *pst_json_at(const struct pst_json *array, size_t i);
const struct pst_json *pst_json_get(const struct pst_json *object,
                                    const char *key);
/* The member behind `last`, NULL for the first; NULL behind the last. */
const struct pst_json *pst_json_next(const struct pst_json *object,
                                     const struct pst_json *last);
const char *pst_json_string(const struct pst_json *json);
int64_t pst_json_integer(const struct pst_json *json);
bool pst_json_true(const struct pst_json *json);
bool pst_json_false(const struct pst_json *json);
/* Number, or one of the strings "Infinity", "-Infinity", "NaN". */
bool pst_json_double(const struct pst_json *json, double *ret);

/* Member of an object; NULL with a message if it is missing or of another
 * kind. where names the object, "the signature". */
const struct pst_json *pst_json_member(const struct pst_json *object,
                                       const char *key, enum pst_json_kind kind,
                                       const char *where,
                                       struct pst_diag *diag);
/* Text of a member; NULL as above. */
const char *pst_json_text(const struct pst_json *object, const char *key,
                          const char *where, struct pst_diag *diag);
/* {"tag": payload}: the tag, NULL unless it is an object with one key. */
const char *pst_json_union(const struct pst_json *object,
                           const struct pst_json **payload, const char *where,
                           struct pst_diag *diag);

#endif
