// SPDX-License-Identifier: Apache-2.0
#include "daemon/ctl/plan/hosted.h"

#include <string.h>

#include "daemon/ctl/out.h"
#include "daemon/ctl/passes.h"
#include "daemon/ctl/print.h"
#include "stages/compile/hosted.h"
#include "stages/ops/devices.h"

#define MIB (1024.0 * 1024.0)

/* Adds the number of kernels of a stage, and the number that the device replays
 * from a recording. */
static void add_kernels(const struct pst_program *program,
                        const struct pst_exec_options *options,
                        struct pstctl_hosted *ret)
{
    unsigned calls, recorded;

    pst_hosted_count(program, &calls, &recorded);
    ret->kernels += calls;
    if (options->device->recorder != NULL && !options->no_graphs)
        ret->replayed += recorded;
}

/* Adds the hosted calls of one stage. Names of operators are copied, since
 * they belong to the stage's program, which is freed here. */
static enum pst_status add_stage(const struct pst_plan *plan, unsigned stage,
                                 const struct pst_exec_options *options,
                                 struct pstctl_hosted *ret,
                                 struct pst_diag *diag)
{
    struct pst_hosted_list list = {0};
    struct pst_program *program = NULL;
    enum pst_status status =
        pstctl_stage_compile(plan, stage, options, NULL, &program, diag);

    if (status == PST_OK)
        status = pst_hosted_add(&list, program, diag);
    if (status == PST_OK)
        add_kernels(program, options, ret);
    if (status == PST_OK && list.all.n > 0) {
        ret->calls += pst_hosted_calls(&list);
        ret->bytes += pst_hosted_bytes(&list);
        pst_str_addf(&ret->ops, "%sstage %u: ", ret->ops.len > 0 ? "; " : "",
                     stage);
        pst_hosted_print(&list, &ret->ops);
    }
    pst_hosted_fini(&list);
    pst_program_free(program);
    return status;
}

static enum pst_status find_rank(const struct pst_plan *plan,
                                 const struct pst_schedule *sched,
                                 unsigned rank,
                                 const struct pst_exec_options *options,
                                 bool refuse, struct pstctl_hosted *ret,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned s = 0; s < sched->n_stages && status == PST_OK; s++)
        if (sched->rank_of[s] == (int)rank)
            status = add_stage(plan, s, options, ret, diag);
    if (status == PST_OK && ret->ops.failed)
        status = pst_diag_nomem(diag, ret->ops.len);
    if (status == PST_OK && refuse && ret->calls > 0)
        status = pst_diag_set(diag, PST_E_DEVICE_FALLBACK,
                              "rank %u: the device %s has no kernel for these: "
                              "%s",
                              rank, ret->device, pst_str_text(&ret->ops));
    return status;
}

enum pst_status pstctl_hosted_find(const struct pstd_config *config,
                                   const struct pst_plan *plan,
                                   const struct pst_schedule *sched,
                                   const struct pst_exec_options *options,
                                   struct pstctl_hosted *ret,
                                   struct pst_diag *diag)
{
    enum pst_status status = PST_OK;

    for (unsigned r = 0; r < sched->n_ranks && status == PST_OK; r++) {
        struct pst_exec_options here = *options;

        status = pst_device_named(config->device, r, &here.device, diag);
        if (status == PST_OK && config->tf32)
            status = pst_device_refuse_tf32(here.device, r, diag);
        if (status != PST_OK)
            return status;
        ret[r].device = here.device->name;
        ret[r].tf32 = config->tf32;
        if (here.device->fallback != NULL)
            status = find_rank(plan, sched, r, &here, config->no_fallback,
                               &ret[r], diag);
    }
    return status;
}

void pstctl_hosted_print(const struct pstctl_hosted *hosted, unsigned ranks)
{
    const char *other = NULL;

    for (unsigned r = 0; r < ranks; r++) {
        const struct pstctl_hosted *h = &hosted[r];

        if (strcmp(h->device, pst_device_cpu.name) != 0)
            other = h->device;
        if (strcmp(h->device, pst_device_cpu.name) != 0)
            pstctl_printf(stdout,
                          "rank %u on %s: %u of %u kernels of a microbatch are "
                          "replayed as graphs\n",
                          r, h->device, h->replayed, h->kernels);
        if (h->tf32)
            pstctl_printf(stdout,
                          "rank %u on %s: cuBLASLt rounds operands of f32 "
                          "matmuls to TF32\n",
                          r, h->device);
        if (h->calls > 0)
            pstctl_printf(stdout,
                          "rank %u on %s: on the host, for lack of kernels: %u "
                          "call%s a microbatch, %.1f MiB copied:\n  %s\n",
                          r, h->device, h->calls, h->calls == 1 ? "" : "s",
                          (double)h->bytes / MIB, pst_str_text(&h->ops));
    }
    if (other != NULL)
        pstctl_printf(stdout,
                      "the times below are those of CPUs: the rates of %s are "
                      "not known\n",
                      other);
}

void pstctl_hosted_json(const struct pstctl_hosted *hosted, json_t *rank)
{
    (void)json_object_set_new(rank, "device", json_string(hosted->device));
    (void)json_object_set_new(rank, "tf32", json_boolean(hosted->tf32));
    (void)json_object_set_new(rank, "hosted_calls",
                              json_integer(hosted->calls));
    (void)json_object_set_new(rank, "hosted_bytes",
                              json_integer((json_int_t)hosted->bytes));
    (void)json_object_set_new(rank, "kernels", json_integer(hosted->kernels));
    (void)json_object_set_new(rank, "replayed_kernels",
                              json_integer(hosted->replayed));
    (void)json_object_set_new(rank, "hosted_ops",
                              pstctl_json_text(pst_str_text(&hosted->ops)));
}

void pstctl_hosted_free(struct pstctl_hosted *hosted, unsigned ranks)
{
    for (unsigned r = 0; hosted != NULL && r < ranks; r++)
        pst_str_fini(&hosted[r].ops);
    pst_free(hosted);
}
