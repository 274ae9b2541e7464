// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_ALIAS_CASE_H
#define PENSTOCK_TESTS_ALIAS_CASE_H
/*
 * Reads one program of a file of cases (stages/alias/text.h), and its storages
 * and windows. tests/alias/README.md describes the format. A malformed case
 * fails; the others still run.
 */
#include "stages/alias/call.h"
#include "stages/alias/text.h"
#include "tests/test.h"

#include <jansson.h>

#define CASE_MAX 64

struct alias_case {
    const json_t *json;
    struct pst_arena arena;
    struct pst_alias_text *text; /* NULL: malformed */
    struct pst_alias_program program;
    struct pst_alias_program_operand operands[CASE_MAX];
    /* The first n_args operands are the arguments of the call; only the
     * operators in `before` use the others. */
    unsigned n_operands, n_args;
    const char *storage_names[CASE_MAX];
    enum pst_dtype storage_dtypes[CASE_MAX];
    struct pst_call_storage storages[CASE_MAX];
    unsigned n_storages;
    char fault[200]; /* why the case is malformed; "": it is not */
};

/* Release with alias_case_fini(), even if `fault` is set. */
void alias_case_init(struct alias_case *c, const json_t *json);
void alias_case_fini(struct alias_case *c);
/* Overwrites storages. values: an object {storage: [number, ...]}. */
void alias_case_overwrite(struct alias_case *c, const json_t *values);
int alias_case_storage(const struct alias_case *c, const char *name);
double alias_number(const json_t *x);
const char *alias_text(const json_t *object, const char *key);
unsigned alias_ints(const json_t *list, int64_t ret[PST_MAX_RANK]);

/* --- check.c -------------------------------------------------------------- */

struct alias_verdict {
    char text[600];   /* the first difference; "": none */
    char refusal[32]; /* name of the refusal; "": not refused */
    unsigned bases;   /* bases in the plan, if not refused */
};

/* Runs the case and compares the results with those that it expects. */
void alias_case_check(struct alias_case *c, struct alias_verdict *ret);
/* Returns the key of the operands of the named case; false: no such case. */
bool alias_key_of(const json_t *cases, const char *name, uint64_t *ret);

#endif
