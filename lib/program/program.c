// SPDX-License-Identifier: Apache-2.0
/* Opens programs. */
#include "lib/program/program.h"

#include <string.h>

#include "daemon/common/setup.h"
#include "stages/base/alloc.h"
#include "stages/ops/core/op.h"

#define TAG PST_TAG_CLIENT

/* Reads the options of the optimizer; without "optimizer" there is none. */
static enum pst_status read_options(penstock_program *p,
                                    const struct penstock_program_config *c,
                                    struct pst_diag *diag)
{
    static const struct penstock_option none = {"optimizer", "none"};
    enum pst_status status = pstd_config_init(&p->config, diag);

    if (status == PST_OK)
        status = pstl_options_set(&p->config, PSTL_PROGRAM, &none, 1, diag);
    if (status == PST_OK)
        status = pstl_options_set(&p->config, PSTL_PROGRAM, c->options,
                                  c->n_options, diag);
    if (status == PST_OK)
        status = pstd_exec_options(&p->config, 1, true, &p->exec, diag);
    if (status != PST_OK)
        return status;
    p->options.train = p->text->backward;
    if (p->exec.optim.row == NULL)
        return PST_OK;
    p->options.optim = &p->exec.optim;
    return p->options.train
               ? PST_OK
               : pst_diag_set(diag, PST_E_LIBRARY_OPTION,
                              "an optimizer needs gradients, and the program "
                              "has no \"backward\": true");
}

static enum pst_status open_program(penstock_program *p, const char *text,
                                    size_t size,
                                    const struct penstock_program_config *c,
                                    struct pst_diag *diag)
{
    enum pst_status status = pst_alias_text_parse(text, size, &p->text, diag);
    size_t n;

    if (status == PST_OK)
        status = read_options(p, c, diag);
    if (status == PST_OK)
        status =
            pst_caller_new(&p->text->program, &p->options, &p->caller, diag);
    if (status != PST_OK)
        return status;
    n = p->text->n_operands + 1;
    p->operands = pst_calloc(TAG, n, sizeof(*p->operands));
    p->numbers = pst_calloc(TAG, n, sizeof(*p->numbers));
    p->views = pst_calloc(TAG, n, sizeof(*p->views));
    p->placed = pst_calloc(TAG, n, sizeof(*p->placed));
    p->storages = pst_calloc(TAG, n, sizeof(*p->storages));
    p->read_only = pst_calloc(TAG, n, sizeof(*p->read_only));
    p->after = pst_calloc(TAG, n, sizeof(*p->after));
    p->grads = pst_calloc(TAG, n, sizeof(*p->grads));
    p->returns =
        pst_calloc(TAG, p->text->program.n_returns + 1, sizeof(*p->returns));
    return p->operands != NULL && p->numbers != NULL && p->views != NULL &&
                   p->placed != NULL && p->storages != NULL &&
                   p->read_only != NULL && p->after != NULL &&
                   p->grads != NULL && p->returns != NULL
               ? PST_OK
               : pst_diag_nomem(diag, n * sizeof(*p->operands));
}

static void free_program(penstock_program *p)
{
    if (p->returns != NULL)
        pstl_results_free(p);
    pst_free(p->returns);
    pst_free(p->grads);
    pst_free(p->after);
    pst_free(p->read_only);
    pst_free(p->storages);
    pst_free(p->placed);
    pst_free(p->views);
    pst_free(p->numbers);
    pst_free(p->operands);
    pst_caller_free(p->caller);
    pst_alias_text_free(p->text);
    pstd_config_fini(&p->config);
    pst_free(p);
    pst_registry_release();
}

int penstock_program_open(const char *text, size_t size,
                          const struct penstock_program_config *config,
                          penstock_program **ret, struct penstock_error *error)
{
    struct penstock_program_config c;
    penstock_program *p = NULL;
    struct pst_diag diag;
    enum pst_status status;

    pst_diag_init(&diag);
    status = pstl_read_struct("struct penstock_program_config", config, &c,
                              sizeof(c), &diag);
    if (status == PST_OK && (text == NULL || ret == NULL))
        status = pst_diag_set(&diag, PST_E_LIBRARY_ARGUMENT, "%s is NULL",
                              text == NULL ? "text" : "ret");
    if (status == PST_OK) {
        p = pst_calloc(TAG, 1, sizeof(*p));
        status = p == NULL ? pst_diag_nomem(&diag, sizeof(*p))
                           : pst_registry_hold(&diag);
    }
    if (status != PST_OK) {
        pst_free(p);
        return pstl_return(status, &diag, error);
    }
    atomic_flag_clear(&p->busy);
    p->messages = (struct pstl_messages){c.message, c.message_ctx};
    pstl_receive_log(&p->messages);
    status = open_program(p, text, size, &c, &diag);
    pstl_receive_log(NULL);
    if (status != PST_OK) {
        free_program(p);
        return pstl_return(status, &diag, error);
    }
    *ret = p;
    return 0;
}

void penstock_program_close(penstock_program *program)
{
    if (program != NULL)
        free_program(program);
}

enum pst_status pstl_program_acquire(penstock_program *program,
                                     struct pst_diag *diag)
{
    enum pst_status status;

    pst_diag_init(diag);
    if (program == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the program is NULL");
    status = pstl_acquire(&program->busy, "program", diag);
    if (status == PST_OK)
        pstl_receive_log(&program->messages);
    return status;
}

int pstl_program_release(penstock_program *program, enum pst_status status,
                         const struct pst_diag *diag,
                         struct penstock_error *error)
{
    pstl_receive_log(NULL);
    pstl_release(&program->busy);
    return pstl_return(status, diag, error);
}

enum pst_status pstl_program_operand(const penstock_program *program,
                                     const char *name, unsigned *ret,
                                     struct pst_diag *diag)
{
    const struct pst_alias_text *text = program->text;

    if (name == NULL)
        return pst_diag_set(diag, PST_E_LIBRARY_ARGUMENT,
                            "the name of an operand is NULL");
    for (unsigned i = 0; i < text->n_operands; i++)
        if (!text->operands[i].from_before &&
            strcmp(text->operands[i].as.name, name) == 0) {
            *ret = i;
            return PST_OK;
        }
    return pst_diag_set(diag, PST_E_LIBRARY_NAME,
                        "the program has no operand '%.200s'", name);
}
