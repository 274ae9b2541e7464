// SPDX-License-Identifier: Apache-2.0
#include "stages/device/cuda/multiply.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "stages/base/macros.h"

/* Maximum alignment of addresses that the choice of an algorithm may rely on: a
 * larger alignment of a tensor may depend on its offset in the arena. */
#define ALIGN 16

enum { A, B, C, D, N_MATRICES };

/* Description of a matmul, without the addresses. */
struct key {
    int64_t rows, cols, depth, ld[N_MATRICES], stride[N_MATRICES];
    int64_t batch, batch_all;
    uint64_t workspace;
    int32_t trans_a, trans_b, in, out;
    uint32_t shared[N_MATRICES];
    uint32_t align[N_MATRICES], bias; /* bias: alignment of its address, or 0 */
    int32_t compute;
};

/* A matmul with the library's objects for it. */
struct plan {
    struct key key;
    void *desc, *layout[N_MATRICES];
    struct pst_cublaslt_algo algo;
    size_t workspace; /* bytes that the algorithm uses */
    bool found;       /* there is an algorithm */
};

struct pst_cuda_products {
    const struct pst_cublaslt *library;
    void *handle;
    /* Open hashing; capacity is a power of two, at most half of it is used. */
    struct plan **plans;
    size_t n, capacity;
};

static const char *name_of(const struct pst_cublaslt *lt, int status)
{
    const char *name = lt->status_name(status);

    return name != NULL ? name : "an unknown status";
}

static void fail(struct pst_cuda_context *c, const char *what, const char *why)
{
    pst_cuda_fail(c, -1, what, why);
}

/* Returns true if the status is 0, else records the failure. */
static bool check(struct pst_cuda_context *c, int status, const char *what)
{
    if (status != 0)
        fail(c, what, name_of(c->products->library, status));
    return status == 0;
}

/* --- the library's objects ------------------------------------------------ */

static void free_plan(const struct pst_cublaslt *lt, struct plan *p)
{
    if (p == NULL)
        return;
    for (unsigned i = 0; i < N_MATRICES; i++)
        if (p->layout[i] != NULL)
            (void)lt->layout_destroy(p->layout[i]);
    if (p->desc != NULL)
        (void)lt->desc_destroy(p->desc);
    free(p);
}

static bool make_desc(struct pst_cuda_context *c, const struct key *k,
                      void **ret)
{
    const struct pst_cublaslt *lt = c->products->library;
    const uint32_t epilogue = PST_CUBLASLT_EPILOGUE_BIAS;
    /* The heuristic reads only the alignment of this address; each call sets
     * the real one. */
    const uint64_t bias = k->bias;
    bool ok = check(c, lt->desc_create(ret, k->compute, PST_CUBLASLT_F32),
                    "cublasLtMatmulDescCreate");
    const struct {
        int attribute;
        const void *value;
        size_t size;
    } all[] = {{PST_CUBLASLT_DESC_TRANS_A, &k->trans_a, sizeof(k->trans_a)},
               {PST_CUBLASLT_DESC_TRANS_B, &k->trans_b, sizeof(k->trans_b)},
               {PST_CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof(epilogue)},
               {PST_CUBLASLT_DESC_BIAS, &bias, sizeof(bias)}};

    for (unsigned i = 0; ok && i < (bias != 0 ? 4 : 2); i++)
        ok = check(
            c, lt->desc_set(*ret, all[i].attribute, all[i].value, all[i].size),
            "cublasLtMatmulDescSetAttribute");
    return ok;
}

/* Makes the layout descriptors of A, B, C and D for `batch` matrices each, as
 * they are in memory. dense: as if there were no gaps between columns and
 * between matrices. */
