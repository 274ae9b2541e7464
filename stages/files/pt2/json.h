// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FILES_PT2_JSON_H
#define PENSTOCK_STAGES_FILES_PT2_JSON_H
/*
 * Checked access to JSON: caps on size and depth, no duplicate keys, exact
 * 64-bit integers. Messages say where ("the signature"). Only the readers of
 * documents see a json_t, which is borrowed from the parsed text. One thread.
 */
#include "stages/base/diag.h"
#include "stages/base/macros.h"

#include <jansson.h>
#include <stdbool.h>

#define PST_JSON_MAX_DEPTH 64

/* Parses text (len bytes, NUL behind them); `what` names it in messages.
 * Release with json_decref. */
enum pst_status pst_json_parse(const char *what, const char *text, size_t len,
                               json_t **ret,
                               struct pst_diag *diag) PST_MUST_CHECK;

/* Member of an object; NULL with a message if it is missing or of another
 * type. where names the object, "the signature". */
json_t *pst_json_member(const json_t *object, const char *key, json_type type,
                        const char *where, struct pst_diag *diag);
/* Text of a member; NULL as above. */
const char *pst_json_text(const json_t *object, const char *key,
                          const char *where, struct pst_diag *diag);
/* {"tag": payload}: the tag, NULL unless it is an object with one key. */
const char *pst_json_union(const json_t *object, json_t **payload,
                           const char *where, struct pst_diag *diag);
/* Number, or one of the strings "Infinity", "-Infinity", "NaN". */
bool pst_json_double(const json_t *json, double *ret);

#endif
