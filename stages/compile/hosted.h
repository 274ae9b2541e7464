// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_COMPILE_HOSTED_H
#define PENSTOCK_STAGES_COMPILE_HOSTED_H
/*
 * Calls that a device leaves to the host, since it has no kernel for them: each
 * launch copies the operands to the host and the results back. One list for the
 * programs of a rank. Any thread that has the programs.
 */
#include "stages/base/str.h"
#include "stages/base/vec.h"
#include "stages/compile/program.h"

/* Calls of one operator. Texts are owned by the programs. */
struct pst_hosted {
    const char *op;     /* name in the file: "aten.sort.default" */
    const char *source; /* first such call: "model.py:12" */
    /* Calls in forward and backward of one microbatch, plus those that a step
     * makes once. */
    unsigned calls;
    uint64_t bytes; /* bytes that these calls copy, in both directions */
};
struct pst_hosted_list {
    /* operators, in order of the first call */
    struct PST_VEC(struct pst_hosted) all;
};

/* Adds the calls of a compiled program that its device leaves to the host. */
enum pst_status pst_hosted_add(struct pst_hosted_list *list,
                               const struct pst_program *program,
                               struct pst_diag *diag) PST_MUST_CHECK;
/* True if the program's device leaves the call to the host. */
bool pst_hosted_is(const struct pst_program *program,
                   const struct pst_exec_node *x);
/* True if a device that records calls (struct pst_recorder) can record this
 * one: it has a kernel, and the kernel takes no argument by value that changes
 * from step to step. */
bool pst_hosted_can_record(const struct pst_exec_node *x);
/* Counts the calls of forward and backward of one microbatch, and those of them
 * that can be recorded. */
void pst_hosted_count(const struct pst_program *program, unsigned *ret_calls,
                      unsigned *ret_recorded);
/* Frees the list; {0} is accepted. */
void pst_hosted_fini(struct pst_hosted_list *list);
unsigned pst_hosted_calls(const struct pst_hosted_list *list);
uint64_t pst_hosted_bytes(const struct pst_hosted_list *list);
/* Appends "aten.sort.default (2 calls, 1.5 MiB copied, model.py:12), ..." */
void pst_hosted_print(const struct pst_hosted_list *list, struct pst_str *out);

#endif