static bool make_layouts(struct pst_cuda_context *c, const struct key *k,
                         int64_t batch, bool dense, void *ret[N_MATRICES])
{
    const struct pst_cublaslt *lt = c->products->library;
    const int64_t rows[] = {k->trans_a ? k->depth : k->rows,
                            k->trans_b ? k->cols : k->depth, k->rows, k->rows};
    const int64_t cols[] = {k->trans_a ? k->rows : k->depth,
                            k->trans_b ? k->depth : k->cols, k->cols, k->cols};
    const int32_t count = (int32_t)batch;

    for (unsigned i = 0; i < N_MATRICES; i++) {
        const int64_t stride = !dense         ? k->stride[i]
                               : k->shared[i] ? 0
                                              : rows[i] * cols[i];

        if (!check(c,
                   lt->layout_create(&ret[i], i < C ? k->in : k->out,
                                     (uint64_t)rows[i], (uint64_t)cols[i],
                                     dense ? rows[i] : k->ld[i]),
                   "cublasLtMatrixLayoutCreate"))
            return false;
        if (batch > 1 &&
            (!check(c,
                    lt->layout_set(ret[i], PST_CUBLASLT_LAYOUT_BATCH, &count,
                                   sizeof(count)),
                    "cublasLtMatrixLayoutSetAttribute") ||
             !check(c,
                    lt->layout_set(ret[i], PST_CUBLASLT_LAYOUT_STRIDE, &stride,
                                   sizeof(stride)),
                    "cublasLtMatrixLayoutSetAttribute")))
            return false;
    }
    return true;
}

static bool make_preference(struct pst_cuda_context *c, const struct key *k,
                            void **ret)
{
    const struct pst_cublaslt *lt = c->products->library;
    const uint32_t schemes = PST_CUBLASLT_REDUCTION_F32;
    const char *set = "cublasLtMatmulPreferenceSetAttribute";
    bool ok = check(c, lt->preference_create(ret),
                    "cublasLtMatmulPreferenceCreate") &&
              check(c,
                    lt->preference_set(*ret, PST_CUBLASLT_PREF_WORKSPACE,
                                       &k->workspace, sizeof(k->workspace)),
                    set) &&
              check(c,
                    lt->preference_set(*ret, PST_CUBLASLT_PREF_REDUCTION,
                                       &schemes, sizeof(schemes)),
                    set);

    for (unsigned i = 0; ok && i < N_MATRICES; i++)
        ok =
            check(c,
                  lt->preference_set(*ret, (int)(PST_CUBLASLT_PREF_ALIGN_A + i),
                                     &k->align[i], sizeof(k->align[i])),
                  set);
    return ok;
}

/* --- plans ---------------------------------------------------------------- */

/* Asks for the best algorithm for matrices of these layouts. Returns false
 * after a failure; *ret_found is false if the library has none. */
static bool ask(struct pst_cuda_context *c, const struct key *k, void *desc,
                void *const layout[N_MATRICES], struct pst_cublaslt_result *ret,
                bool *ret_found)
{
    const struct pst_cublaslt *lt = c->products->library;
    void *preference = NULL;
    bool ok = make_preference(c, k, &preference);
    int n = 0;

    *ret_found = false;
    memset(ret, 0, sizeof(*ret));
    if (ok) {
        const int status =
            lt->heuristic(c->products->handle, desc, layout[A], layout[B],
                          layout[C], layout[D], preference, 1, ret, &n);

        ok = status == PST_CUBLASLT_NOT_SUPPORTED ||
             check(c, status, "cublasLtMatmulAlgoGetHeuristic");
        *ret_found = status == 0 && n == 1 && ret->status == 0 &&
                     ret->workspace <= k->workspace;
    }
    if (preference != NULL)
        (void)lt->preference_destroy(preference);
    return ok;
}

/* True if addresses, columns and matrices all begin at multiples of ALIGN. */
static bool is_aligned(const struct key *k)
{
    for (unsigned i = 0; i < N_MATRICES; i++) {
        const int64_t size =
            (i < C ? k->in : k->out) == PST_CUBLASLT_F32 ? 4 : 2;

        if (k->align[i] < ALIGN || k->ld[i] * size % ALIGN != 0 ||
            k->stride[i] * size % ALIGN != 0)
            return false;
    }
    return true;
}

/* Sets *ret to true if best->algo can compute the plan's matmul, and sets
 * best->workspace to the bytes that it needs. Returns false after a failure. */
