// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_TESTS_ALIAS_CASE_H
#define PENSTOCK_TESTS_ALIAS_CASE_H
/*
 * A program of a file of cases as penstock's program, with its storages. The
 * format is told in tests/alias/README.md. What is wrong with a case fails it,
 * and no other.
 */
#include "stages/alias/call.h"
#include "tests/test.h"

#include <jansson.h>

#define CASE_MAX 64

struct alias_case {
    const json_t *json;
    struct pst_arena arena;
    struct pst_program program;
    struct pst_program_operand operands[CASE_MAX];
    unsigned n_operands, n_args; /* leaves that only `before` reads come last */
    const char *storage_names[CASE_MAX];
    enum pst_dtype storage_dtypes[CASE_MAX];
    struct pst_call_storage storages[CASE_MAX];
    unsigned n_storages;
    char fault[200]; /* why it is no case; "": it is one */
};

/* To be ended by alias_case_fini() whatever `fault` says. */
void alias_case_init(struct alias_case *c, const json_t *json);
void alias_case_fini(struct alias_case *c);
/* Storages as they are at first, then what the run writes over them. */
void alias_case_overwrite(struct alias_case *c, const json_t *values);
int alias_case_storage(const struct alias_case *c, const char *name);
/* PST_N_DTYPES: it has no such name. */
enum pst_dtype alias_dtype(const char *torch);
double alias_number(const json_t *x);
const char *alias_text(const json_t *object, const char *key);
unsigned alias_ints(const json_t *list, int64_t ret[PST_MAX_RANK]);

/* --- check.c -------------------------------------------------------------- */

struct alias_verdict {
    char text[600];   /* the first thing that is wrong; "": nothing */
    char refusal[32]; /* the name with which it was refused; "": it was not */
    unsigned bases;   /* of its plan, if it was not */
};

/* Runs the case. */
void alias_case_check(struct alias_case *c, struct alias_verdict *ret);
/* Key of the operands of the case of that name; false: there is none. */
bool alias_key_of(const json_t *cases, const char *name, uint64_t *ret);

#endif
