// SPDX-License-Identifier: Apache-2.0
/*
 * A cuBLASLt for tests: the functions of stages/device/cuda/cublaslt.def over
 * the tests' driver. It checks what it is given more strictly than cuBLASLt,
 * and aborts with a sentence where a caller is wrong. Matmuls are summed in the
 * workspace in two parts if k is at least SPLIT_K.
 *
 * PENSTOCK_TEST_CUBLASLT=FUNCTION:STATUS: all calls of that function do nothing
 * and return the status.
 */
#include "tests/cuda/driver.h"

#include <functional>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, INVALID = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum { F32 = 0, F16 = 2, BF16 = 14, COMPUTE_F32 = 68, COMPUTE_TF32 = 77 };
enum { SPLIT_K = 64, ALIGNED = 16, N = 4 };

namespace
{

struct desc {
    int compute = COMPUTE_F32;
    int32_t trans[2] = {0, 0};
    uint32_t epilogue = 1;
    const void *bias = NULL;
};

struct layout {
    int type;
    int64_t rows, cols, ld, stride = 0;
    int32_t batch = 1;
};

struct preference {
    uint64_t workspace = 0;
    uint32_t reduction = 7, align[N] = {256, 256, 256, 256};
};

/* Has the size of cublasLtMatmulAlgo_t. */
struct algorithm {
    uint32_t mark, splits, align[N];
    int64_t rows, cols, depth;
    uint32_t batch, types, compute;
};
static_assert(sizeof(struct algorithm) <= 64, "8 words");

struct result {
    union {
        struct algorithm algo;
        uint64_t data[8];
    };
    size_t workspace;
    int status;
    float waves;
    int reserved[4];
};

[[noreturn]] void refuse(const char *why)
{
    fprintf(stderr, "cublaslt of the tests: %s\n", why);
    abort();
}

void require(bool is_right, const char *otherwise)
{
    if (!is_right)
        refuse(otherwise);
}

/* Returns the status that the environment gives to the function, or 0. */
int failure_of(const char *function)
{
    const char *text = getenv("PENSTOCK_TEST_CUBLASLT");
    const size_t n = strlen(function);

    return text != NULL && strncmp(text, function, n) == 0 && text[n] == ':'
               ? atoi(text + n + 1)
               : OK;
}

int size_of(int type)
{
    require(type == F32 || type == F16 || type == BF16, "an unknown type");
    return type == F32 ? 4 : 2;
}

/* --- numbers ---------------------------------------------------------------*/

float load(int type, const void *x, int64_t i)
{
    uint32_t bits;
    float ret;

    if (type == F32)
        return ((const float *)x)[i];
    const uint16_t h = ((const uint16_t *)x)[i];
    if (type == F16) {
        _Float16 half;
        memcpy(&half, &h, sizeof(half));
        return (float)half;
    }
    bits = (uint32_t)h << 16;
    memcpy(&ret, &bits, sizeof(ret));
    return ret;
}

void store(int type, void *y, int64_t i, float x)
{
    uint16_t h;

    if (type == F32) {
        ((float *)y)[i] = x;
        return;
    }
    if (type == F16) {
        const _Float16 half = (_Float16)x;
        memcpy(&h, &half, sizeof(h));
    } else {
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        h = x != x ? (uint16_t)(bits >> 16 | 0x40)
                   : (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
    ((uint16_t *)y)[i] = h;
}

/* --- checks ----------------------------------------------------------------*/

/* Returns the depth; the layouts must be those of one matmul. */
int64_t check_layouts(const struct desc *d, const struct layout *const *l)
{
    const int64_t rows[] = {d->trans[0] ? l[0]->cols : l[0]->rows,
                            d->trans[1] ? l[1]->cols : l[1]->rows};
    const int64_t cols[] = {d->trans[0] ? l[0]->rows : l[0]->cols,
                            d->trans[1] ? l[1]->rows : l[1]->cols};

    require(cols[0] == rows[1], "a and b do not fit");
    require(l[2]->rows == l[3]->rows && l[2]->cols == l[3]->cols, "c, d");
    require(rows[0] == l[3]->rows && cols[1] == l[3]->cols, "d's size");
    require(l[0]->type == l[1]->type && l[2]->type == l[3]->type, "types");
    require(l[3]->type == F32 || l[3]->type == l[0]->type, "d's type");
    require(d->compute == COMPUTE_F32 || l[0]->type == F32, "TF32 of 16 bits");
    for (int i = 0; i < N; i++) {
        require(l[i]->ld >= l[i]->rows, "a leading dimension");
        require(l[i]->batch == l[3]->batch, "batches");
    }
    require(l[3]->batch == 1 ||
                l[3]->stride >= l[3]->ld * (l[3]->cols - 1) + l[3]->rows,
            "matrices of d overlap");
    return cols[0];
}

bool is_aligned(const struct layout *l)
{
    return l->ld * size_of(l->type) % ALIGNED == 0 &&
           l->stride * size_of(l->type) % ALIGNED == 0;
}

struct algorithm choose(const struct desc *d, const struct layout *const *l,
                        const struct preference *p)
{
    const int64_t depth = check_layouts(d, l);
    struct algorithm ret = {};
    const uint64_t bytes = 4 * 2 * (uint64_t)l[3]->rows * (uint64_t)l[3]->cols *
                           (uint64_t)l[3]->batch;

    require(p->reduction == 2, "a reduction in the output's type or place");
    ret.mark = 0x1d;
    ret.splits = depth >= SPLIT_K && bytes <= p->workspace ? 2 : 1;
    ret.rows = l[3]->rows;
    ret.cols = l[3]->cols;
    ret.depth = depth;
    ret.batch = (uint32_t)l[3]->batch;
    ret.compute = (uint32_t)d->compute;
    ret.types = (uint32_t)(l[0]->type << 8 | l[3]->type << 4 |
                           d->trans[0] << 1 | d->trans[1]) ^
                d->epilogue << 16;
    for (int i = 0; i < N; i++) {
        const uint32_t a = p->align[i];

        require(a <= 256 && (a & (a - 1)) == 0 &&
                    a >= (uint32_t)size_of(l[i]->type),
                "an alignment");
        ret.align[i] =
            a >= ALIGNED && is_aligned(l[i]) ? ALIGNED : size_of(l[i]->type);
    }
    return ret;
}

/* Bytes that the algorithm needs, or -1 if it does not compute the matmul. */
int64_t needs(const struct algorithm *algo, const struct desc *d,
              const struct layout *const *l)
{
    const int64_t depth = check_layouts(d, l);
    const uint32_t types = (uint32_t)(l[0]->type << 8 | l[3]->type << 4 |
                                      d->trans[0] << 1 | d->trans[1]) ^
                           d->epilogue << 16;

    require(algo->mark == 0x1d, "an algorithm that the heuristic did not give");
    if (algo->rows != l[3]->rows || algo->cols != l[3]->cols ||
        algo->depth != depth || algo->types != types ||
        algo->compute != (uint32_t)d->compute ||
        algo->batch < (uint32_t)l[3]->batch)
        return -1;
    for (int i = 0; i < N; i++)
        if (algo->align[i] == ALIGNED && !is_aligned(l[i]))
            return -1;
    return algo->splits == 1 ? 0
                             : 4 * 2 * l[3]->rows * l[3]->cols * l[3]->batch;
}

/* --- the matmul ------------------------------------------------------------*/

struct matmul {
    struct desc desc;
    struct layout l[N];
    struct algorithm algo;
    float alpha, beta;
    const void *at[N];
    float *workspace;
};

/* Rounds to the 10 bits of mantissa of TF32, half to even. */
float to_tf32(float x)
{
    uint32_t bits;

    memcpy(&bits, &x, sizeof(bits));
    if ((bits & 0x7f800000) != 0x7f800000)
        bits = (bits + 0xfff + (bits >> 13 & 1)) & ~UINT32_C(0x1fff);
    memcpy(&x, &bits, sizeof(x));
    return x;
}

float operand(const struct matmul *m, int which, int64_t i)
{
    const float x = load(m->l[which].type, m->at[which], i);

    return m->desc.compute == COMPUTE_TF32 ? to_tf32(x) : x;
}

float sum_of(const struct matmul *m, int64_t batch, int64_t r, int64_t c,
             int64_t begin, int64_t end)
{
    const struct layout &a = m->l[0], &b = m->l[1];
    float sum = 0.0f;

    for (int64_t k = begin; k < end; k++)
        sum += operand(m, 0,
                       batch * a.stride +
                           (m->desc.trans[0] ? r * a.ld + k : k * a.ld + r)) *
               operand(m, 1,
                       batch * b.stride +
                           (m->desc.trans[1] ? k * b.ld + c : c * b.ld + k));
    return sum;
}

void run(const struct matmul *m)
{
    const struct layout &c = m->l[2], &d = m->l[3];
    const int64_t depth = m->algo.depth, half = depth / 2;
    float *part = m->workspace;

    for (int64_t i = 0; i < d.batch; i++)
        for (int64_t s = 0; s < d.cols; s++)
            for (int64_t r = 0; r < d.rows; r++) {
                const int64_t at = i * d.stride + s * d.ld + r;
                float sum;

                if (m->algo.splits == 2) {
                    part[0] = sum_of(m, i, r, s, 0, half);
                    part[1] = sum_of(m, i, r, s, half, depth);
                    sum = part[0] + part[1];
                    part += 2;
                } else {
                    sum = sum_of(m, i, r, s, 0, depth);
                }
                sum *= m->alpha;
                if (m->beta != 0.0f)
                    sum += m->beta *
                           load(c.type, m->at[2], i * c.stride + s * c.ld + r);
                if (m->desc.epilogue == 4)
                    sum += load(d.type, m->desc.bias, r);
                store(d.type, (void *)m->at[3], at, sum);
            }
}

} // namespace

#define MAY_FAIL                                                               \
    if (failure_of(__func__) != OK)                                            \
    return failure_of(__func__)

extern "C" {

/* Number of matmuls so far, for tests. */
uint64_t test_cublaslt_calls = 0;

int cublasLtCreate(void **handle)
{
    MAY_FAIL;
    *handle = new char;
    return OK;
}

int cublasLtDestroy(void *handle)
{
    delete (char *)handle;
    return OK;
}

size_t cublasLtGetVersion(void)
{
    return 130102;
}

const char *cublasLtGetStatusName(int status)
{
    return status == INVALID            ? "CUBLAS_STATUS_INVALID_VALUE"
           : status == EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED"
           : status == NOT_SUPPORTED    ? "CUBLAS_STATUS_NOT_SUPPORTED"
                                        : "CUBLAS_STATUS_INTERNAL_ERROR";
}

int cublasLtMatmulDescCreate(void **ret, int compute, int scale)
{
    MAY_FAIL;
    require((compute == COMPUTE_F32 || compute == COMPUTE_TF32) && scale == F32,
            "a compute type");
    desc *made = new desc;
    made->compute = compute;
    *ret = made;
    return OK;
}

int cublasLtMatmulDescDestroy(void *d)
{
    delete (desc *)d;
    return OK;
}

int cublasLtMatmulDescSetAttribute(void *at, int attribute, const void *value,
                                   size_t size)
{
    desc *d = (desc *)at;

    MAY_FAIL;
    require(size == (attribute == 8 ? 8 : 4), "an attribute's size");
    if (attribute == 3 || attribute == 4)
        memcpy(&d->trans[attribute - 3], value, size);
    else if (attribute == 7)
        memcpy(&d->epilogue, value, size);
    else if (attribute == 8)
        memcpy(&d->bias, value, size);
    else
        refuse("an attribute of a matmul");
    require(d->epilogue == 1 || d->epilogue == 4, "an epilogue");
    return OK;
}

int cublasLtMatrixLayoutCreate(void **ret, int type, uint64_t rows,
                               uint64_t cols, int64_t ld)
{
    MAY_FAIL;
    require(rows > 0 && cols > 0, "an empty matrix");
    layout *l = new layout;
    l->type = type;
    l->rows = (int64_t)rows;
    l->cols = (int64_t)cols;
    l->ld = ld;
    *ret = l;
    return OK;
}

int cublasLtMatrixLayoutDestroy(void *l)
{
    delete (layout *)l;
    return OK;
}

int cublasLtMatrixLayoutSetAttribute(void *at, int attribute, const void *value,
                                     size_t size)
{
    layout *l = (layout *)at;

    MAY_FAIL;
    if (attribute == 5 && size == sizeof(l->batch))
        memcpy(&l->batch, value, size);
    else if (attribute == 6 && size == sizeof(l->stride))
        memcpy(&l->stride, value, size);
    else
        refuse("an attribute of a layout");
    return OK;
}

int cublasLtMatmulPreferenceCreate(void **ret)
{
    MAY_FAIL;
    *ret = new preference;
    return OK;
}

int cublasLtMatmulPreferenceDestroy(void *p)
{
    delete (preference *)p;
    return OK;
}

int cublasLtMatmulPreferenceSetAttribute(void *at, int attribute,
                                         const void *value, size_t size)
{
    preference *p = (preference *)at;

    MAY_FAIL;
    require(size == (attribute == 1 ? 8 : 4), "a preference's size");
    if (attribute == 1)
        memcpy(&p->workspace, value, size);
    else if (attribute == 3)
        memcpy(&p->reduction, value, size);
    else if (attribute >= 5 && attribute < 5 + N)
        memcpy(&p->align[attribute - 5], value, size);
    else
        refuse("a preference");
    return OK;
}

int cublasLtMatmulAlgoGetHeuristic(void *, void *d, void *a, void *b, void *c,
                                   void *out, void *p, int most,
                                   struct result *results, int *n)
{
    const layout *const l[N] = {(layout *)a, (layout *)b, (layout *)c,
                                (layout *)out};

    MAY_FAIL;
    require(most >= 1, "no result is asked for");
    memset(results, 0, sizeof(*results));
    results->algo = choose((desc *)d, l, (preference *)p);
    results->workspace = (size_t)needs(&results->algo, (desc *)d, l);
    *n = 1;
    return OK;
}

int cublasLtMatmulAlgoCheck(void *, void *d, void *a, void *b, void *c,
                            void *out, const struct algorithm *algo,
                            struct result *ret)
{
    const layout *const l[N] = {(layout *)a, (layout *)b, (layout *)c,
                                (layout *)out};
    const int64_t bytes = needs(algo, (desc *)d, l);

    MAY_FAIL;
    if (bytes < 0)
        return NOT_SUPPORTED;
    ret->workspace = (size_t)bytes;
    ret->status = OK;
    return OK;
}

int cublasLtMatmul(void *, void *d, const void *alpha, const void *a, void *la,
                   const void *b, void *lb, const void *beta, const void *c,
                   void *lc, void *out, void *lout,
                   const struct algorithm *algo, void *workspace,
                   size_t workspace_size, void *stream)
{
    const layout *const l[N] = {(layout *)la, (layout *)lb, (layout *)lc,
                                (layout *)lout};
    struct matmul m;

    MAY_FAIL;
    m = {*(desc *)d,
         {*l[0], *l[1], *l[2], *l[3]},
         *algo,
         *(const float *)alpha,
         *(const float *)beta,
         {a, b, c, out},
         (float *)workspace};
    const int64_t bytes = needs(algo, &m.desc, l);
    require(bytes >= 0, "an algorithm for another matmul");
    require((uint64_t)bytes <= workspace_size, "too small a workspace");
    require((uintptr_t)workspace % 16 == 0, "the workspace's alignment");
    for (int i = 0; i < N; i++)
        require((uintptr_t)m.at[i] % algo->align[i] == 0, "an address");
    require(m.desc.epilogue != 4 || m.desc.bias != NULL, "no bias");
    test_cublaslt_calls++;
    return driver_enqueue(stream, [=] { run(&m); }) ? OK : EXECUTION_FAILED;
}

} // extern "C"
