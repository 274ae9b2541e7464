// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_OPS_CPU_TASKS_H
#define PENSTOCK_STAGES_OPS_CPU_TASKS_H
/* Functions of a step's tasks that are not operators (struct pst_task in
 * stages/device/device.h). Any thread. */
#include "stages/device/device.h"

void pst_cpu_seed(const struct pst_task *task);
void pst_cpu_copy(const struct pst_task *task);
void pst_cpu_sum(const struct pst_task *task);
void pst_cpu_sumsq(const struct pst_task *task);
/* Convert f32 to bf16, and bf16 to f32 in place: `to` holds n bf16 values in
 * its upper half. */
void pst_cpu_downcast(const struct pst_task *task);
void pst_cpu_upcast(const struct pst_task *task);
void pst_cpu_update_sgd(const struct pst_task *task);
void pst_cpu_update_adamw(const struct pst_task *task);
void pst_cpu_update_adam(const struct pst_task *task);
void pst_cpu_update_adamax(const struct pst_task *task);
void pst_cpu_update_lion(const struct pst_task *task);
void pst_cpu_update_rmsprop(const struct pst_task *task);
void pst_cpu_update_adagrad(const struct pst_task *task);
void pst_cpu_update_adadelta(const struct pst_task *task);
void pst_cpu_update_schedulefree(const struct pst_task *task);
void pst_cpu_update_lamb(const struct pst_task *task);
void pst_cpu_update_muon(const struct pst_task *task);
void pst_cpu_update_adafactor(const struct pst_task *task);
void pst_cpu_ema(const struct pst_task *task);
/* States of optimizers in fewer bits (stages/ops/cpu/states.h). */
void pst_cpu_pack(const struct pst_task *task);
void pst_cpu_unpack(const struct pst_task *task);
/* Records n elements that an update left unchanged: the first parameter with
 * such elements, and their total number. */
void pst_cpu_record_stayed(const struct pst_task *task, int64_t n);

/* Table of tasks: name, function. */
#define PST_CPU_TASKS(X)                                                       \
    X("seed", pst_cpu_seed)                                                    \
    X("copy", pst_cpu_copy)                                                    \
    X("sum", pst_cpu_sum)                                                      \
    X("sumsq", pst_cpu_sumsq)                                                  \
    X("downcast", pst_cpu_downcast)                                            \
    X("upcast", pst_cpu_upcast)                                                \
    X("update.sgd", pst_cpu_update_sgd)                                        \
    X("update.adamw", pst_cpu_update_adamw)                                    \
    X("update.adam", pst_cpu_update_adam)                                      \
    X("update.adamax", pst_cpu_update_adamax)                                  \
    X("update.lion", pst_cpu_update_lion)                                      \
    X("update.rmsprop", pst_cpu_update_rmsprop)                                \
    X("update.adagrad", pst_cpu_update_adagrad)                                \
    X("update.adadelta", pst_cpu_update_adadelta)                              \
    X("update.schedulefree", pst_cpu_update_schedulefree)                      \
    X("update.lamb", pst_cpu_update_lamb)                                      \
    X("update.muon", pst_cpu_update_muon)                                      \
    X("update.adafactor", pst_cpu_update_adafactor)                            \
    X("ema", pst_cpu_ema)                                                      \
    X("pack", pst_cpu_pack)                                                    \
    X("unpack", pst_cpu_unpack)
#define PST_CPU_TASK_ROW(name, run) {(name), (run)},

/* Elements are divided among threads in multiples of this, so that vector
 * bodies and tails are the same for any number of threads. 16 KiB of f32. */
#define PST_TASK_GRAIN 4096

#endif