static bool check_algorithm(struct pst_cuda_context *c, const struct plan *p,
                            struct pst_cublaslt_result *best, bool *ret)
{
    struct pst_cublaslt_result result = {0};
    const int status = c->products->library->check(
        c->products->handle, p->desc, p->layout[A], p->layout[B], p->layout[C],
        p->layout[D], &best->algo, &result);

    *ret = status == 0 && result.workspace <= p->key.workspace;
    best->workspace = result.workspace;
    return status == PST_CUBLASLT_INVALID ||
           status == PST_CUBLASLT_NOT_SUPPORTED ||
           check(c, status, "cublasLtMatmulAlgoCheck");
}

/* Chooses the algorithm for the plan. If alignment permits, it is the one for
 * dense matrices in one call: a view that is sent to another stage arrives as a
 * dense tensor, and its matmul must have the same bits. */
static bool choose(struct pst_cuda_context *c, struct plan *p)
{
    const struct pst_cublaslt *lt = c->products->library;
    struct pst_cublaslt_result best;
    void *dense[N_MATRICES] = {NULL};
    bool ok = true;

    if (is_aligned(&p->key)) {
        ok = make_layouts(c, &p->key, p->key.batch_all, true, dense) &&
             ask(c, &p->key, p->desc, dense, &best, &p->found);
        if (ok && p->found)
            ok = check_algorithm(c, p, &best, &p->found);
    }
    if (ok && !p->found)
        ok = ask(c, &p->key, p->desc, p->layout, &best, &p->found);
    if (ok && p->found) {
        p->algo = best.algo;
        p->workspace = best.workspace;
    }
    for (unsigned i = 0; i < N_MATRICES; i++)
        if (dense[i] != NULL)
            (void)lt->layout_destroy(dense[i]);
    return ok;
}

static struct plan *make_plan(struct pst_cuda_context *c, const struct key *k)
{
    struct plan *p = calloc(1, sizeof(*p));

    if (p == NULL) {
        fail(c, "cuBLASLt", "out of memory of the host");
        return NULL;
    }
    p->key = *k;
    if (make_desc(c, k, &p->desc) &&
        make_layouts(c, k, k->batch, false, p->layout) && choose(c, p))
        return p;
    free_plan(c->products->library, p);
    return NULL;
}

/* Returns the slot of the key, which is empty if there is no plan yet. */
static struct plan **slot_of(const struct pst_cuda_products *p,
                             const struct key *k)
{
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    size_t at;

    for (size_t i = 0; i < sizeof(*k); i++)
        hash = (hash ^ ((const unsigned char *)k)[i]) * 0x100000001b3u;
    at = (size_t)hash & (p->capacity - 1);
    while (p->plans[at] != NULL &&
           memcmp(&p->plans[at]->key, k, sizeof(*k)) != 0)
        at = (at + 1) & (p->capacity - 1);
    return &p->plans[at];
}

static bool grow(struct pst_cuda_products *p)
{
    struct pst_cuda_products to = *p;

    to.capacity = p->capacity > 0 ? 2 * p->capacity : 64;
    to.plans = calloc(to.capacity, sizeof(*to.plans)); // NOLINT: pointers
    if (to.plans == NULL)
        return false;
    for (size_t i = 0; i < p->capacity; i++)
        if (p->plans[i] != NULL)
            *slot_of(&to, &p->plans[i]->key) = p->plans[i];
    free(p->plans);
    *p = to;
    return true;
}

static struct plan *find_plan(struct pst_cuda_context *c, const struct key *k)
{
    struct pst_cuda_products *p = c->products;
    struct plan **slot;

    if (2 * p->n >= p->capacity && !grow(p)) {
        fail(c, "cuBLASLt", "out of memory of the host");
        return NULL;
    }
    slot = slot_of(p, k);
    if (*slot == NULL) {
        *slot = make_plan(c, k);
        p->n += *slot != NULL;
    }
    return *slot;
}

/* --- calls ---------------------------------------------------------------- */

