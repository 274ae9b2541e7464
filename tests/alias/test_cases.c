// SPDX-License-Identifier: Apache-2.0
/*
 * usage: test-alias-cases [--table] FILE [NAME]...
 *
 * Runs the programs of a file (README.md has the format), prints what is wrong
 * with those that fail, and ends with "N passed, N failed". --table prints one
 * line per program instead, separated by tabs: its name, "equal", "wrong" or
 * the name of its refusal, and its bases.
 */
#include "tests/alias/case.h"

#include "stages/ops/core/op.h"

#include <stdio.h>
#include <string.h>

static bool is_selected(const char *name, int argc, char **argv)
{
    for (int i = 2; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc < 3;
}

/* Checks that calls with another sharing pattern get another plan. */
static void check_key(const json_t *cases, const json_t *json,
                      struct alias_verdict *verdict)
{
    const char *other =
        alias_text(json_object_get(json, "plan"), "not_plan_of");
    uint64_t own, theirs;

    if (other == NULL || alias_text(json, "name") == NULL ||
        !alias_key_of(cases, other, &theirs) ||
        !alias_key_of(cases, alias_text(json, "name"), &own))
        return;
    if (own == theirs && verdict->text[0] == '\0')
        (void)snprintf(verdict->text, sizeof(verdict->text),
                       "it would be served by the plan of %s", other);
}

static void print_row(const char *name, const struct alias_verdict *verdict)
{
    const char *outcome = verdict->refusal;

    if (verdict->text[0] != '\0')
        outcome = "wrong";
    else if (outcome[0] == '\0')
        outcome = "equal";
    (void)printf("%s\t%s\t%u\n", name, outcome, verdict->bases);
}

int main(int argc, char **argv)
{
    const bool table = argc > 1 && strcmp(argv[1], "--table") == 0;
    unsigned passed = 0, failed = 0;
    json_error_t error;
    struct pst_diag diag;
    json_t *cases, *json;
    size_t i;

    if (table) {
        argv++;
        argc--;
    }
    if (argc < 2) {
        (void)fprintf(stderr,
                      "usage: test-alias-cases [--table] FILE [NAME]...\n");
        return 64;
    }
    pst_diag_init(&diag);
    cases = json_load_file(argv[1], 0, &error);
    if (cases == NULL || pst_registry_init(&diag) != PST_OK) {
        (void)fprintf(stderr, "%s: %s\n", argv[1],
                      cases == NULL ? error.text : diag.text);
        json_decref(cases);
        return 65;
    }
    json_array_foreach(cases, i, json)
    {
        const char *name = alias_text(json, "name");
        struct alias_verdict verdict = {0};
        struct alias_case c;

        if (name == NULL)
            name = "";
        if (!is_selected(name, argc, argv))
            continue;
        alias_case_init(&c, json);
        (void)snprintf(verdict.text, sizeof(verdict.text), "%s", c.fault);
        if (c.fault[0] == '\0')
            alias_case_check(&c, &verdict);
        alias_case_fini(&c);
        check_key(cases, json, &verdict);
        if (table)
            print_row(name, &verdict);
        else if (verdict.text[0] != '\0')
            (void)printf("%s: %s\n", name, verdict.text);
        *(verdict.text[0] != '\0' ? &failed : &passed) += 1;
    }
    json_decref(cases);
    if (!table)
        (void)printf("%u passed, %u failed\n", passed, failed);
    return failed > 0 || passed == 0;
}
