// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_FRONTEND_IMPORT_MODEL_JSON_H
#define PENSTOCK_STAGES_FRONTEND_IMPORT_MODEL_JSON_H
/*
 * Checked access to the JSON documents of a .pt2: caps on size and depth, no
 * duplicate keys, exact 64-bit integers. Messages say where ("node \"add\"").
 * Returned json_t are borrowed from the document. One thread.
 */
#include "stages/base/arena.h"
#include "stages/graph/symbol.h"
#include "stages/graph/tensor.h"

#include <jansson.h>

#define PST_JSON_MAX_BYTES ((uint64_t)512 << 20)
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

/* SymInt: {"as_int": n} or a bare integer; false if it is symbolic or wrong. */
bool pst_json_static_int(const json_t *json, int64_t *ret);

/* {"expr_str": text}: its value and the text that symbol.h prints, in the
 * arena. symbols may be NULL: there are none then. */
enum pst_status pst_json_expr(const json_t *json,
                              const struct pst_symbols *symbols,
                              struct pst_arena *arena, const char *where,
                              const char **ret_text, struct pst_number *ret,
                              struct pst_diag *diag) PST_MUST_CHECK;

/* complex64 or complex128, and the dtype of its two parts. */
bool pst_json_is_complex(int64_t code, enum pst_dtype *ret_part);

struct pst_json_tensor {
    struct pst_meta meta; /* strides as written; complex: see below */
    int64_t offset;       /* elements */
    bool requires_grad;
    bool symbolic;                  /* some of dims are not NULL */
    const char *dims[PST_MAX_RANK]; /* where sizes come from */
};

/* TensorMeta, checked (complex numbers become pairs of real ones, along one
 * more dimension, the last): known dtype, rank, sizes, strides and products in
 * range, strided layout. Symbolic sizes get the values of `symbols` (NULL:
 * there are none), their texts live in the arena. */
enum pst_status pst_json_tensor(const json_t *json, const char *where,
                                const struct pst_symbols *symbols,
                                struct pst_arena *arena,
                                struct pst_json_tensor *ret,
                                struct pst_diag *diag) PST_MUST_CHECK;
/* "complex64" for code 10, for messages. */
const char *pst_json_dtype_name(int64_t code);

#endif
