// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/blas.h"

#include "stages/base/macros.h"
#include "stages/base/str.h"
#include "stages/ops/matmul/gemm.h"

#include <cblas.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/resource.h>

#if PST_HAVE_DNNL
#include <dnnl.h>
#endif

#define VARIABLE "OPENBLAS_CORETYPE"
/* Bytes of address space that OpenBLAS maps for a thread: 128 MiB in builds for
 * several core types, and a little for its tables. */
#define BUFFER ((size_t)129 << 20)

/* The OpenBLAS constructor calls these functions to choose kernels; every
 * version that chooses them at run time exports both. The constructor reads
 * OPENBLAS_CORETYPE before a program can set it: no code of a program runs
 * earlier, except .preinit_array, and libc drops what that puts into the
 * environment. So we set the variable and choose a second time. A build for one
 * core type lacks these functions. */
PST_WEAK void gotoblas_dynamic_init(void);
PST_WEAK void gotoblas_dynamic_quit(void);
/* Ends OpenBLAS's own threads. OpenBLAS itself calls it before a fork and at
 * exit; a build without threads may lack it. */
PST_WEAK int blas_thread_shutdown_(void);

/* Core names, as openblas_get_corename returns them, without AVX-512
 * kernels. */
static const struct {
    const char *name;
    enum pst_isa isa;
} cores[] = {
    {"Unknown", PST_ISA_ANY},      {"Generic", PST_ISA_ANY},
    {"Katmai", PST_ISA_ANY},       {"Coppermine", PST_ISA_ANY},
    {"Northwood", PST_ISA_ANY},    {"Prescott", PST_ISA_ANY},
    {"Banias", PST_ISA_ANY},       {"Atom", PST_ISA_ANY},
    {"Core2", PST_ISA_ANY},        {"Penryn", PST_ISA_ANY},
    {"Dunnington", PST_ISA_ANY},   {"Nehalem", PST_ISA_ANY},
    {"Athlon", PST_ISA_ANY},       {"Opteron", PST_ISA_ANY},
    {"Opteron_SSE3", PST_ISA_ANY}, {"Barcelona", PST_ISA_ANY},
    {"Nano", PST_ISA_ANY},         {"Sandybridge", PST_ISA_ANY},
    {"Bobcat", PST_ISA_ANY},       {"Bulldozer", PST_ISA_ANY},
    {"Piledriver", PST_ISA_ANY},   {"Steamroller", PST_ISA_ANY},
    {"Excavator", PST_ISA_AVX2},   {"Haswell", PST_ISA_AVX2},
    {"Zen", PST_ISA_AVX2},
};

/* The core that OpenBLAS chose by itself; empty if we did not change it. */
static char replaced[32];

const char *pst_blas_core(void)
{
    const char *core = openblas_get_corename();

    return core != NULL ? core : "Unknown";
}

const char *pst_blas_better(const char *core, enum pst_isa isa)
{
    for (size_t i = 0; i < PST_COUNT(cores); i++) {
        if (strcasecmp(core, cores[i].name) != 0)
            continue;
        if (cores[i].isa >= isa)
            return NULL;
        return isa == PST_ISA_AVX512 ? "SkylakeX" : "Haswell";
    }
    return NULL;
}

void pst_blas_choose(void)
{
    const char *better = pst_blas_better(pst_blas_core(), pst_cpu_isa());

    openblas_set_num_threads(1);
    /* Threads that the library's constructor has started would spin and yield
     * the core for tens of milliseconds before they sleep. */
    if (blas_thread_shutdown_ != NULL)
        (void)blas_thread_shutdown_();
    if (better == NULL || getenv(VARIABLE) != NULL ||
        gotoblas_dynamic_init == NULL || gotoblas_dynamic_quit == NULL)
        return;
    snprintf(replaced, sizeof(replaced), "%s", pst_blas_core());
    /* The variable is only set during this call, so that child processes choose
     * for themselves. A library that lacks the better kernels keeps its
     * choice. */
    if (setenv(VARIABLE, better, 1) != 0)
        return;
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv(VARIABLE);
}

