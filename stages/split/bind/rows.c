// SPDX-License-Identifier: Apache-2.0
#include "stages/split/bind/rows.h"

#include <string.h>

enum pst_status pst_plan_find_input(struct pst_plan *plan, const char *option,
                                    const char *name, size_t len,
                                    struct pst_plan_input **ret,
                                    struct pst_diag *diag)
{
    struct pst_str names = {0};

    for (size_t i = 0; i < plan->inputs.n; i++) {
        struct pst_plan_input *input = &plan->inputs.at[i];

        if (strlen(input->name) == len && memcmp(input->name, name, len) == 0) {
            pst_str_fini(&names);
            *ret = input;
            return PST_OK;
        }
        pst_str_addf(&names, "%s%.60s", i > 0 ? ", " : "", input->name);
    }
    (void)pst_diag_set(diag, PST_E_SIZE_OPTION,
                       "%s %.100s: the model has no input \"%.*s\"; it has "
                       "%.600s",
                       option, name, (int)PST_MIN(len, (size_t)60), name,
                       pst_str_text(&names));
    pst_str_fini(&names);
    return PST_ERR_USAGE;
}

enum pst_status pst_plan_chunk(struct pst_plan *plan, const char *spec,
                               struct pst_diag *diag)
{
    const char *equal = strrchr(spec, '=');
    struct pst_plan_input *input;
    enum pst_status status;
    int64_t dim = -1;

    if (equal == NULL || (strcmp(equal + 1, "replicate") != 0 &&
                          (!pst_parse_i64(equal + 1, &dim) || dim < 0)))
        return pst_diag_set(diag, PST_E_SIZE_OPTION,
                            "--chunk %.100s: expected NAME=DIMENSION or "
                            "NAME=replicate",
                            spec);
    status = pst_plan_find_input(plan, "--chunk", spec, (size_t)(equal - spec),
                                 &input, diag);
    if (status != PST_OK)
        return status;
    if (dim >= (int64_t)input->meta.rank)
        return pst_diag_set(diag, PST_E_SIZE_OPTION,
                            "--chunk %.100s: the input has %u dimensions%s",
                            spec, input->meta.rank,
                            input->meta.rank == 0 ? " (replicate it)" : "");
    input->chunk = (int)dim;
    return PST_OK;
}

const char *pst_row_expr(const struct pst_plan_input *input)
{
    return input->chunk < 0 || input->dims == NULL ? NULL
                                                   : input->dims[input->chunk];
}

const struct pst_plan_input *pst_row_input(const struct pst_plan *plan)
{
    const struct pst_plan_input *found[3] = {NULL, NULL, NULL};

    for (size_t i = plan->inputs.n; i-- > 0;) {
        const struct pst_plan_input *input = &plan->inputs.at[i];
        const char *expr = pst_row_expr(input);

        if (input->chunk < 0)
            continue;
        found[2] = input;
        if (expr != NULL)
            found[1] = input;
        if (expr != NULL && pst_symbols_find(&plan->symbols, expr) != NULL)
            found[0] = input;
    }
    return found[0] != NULL ? found[0] : found[1] != NULL ? found[1] : found[2];
}

int64_t pst_plan_rows(const struct pst_plan *plan)
{
    const struct pst_plan_input *input = pst_row_input(plan);

    return input == NULL ? 1 : input->meta.size[input->chunk];
}

bool pst_plan_is_free(const struct pst_plan *plan)
{
    const struct pst_plan_input *input = pst_row_input(plan);

    return input != NULL && pst_row_expr(input) != NULL && plan->fixed == NULL;
}

/* Returns the size expressions of an output; NULL if it has none. */
static const char *const *output_dims(const struct pst_plan *plan,
                                      const struct pst_plan_output *o)
{
    if (!o->is_tensor)
        return NULL;
    if (o->stage < 0)
        return plan->inputs.at[o->output].dims;
    return plan->stages.at[o->stage]
        .graph->outputs.at[o->output]
        .arg.value->dims;
}

/* Guesses which dimension has the rows: `chunk` if it is 0 or has this many
 * rows, else the only dimension that has, else 0. */
static unsigned guess_dim(const struct pst_meta *meta, unsigned chunk,
                          int64_t rows)
{
    unsigned found = 0, n = 0;

    if (chunk == 0 || (chunk < meta->rank && meta->size[chunk] == rows))
        return chunk;
    for (unsigned d = 0; d < meta->rank; d++)
        if (meta->size[d] == rows) {
            found = d;
            n++;
        }
    return n == 1 ? found : 0;
}

/* Sets *ret to true if the size expression `dim` contains a symbol of
 * `rows`. */
static enum pst_status depends_on_rows(const char *dim,
                                       const struct pst_symbols *rows,
                                       bool *ret, struct pst_diag *diag)
{
    struct pst_symbols of;
    enum pst_status status;

    *ret = false;
    if (dim == NULL)
        return PST_OK;
    pst_symbols_init(&of);
    status = pst_symbols_declare(&of, dim, diag);
    for (size_t i = 0; status == PST_OK && i < rows->at.n; i++)
        *ret = *ret || pst_symbols_find(&of, rows->at.at[i].name) != NULL;
    pst_symbols_fini(&of);
    return status;
}

/* Finds the first dimension whose size depends on a symbol of `expr`, the
 * number of rows. */
static enum pst_status find_row_dim(const char *const *dims, unsigned rank,
                                    const char *expr, unsigned *ret,
                                    bool *found, struct pst_diag *diag)
{
    struct pst_symbols rows;
    enum pst_status status;

    *found = false;
    pst_symbols_init(&rows);
    status = pst_symbols_declare(&rows, expr, diag);
    for (unsigned d = 0; d < rank && status == PST_OK && !*found; d++) {
        status = depends_on_rows(dims[d], &rows, found, diag);
        if (*found)
            *ret = d;
    }
    pst_symbols_fini(&rows);
    return status;
}

enum pst_status pst_plan_output_dim(const struct pst_plan *plan, size_t output,
                                    unsigned *ret, bool *ret_rows,
                                    struct pst_diag *diag)
{
    const struct pst_plan_output *o = &plan->outputs.at[output];
    const char *const *dims = output_dims(plan, o);
    const struct pst_plan_input *input = pst_row_input(plan);
    const int64_t rows = pst_plan_rows(plan);
    enum pst_status status = PST_OK;
    bool found = false;

    *ret = 0;
    if (!o->is_tensor || input == NULL || o->meta.rank == 0) {
        found = false;
    } else if (o->stage < 0) {
        found = plan->inputs.at[o->output].chunk >= 0;
        *ret = found ? (unsigned)plan->inputs.at[o->output].chunk : 0;
    } else {
        if (dims != NULL && pst_row_expr(input) != NULL)
            status = find_row_dim(dims, o->meta.rank, pst_row_expr(input), ret,
                                  &found, diag);
        if (!found && !pst_plan_is_free(plan)) {
            *ret = guess_dim(&o->meta, (unsigned)input->chunk, rows);
            found = true;
        }
    }
    if (ret_rows != NULL)
        *ret_rows = found && o->meta.size[*ret] == rows;
    return status;
}
