// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_CPU_H
#define PENSTOCK_STAGES_BASE_HOST_CPU_H
/*
 * Instruction sets, detected by feature bits (model names are masked on virtual
 * machines) and by the registers that the operating system saves.
 * PST_ISA=any|avx2|avx512 in the environment limits them; PST_HIDE="amx
 * avx512_bf16" hides the features whose names begin with one of these words
 * from pst_cpu_features and its callers.
 */
#include "stages/base/status.h"

enum pst_isa { PST_ISA_ANY, PST_ISA_AVX2, PST_ISA_AVX512, PST_N_ISAS };

/* Returns the best usable instruction set, which is detected once. */
enum pst_isa pst_cpu_isa(void);
const char *pst_isa_name(enum pst_isa isa);
/* Returns the names of the known features that the CPU has: "avx2 fma avx512f
 * amx_bf16 ...", preceded by "amd" on a CPU of AMD. */
const char *pst_cpu_features(void);
/* Returns the number of cores that this process may use (affinity mask), at
 * least 1. */
unsigned pst_cpu_count(void);

#endif
