// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_STR_H
#define PENSTOCK_STAGES_BASE_STR_H
/* Text that grows, strict number parsing, near names for messages. */
#include "stages/base/alloc.h"

/* Zero-initialised is the empty text. A failed append sets `failed` and all
 * later ones do nothing, so that callers check once at the end. */
struct pst_str {
    char *text; /* NUL-terminated, or NULL while empty */
    size_t len, cap;
    int failed;
};

void pst_str_fini(struct pst_str *s);
void pst_str_add(struct pst_str *s, const char *text);
void pst_str_addn(struct pst_str *s, const char *text, size_t len);
void pst_str_addf(struct pst_str *s, const char *fmt, ...) PST_PRINTF(2, 3);
/* JSON string with quotes; control characters and quotes escaped. */
void pst_str_add_json(struct pst_str *s, const char *text);
/* logfmt value: quoted and escaped where needed (operations C). */
void pst_str_add_logfmt(struct pst_str *s, const char *text);
/* The text or "" (never NULL). */
const char *pst_str_text(const struct pst_str *s);

/* Bytes of the UTF-8 character that text begins with; 0 at its end and if it
 * is no valid UTF-8 (overlong, surrogate, cut). */
size_t pst_utf8_length(const char *text);

/* Whole text must be the number, in range; 0 on failure. */
int pst_parse_i64(const char *text, int64_t *ret) PST_MUST_CHECK;
int pst_parse_f64(const char *text, double *ret) PST_MUST_CHECK;

/* Shortest decimal text that reads back as the same double; Infinity, NaN. */
void pst_format_f64(double x, char out[32]);

/* Index of the name nearest to `text` by edit distance, -1 if none is near. */
int pst_nearest(const char *text, const char *const *names, size_t n);

int pst_has_prefix(const char *text, const char *prefix);
int pst_has_suffix(const char *text, const char *suffix);

/* XXH3-64, for comparisons within a job. */
uint64_t pst_hash(const void *data, size_t len, uint64_t seed);
/* XXH3-128 as 32 hexadecimal digits and NUL. */
void pst_digest(const void *data, size_t len, char out[33]);
/* 16 bytes as 32 hexadecimal digits and NUL. */
void pst_digest_text(const unsigned char bytes[16], char out[33]);

#endif
