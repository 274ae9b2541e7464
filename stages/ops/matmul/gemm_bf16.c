// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/matmul/gemm_bf16.h"

#include "stages/base/host/cpu.h"

#include <pthread.h>

#if PST_HAVE_DNNL

#include "stages/base/alloc.h"

#include <dnnl.h>
#include <string.h>

/* A compiled oneDNN matmul, cached under its description g. */
struct form {
    struct form *next;
    struct pst_gemm g;
    dnnl_primitive_t primitive;
    dnnl_memory_desc_t a, b, c, scratch;
    size_t scratch_size;
};

enum { N_CHAINS = 128 };
static struct form *chains[N_CHAINS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static dnnl_engine_t engine;

static bool same_form(const struct pst_gemm *x, const struct pst_gemm *y)
{
    return x->ta == y->ta && x->tb == y->tb && x->m == y->m && x->n == y->n &&
           x->k == y->k && x->lda == y->lda && x->ldb == y->ldb &&
           x->ldc == y->ldc && x->alpha == y->alpha && x->beta == y->beta;
}

static unsigned chain_of(const struct pst_gemm *g)
{
    uint64_t h = (uint64_t)g->m * 0x9E3779B97F4A7C15u;

    h = (h ^ (uint64_t)g->n) * 0x9E3779B97F4A7C15u;
    h = (h ^ (uint64_t)g->k) * 0x9E3779B97F4A7C15u;
    h ^= (uint64_t)g->ta << 40 | (uint64_t)g->tb << 41;
    return (unsigned)(h >> 32) % N_CHAINS;
}

/* Describes a rows x cols matrix, stored transposed if trans. */
static bool matrix(dnnl_memory_desc_t *ret, dnnl_data_type_t type, int64_t rows,
                   int64_t cols, bool trans, int64_t ld)
{
    const dnnl_dims_t size = {rows, cols};
    const dnnl_dims_t stride = {trans ? 1 : ld, trans ? ld : 1};

    return dnnl_memory_desc_init_by_strides(ret, 2, size, type, stride) ==
           dnnl_success;
}

/* Returns attributes for oneDNN: the caller provides the scratch; alpha scales
 * the result; beta 1 adds the result to c. */
static dnnl_primitive_attr_t make_attributes(const struct pst_gemm *g)
{
    const float alpha = (float)g->alpha;
    dnnl_primitive_attr_t attr;
    dnnl_post_ops_t ops;
    bool good;

    if (dnnl_primitive_attr_create(&attr) != dnnl_success)
        return NULL;
    good = dnnl_primitive_attr_set_scratchpad_mode(
               attr, dnnl_scratchpad_mode_user) == dnnl_success;
    if (good && alpha != 1.0f)
        good = dnnl_primitive_attr_set_output_scales(attr, 1, 0, &alpha) ==
               dnnl_success;
    if (good && g->beta != 0.0 && dnnl_post_ops_create(&ops) == dnnl_success) {
        good = dnnl_post_ops_append_sum(ops, 1.0f) == dnnl_success &&
               dnnl_primitive_attr_set_post_ops(attr, ops) == dnnl_success;
        dnnl_post_ops_destroy(ops);
    }
    if (good)
        return attr;
    dnnl_primitive_attr_destroy(attr);
    return NULL;
}

static bool compile_form(struct form *f)
{
    const struct pst_gemm *g = &f->g;
    dnnl_primitive_attr_t attr = make_attributes(g);
    dnnl_primitive_desc_t desc;
    dnnl_matmul_desc_t op;
    bool good = false;

    if (attr == NULL)
        return false;
    if (matrix(&f->a, dnnl_bf16, g->m, g->k, g->ta, g->lda) &&
        matrix(&f->b, dnnl_bf16, g->k, g->n, g->tb, g->ldb) &&
        matrix(&f->c, dnnl_f32, g->m, g->n, false, g->ldc) &&
        dnnl_matmul_desc_init(&op, &f->a, &f->b, NULL, &f->c) == dnnl_success &&
        dnnl_primitive_desc_create(&desc, &op, attr, engine, NULL) ==
            dnnl_success) {
        f->scratch =
            *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0);
        f->scratch_size = dnnl_memory_desc_get_size(&f->scratch);
        good = dnnl_primitive_create(&f->primitive, desc) == dnnl_success;
        dnnl_primitive_desc_destroy(desc);
    }
    dnnl_primitive_attr_destroy(attr);
    return good;
}