/* Runs after the constructors of the libraries that the program links. */
PST_CONSTRUCTOR static void choose_at_start(void)
{
    pst_blas_choose();
#if PST_HAVE_DNNL
    /* oneDNN queries the processor itself, so features that pst_cpu_features
     * hides are disabled here. */
    if (strstr(pst_cpu_features(), "amx_bf16") == NULL)
        (void)dnnl_set_max_cpu_isa(dnnl_cpu_isa_avx512_core_bf16);
#endif
}

const char *pst_blas_tuned_for(const char **ret_better)
{
    *ret_better = pst_blas_better(pst_blas_core(), pst_cpu_isa());
    return pst_blas_core();
}

enum pst_status pst_blas_check_space(unsigned threads, struct pst_diag *diag)
{
    const size_t size = threads * BUFFER;
    struct rlimit limit;
    void *space;

    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY)
        return PST_OK;
    space = mmap(NULL, size, PROT_NONE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (space == MAP_FAILED)
        return pst_diag_set(
            diag, PST_E_MEMORY_ARENA,
            "OpenBLAS takes %zu MiB of addresses for the operands of matmuls "
            "on %u thread%s, and the limit of this process's addresses "
            "(ulimit -v) leaves less: raise it, or take fewer --threads",
            size >> 20, threads, threads == 1 ? "" : "s");
    (void)munmap(space, size);
    return PST_OK;
}

void pst_blas_describe(struct pst_str *out)
{
    const char *core = pst_blas_core(), *config = openblas_get_config();
    char version[32] = "";
    const bool forced = getenv(VARIABLE) != NULL;

    (void)sscanf(config != NULL ? config : "", "OpenBLAS %31s", version);
    pst_str_addf(out, "OpenBLAS %s, %s kernels", version, core);
    if (forced)
        pst_str_add(out, " (" VARIABLE " is set)");
    else if (replaced[0] != '\0' && strcasecmp(replaced, core) != 0)
        pst_str_addf(out, " (its own choice was %s)", replaced);
    if (pst_blas_better(core, pst_cpu_isa()) != NULL)
        pst_str_addf(out, ", slow: this processor has %s",
                     pst_isa_name(pst_cpu_isa()));
}

#if PST_HAVE_DNNL
void pst_products_describe(struct pst_str *out)
{
    const dnnl_version_t *v = dnnl_version();

    pst_str_addf(out, "oneDNN %d.%d.%d; ", v->major, v->minor, v->patch);
    pst_blas_describe(out);
}
#else
void pst_products_describe(struct pst_str *out)
{
    pst_blas_describe(out);
}
#endif

/* CBLAS rejects a leading dimension below the matrix's width, even if there is
 * only one row. */
static int leading_dimension(int64_t ld, int64_t width)
{
    return (int)PST_MAX(PST_MAX(ld, width), 1);
}

void pst_gemm_f32(const struct pst_gemm *g, const float *a, const float *b,
                  float *c)
{
    cblas_sgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans,
                g->tb ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n,
                (int)g->k, (float)g->alpha, a,
                leading_dimension(g->lda, g->ta ? g->m : g->k), b,
                leading_dimension(g->ldb, g->tb ? g->k : g->n), (float)g->beta,
                c, leading_dimension(g->ldc, g->n));
}

void pst_gemm_f64(const struct pst_gemm *g, const double *a, const double *b,
                  double *c)
{
    cblas_dgemm(CblasRowMajor, g->ta ? CblasTrans : CblasNoTrans,
                g->tb ? CblasTrans : CblasNoTrans, (int)g->m, (int)g->n,
                (int)g->k, g->alpha, a,
                leading_dimension(g->lda, g->ta ? g->m : g->k), b,
                leading_dimension(g->ldb, g->tb ? g->k : g->n), g->beta, c,
                leading_dimension(g->ldc, g->n));
}
