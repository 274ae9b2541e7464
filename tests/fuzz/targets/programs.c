// SPDX-License-Identifier: Apache-2.0
/* Fuzz target for programs on operands that share memory. */
#include "stages/alias/text.h"
#include "stages/ops/core/op.h"
#include "tests/fuzz/targets/target.h"

#include <string.h>

#define MOST_OPERANDS 16u
#define MOST_OPS      64u

/* Binds the program to operands of 2 x 3 elements, of which each begins in the
 * middle of the one before it. */
static void bind(const struct pst_alias_text *text)
{
    static const int64_t sizes[] = {2, 3};
    struct pst_alias_program_operand operands[MOST_OPERANDS];
    struct pst_alias_program_bound *bound = NULL;
    struct pst_diag diag;
    enum pst_status status;

    if (text->n_operands > MOST_OPERANDS ||
        text->program.n_ops + text->program.n_before > MOST_OPS)
        return;
    pst_diag_init(&diag);
    for (unsigned i = 0; i < text->n_operands; i++) {
        const enum pst_dtype dtype =
            text->dtypes[i] != PST_N_DTYPES ? text->dtypes[i] : PST_F32;

        operands[i] = text->operands[i];
        operands[i].as.meta = pst_meta_make(dtype, 2, sizes);
        operands[i].as.offset = operands[i].from_before ? 0 : 2 * (int64_t)i;
    }
    status = pst_alias_program_bind(&text->program, operands, text->n_operands,
                                    &bound, &diag);
    if (status != PST_OK)
        (void)fuzz_refused(status, &diag);
    else
        pst_alias_program_bound_free(bound);
}

bool fuzz_program(const uint8_t *data, size_t size)
{
    struct pst_alias_text *text = NULL;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pst_registry_init(&diag);
    if (status == PST_OK)
        status = pst_alias_text_parse((const char *)data, size, &text, &diag);
    if (status != PST_OK)
        return fuzz_refused(status, &diag);
    fuzz_check(text->n_args <= text->n_operands, "arguments");
    for (unsigned i = 0; i < text->n_operands; i++)
        fuzz_check(text->operands[i].as.name[0] != '\0' &&
                       strlen(text->operands[i].as.name) <= PST_ALIAS_TEXT_NAME,
                   "an operand has no name");
    bind(text);
    pst_alias_text_free(text);
    return true;
}