/* Returns the cached or newly compiled matmul; NULL if memory runs out. */
static const struct form *find_form(const struct pst_gemm *g)
{
    struct form **chain = &chains[chain_of(g)], *f;

    pthread_mutex_lock(&lock);
    for (f = *chain; f != NULL && !same_form(&f->g, g);)
        f = f->next;
    if (f == NULL && (f = pst_calloc(PST_TAG_EXEC, 1, sizeof(*f))) != NULL) {
        f->g = *g;
        if (compile_form(f)) {
            f->next = *chain;
            *chain = f;
        } else {
            pst_free(f);
            f = NULL;
        }
    }
    pthread_mutex_unlock(&lock);
    return f;
}

static bool has;

/* Probes with one small matmul whether the library supports bf16 here. */
static void probe_bf16(void)
{
    const struct pst_gemm g = {.m = 16,
                               .n = 16,
                               .k = 16,
                               .lda = 16,
                               .ldb = 16,
                               .ldc = 16,
                               .alpha = 1.0};
    const char *features = pst_cpu_features();

    pst_gemm_prepare_dnnl();
    has = pst_cpu_isa() == PST_ISA_AVX512 &&
          (strstr(features, "avx512_bf16") != NULL ||
           strstr(features, "amx_bf16") != NULL) &&
          dnnl_engine_create(&engine, dnnl_cpu, 0) == dnnl_success &&
          find_form(&g) != NULL;
}

bool pst_gemm_has_bf16(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    pthread_once(&once, probe_bf16);
    return has;
}

size_t pst_gemm_bf16_scratch(const struct pst_gemm *g)
{
    const struct form *f = find_form(g);

    return f == NULL ? 0 : f->scratch_size;
}

/* oneDNN objects of the thread's last matmul. They are kept because the matmuls
 * of a batch have the same description, and creating the objects takes as long
 * as a small matmul. */
static _Thread_local struct handles {
    const struct form *form;
    dnnl_memory_t memory[4]; /* a, b, c, scratch */
    dnnl_stream_t stream;
} handles;

/* Releases the objects when the thread ends. */
static void free_handles(void *ctx)
{
    struct handles *h = ctx;

    for (size_t i = 0; i < PST_COUNT(h->memory); i++)
        if (h->memory[i] != NULL)
            dnnl_memory_destroy(h->memory[i]);
    if (h->stream != NULL)
        dnnl_stream_destroy(h->stream);
    *h = (struct handles){0};
}

static pthread_key_t handles_key;

static void make_key(void)
{
    (void)pthread_key_create(&handles_key, free_handles);
}

/* Returns the thread's objects for f; NULL if memory runs out. */
static struct handles *handles_of(const struct form *f)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    const dnnl_memory_desc_t *descs[] = {&f->a, &f->b, &f->c, &f->scratch};
    struct handles *h = &handles;
    bool good = true;

    if (h->form == f)
        return h;
    pthread_once(&once, make_key);
    free_handles(h);
    for (size_t i = 0; i < PST_COUNT(descs) && good; i++)
        good = dnnl_memory_create(&h->memory[i], descs[i], engine,
                                  DNNL_MEMORY_NONE) == dnnl_success;
    good = good &&
           dnnl_stream_create(&h->stream, engine, dnnl_stream_default_flags) ==
               dnnl_success;
    if (!good || pthread_setspecific(handles_key, h) != 0) {
        free_handles(h);
        return NULL;
    }
    h->form = f;
    return h;
}

bool pst_gemm_bf16(const struct pst_gemm *g, const uint16_t *a,
                   const uint16_t *b, float *c, void *scratch)
{
    const struct form *f = find_form(g);
    void *const data[] = {(void *)a, (void *)b, c, scratch};
    struct handles *h = f == NULL ? NULL : handles_of(f);
    bool good = h != NULL;

    pst_gemm_prepare_dnnl();
    for (size_t i = 0; i < PST_COUNT(data) && good; i++)
        good =
            dnnl_memory_set_data_handle(h->memory[i], data[i]) == dnnl_success;
    if (good) {
        const dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, h->memory[0]},
                                        {DNNL_ARG_WEIGHTS, h->memory[1]},
                                        {DNNL_ARG_DST, h->memory[2]},
                                        {DNNL_ARG_SCRATCHPAD, h->memory[3]}};

        good = dnnl_primitive_execute(f->primitive, h->stream, 4, args) ==
                   dnnl_success &&
               dnnl_stream_wait(h->stream) == dnnl_success;
    }
    return good;
}

#else

bool pst_gemm_has_bf16(void)
{
    return false;
}

size_t pst_gemm_bf16_scratch(const struct pst_gemm *g)
{
    (void)g;
    return 0;
}

bool pst_gemm_bf16(const struct pst_gemm *g, const uint16_t *a,
                   const uint16_t *b, float *c, void *scratch)
{
    (void)g, (void)a, (void)b, (void)c, (void)scratch;
    return false;
}

#endif
