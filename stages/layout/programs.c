// SPDX-License-Identifier: Apache-2.0
#include "stages/layout/programs.h"

enum pst_status pst_programs_init(struct pst_programs *programs,
                                  unsigned n_stages, struct pst_diag *diag)
{
    programs->n_stages = n_stages;
    programs->at = pst_calloc(PST_TAG_EXEC, n_stages, sizeof(void *[4]));
    return programs->at != NULL
               ? PST_OK
               : pst_diag_nomem(diag, n_stages * sizeof(void *[4]));
}

void pst_programs_fini(struct pst_programs *programs)
{
    for (unsigned i = 0; programs->at != NULL && i < 4 * programs->n_stages;
         i++)
        pst_program_free(programs->at[i]);
    pst_free(programs->at);
    programs->at = NULL;
}

void pst_programs_drop_failed(struct pst_programs *programs)
{
    for (unsigned i = 0; i < 4 * programs->n_stages; i++) {
        if (programs->at[i] == NULL || pst_program_is_compiled(programs->at[i]))
            continue;
        pst_program_free(programs->at[i]);
        programs->at[i] = NULL;
    }
}