static uint32_t alignment_of(uintptr_t bits)
{
    const uintptr_t low = bits & -bits;

    return bits == 0 || low > ALIGN ? ALIGN : (uint32_t)low;
}

static struct key key_of(const struct pst_cuda_multiply *m)
{
    const struct pst_cuda_matrix *all[] = {&m->a, &m->b, &m->c, &m->d};
    struct key k;

    memset(&k, 0, sizeof(k)); /* keys are compared by their bytes */
    k.rows = m->rows;
    k.cols = m->cols;
    k.depth = m->depth;
    k.batch = m->batch;
    k.batch_all = m->batch_all;
    k.workspace = m->workspace_size;
    k.trans_a = m->trans_a;
    k.trans_b = m->trans_b;
    k.in = (int32_t)m->in;
    k.out = (int32_t)m->out;
    k.compute = m->tf32 && m->in == PST_CUBLASLT_F32 ? PST_CUBLASLT_COMPUTE_TF32
                                                     : PST_CUBLASLT_COMPUTE_F32;
    for (unsigned i = 0; i < N_MATRICES; i++) {
        k.ld[i] = all[i]->ld;
        k.stride[i] = m->batch_all > 1 ? all[i]->stride : 0;
        k.shared[i] = all[i]->shared;
        k.align[i] = alignment_of(all[i]->bits);
    }
    k.bias = m->bias != NULL ? alignment_of((uintptr_t)m->bias) : 0;
    return k;
}

bool pst_cuda_multiply(struct pst_cuda_context *c,
                       const struct pst_cuda_multiply *m)
{
    struct pst_cuda_multiply all = *m;
    const struct pst_cublaslt *lt;
    struct plan *p;
    struct key k;

    if (c->products == NULL || !pst_cuda_enter(c))
        return c->products != NULL;
    lt = c->products->library;
    if (m->beta == 0.0F) /* c is not read; it gets the layout of d */
        all.c = all.d;
    k = key_of(&all);
    p = find_plan(c, &k);
    if (p == NULL)
        return true;
    if (!p->found)
        return false;
    if (all.bias != NULL && !check(c,
                                   lt->desc_set(p->desc, PST_CUBLASLT_DESC_BIAS,
                                                &all.bias, sizeof(all.bias)),
                                   "cublasLtMatmulDescSetAttribute"))
        return true;
    (void)check(c,
                lt->matmul(c->products->handle, p->desc, &all.alpha, all.a.data,
                           p->layout[A], all.b.data, p->layout[B], &all.beta,
                           all.c.data, p->layout[C], (void *)all.d.data,
                           p->layout[D], &p->algo, all.workspace, p->workspace,
                           c->queues[PST_QUEUE_COMPUTE].stream),
                "cublasLtMatmul");
    return true;
}

/* --- opening -------------------------------------------------------------- */

enum pst_status pst_cuda_multiply_open(struct pst_cuda_context *c,
                                       struct pst_diag *diag)
{
    const struct pst_cublaslt *library = NULL;
    struct pst_cuda_products *p;
    enum pst_status status = pst_cublaslt_open(&library, diag);
    int error;

    if (status != PST_OK || library == NULL)
        return status;
    p = calloc(1, sizeof(*p));
    if (p == NULL)
        return pst_diag_nomem(diag, sizeof(*p));
    p->library = library;
    error = library->create(&p->handle);
    if (error != 0) {
        free(p);
        return pst_diag_set(diag, PST_E_DEVICE_NONE,
                            "%s cannot be used: cublasLtCreate: %s; with "
                            "PENSTOCK_LIBCUBLASLT=none matmuls are computed "
                            "without it",
                            pst_cublaslt_text(), name_of(library, error));
    }
    c->products = p;
    return PST_OK;
}

void pst_cuda_multiply_close(struct pst_cuda_context *c)
{
    struct pst_cuda_products *p = c->products;

    if (p == NULL)
        return;
    for (size_t i = 0; i < p->capacity; i++)
        free_plan(p->library, p->plans[i]);
    (void)p->library->destroy(p->handle);
    free(p->plans);
    free(p);
    c->products = NULL;
}
