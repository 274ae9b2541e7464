// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/sort/radix.h"

#include "stages/ops/pointwise/nd.h"

#include <string.h>

/* Below this many elements, insertion sort is faster than radix sort. */
#define FEW    24
#define DIGITS 256

/* --- keys: unsigned, in the order of the dtype, NaN last ------------------ */

#define SIGN32 0x80000000u
#define SIGN64 (1ull << 63)

static uint64_t key_f32(uint32_t u)
{
    const bool nan = (u & ~SIGN32) > 0x7f800000u;

    u += u == SIGN32 ? SIGN32 : 0; /* -0 is 0 */
    u ^= (0 - (u >> 31)) | SIGN32; /* no branch: signs are random */
    return nan ? UINT32_MAX : u;
}

static uint64_t key_f64(uint64_t u)
{
    const bool nan = (u & ~SIGN64) > 0x7ff0000000000000u;

    u += u == SIGN64 ? SIGN64 : 0;
    u ^= (0 - (u >> 63)) | SIGN64;
    return nan ? UINT64_MAX : u;
}

/* Returns the key of a 16-bit float; `top` has all bits of the exponent set. */
static uint64_t key_16(uint16_t u, uint16_t top)
{
    const bool nan = (u & 0x7fff) > top;

    u = (uint16_t)(u + (u == 0x8000 ? 0x8000 : 0));
    u = (uint16_t)(u ^ ((0u - (unsigned)(u >> 15)) | 0x8000u));
    return nan ? UINT16_MAX : u;
}

#define KEYS(name, type, key)                                                  \
    static void name(const void *data, int64_t inner, int64_t n,               \
                     uint64_t flip, uint64_t *ret)                             \
    {                                                                          \
        const type *x = data;                                                  \
                                                                               \
        for (int64_t i = 0; i < n; i++) {                                      \
            const type u = x[i * inner];                                       \
                                                                               \
            ret[i] = (key) ^ flip;                                             \
        }                                                                      \
    }
KEYS(keys_f32, uint32_t, key_f32(u))
KEYS(keys_f64, uint64_t, key_f64(u))
KEYS(keys_bf16, uint16_t, key_16(u, 0x7f80))
KEYS(keys_f16, uint16_t, key_16(u, 0x7c00))
KEYS(keys_i64, uint64_t, u ^ SIGN64)
KEYS(keys_i32, uint32_t, u ^ SIGN32)
KEYS(keys_i16, uint16_t, (uint64_t)(u ^ 0x8000u))
KEYS(keys_i8, uint8_t, (uint64_t)(u ^ 0x80u))
KEYS(keys_u8, uint8_t, (uint64_t)u)
KEYS(keys_bool, uint8_t, (uint64_t)(u != 0))

typedef void (*keys_fn)(const void *data, int64_t inner, int64_t n,
                        uint64_t flip, uint64_t *ret);

static const keys_fn keys[PST_N_DTYPES] = {
    [PST_F32] = keys_f32,   [PST_F64] = keys_f64, [PST_BF16] = keys_bf16,
    [PST_F16] = keys_f16,   [PST_I64] = keys_i64, [PST_I32] = keys_i32,
    [PST_I16] = keys_i16,   [PST_I8] = keys_i8,   [PST_U8] = keys_u8,
    [PST_BOOL] = keys_bool,
};

#define BLOCK 64

static uint64_t all_ones(enum pst_dtype dtype)
{
    return UINT64_MAX >> (64 - 8 * pst_dtype_size(dtype));
}

struct lane {
    enum pst_dtype dtype;
    const char *data; /* the first element */
    int64_t inner, n;
    uint64_t flip; /* inverts keys: largest first */
};

/* Loads the keys of m <= BLOCK elements from element i on. */
static void load(const struct lane *l, int64_t i, int64_t m, uint64_t *ret)
{
    const int64_t size = (int64_t)pst_dtype_size(l->dtype);

    keys[l->dtype](l->data + i * l->inner * size, l->inner, m, l->flip, ret);
}

static void load_all(const struct lane *l, struct pst_sort_pair *ret)
{
    uint64_t block[BLOCK];

    for (int64_t i = 0; i < l->n; i += BLOCK) {
        const int64_t m = PST_MIN(l->n - i, BLOCK);

        load(l, i, m, block);
        for (int64_t k = 0; k < m; k++)
            ret[i + k] = (struct pst_sort_pair){block[k], i + k};
    }
}

/* --- order: by key, then by index ----------------------------------------- */

static bool is_below(const struct pst_sort_pair *a,
                     const struct pst_sort_pair *b)
{
    return a->key < b->key || (a->key == b->key && a->index < b->index);
}

static void insertion_sort(struct pst_sort_pair *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        const struct pst_sort_pair x = a[i];
        int64_t k = i;

        for (; k > 0 && is_below(&x, &a[k - 1]); k--)
            a[k] = a[k - 1];
        a[k] = x;
    }
}

/* Sorts by digits of 8 bits, the lowest digit first; a digit that is equal in
 * all keys is skipped. Equal keys keep their order, which is that of the
 * indices if the pairs were in that order. */
static void radix_sort(struct pst_sort_pair *a, struct pst_sort_pair *spare,
                       int64_t n, unsigned bytes)
{
    struct pst_sort_pair *from = a, *to = spare;

    for (unsigned shift = 0; shift < 8 * bytes; shift += 8) {
        int64_t at[DIGITS] = {0}, sum = 0;
        struct pst_sort_pair *swap = from;

        for (int64_t i = 0; i < n; i++)
            at[from[i].key >> shift & (DIGITS - 1)]++;
        if (at[from[0].key >> shift & (DIGITS - 1)] == n)
            continue;
        for (unsigned k = 0; k < DIGITS; k++) {
            const int64_t count = at[k];

            at[k] = sum;
            sum += count;
        }
        for (int64_t i = 0; i < n; i++)
            to[at[from[i].key >> shift & (DIGITS - 1)]++] = from[i];
        from = to;
        to = swap;
    }
    if (from != a)
        memcpy(a, from, (size_t)n * sizeof(*a));
}

/* Partitions the pairs: the k smallest come first, in any order, and the
 * largest of these is at k - 1; 0 < k <= n. */
static void partition(struct pst_sort_pair *a, int64_t n, int64_t k)
{
    int64_t low = 0, high = n - 1;

    while (high - low > FEW) {
        struct pst_sort_pair pivot[3] = {a[low], a[low + (high - low) / 2],
                                         a[high]};
        int64_t i = low, j = high;

        insertion_sort(pivot, 3);
        while (i <= j) {
            while (is_below(&a[i], &pivot[1]))
                i++;
            while (is_below(&pivot[1], &a[j]))
                j--;
            if (i <= j) {
                const struct pst_sort_pair swap = a[i];

                a[i++] = a[j];
                a[j--] = swap;
            }
        }
        if (k - 1 <= j)
            high = j;
        else if (k - 1 >= i)
            low = i;
        else
            return;
    }
    insertion_sort(a + low, high - low + 1);
}

/* Removes all pairs but the k smallest, which keep their order; returns the
 * largest of their keys. */
static uint64_t keep_first(struct pst_sort_pair *a, int64_t n, int64_t k,
                           struct pst_sort_pair *spare)
{
    struct pst_sort_pair last;
    int64_t left = 0;

    memcpy(spare, a, (size_t)n * sizeof(*a));
    partition(spare, n, k);
    last = spare[k - 1];
    for (int64_t i = 0; i < n; i++) {
        const struct pst_sort_pair x = a[i];

        a[left] = x;
        left += !is_below(&last, &x);
    }
    return last.key;
}

/* Writes the k <= FEW smallest elements to a, sorted. */
static void collect_few(const struct lane *l, int64_t k,
                        struct pst_sort_pair *a)
{
    uint64_t block[BLOCK], limit = UINT64_MAX;
    int64_t have = 0;

    for (int64_t i = 0; i < l->n; i += BLOCK) {
        const int64_t m = PST_MIN(l->n - i, BLOCK);

        load(l, i, m, block);
        for (int64_t j = 0; j < m; j++) {
            int64_t at;

            if (have == k && block[j] >= limit)
                continue;
            have += have < k;
            for (at = have - 1; at > 0 && a[at - 1].key > block[j]; at--)
                a[at] = a[at - 1];
            a[at] = (struct pst_sort_pair){block[j], i + j};
            limit = a[have - 1].key;
        }
    }
}

/* Writes the k < n smallest elements to a, in the order of their indices. a and
 * spare have the capacity pst_sort_capacity(n, k): candidates are collected in
 * a, and whenever a is full, only the k smallest are kept. */
static void collect_first(const struct lane *l, int64_t k,
                          struct pst_sort_pair *a, struct pst_sort_pair *spare)
{
    const int64_t capacity = pst_sort_capacity(l->n, k);
    uint64_t block[BLOCK], limit = UINT64_MAX;
    int64_t have = 0;

    for (int64_t i = 0; i < l->n; i += BLOCK) {
        const int64_t m = PST_MIN(l->n - i, BLOCK);

        if (have + m > capacity) {
            limit = keep_first(a, have, k, spare);
            have = k;
        }
        load(l, i, m, block);
        /* An element equal to the limit is left out, because its index is
         * larger. */
        for (int64_t j = 0; j < m; j++)
            if (block[j] < limit || limit == UINT64_MAX)
                a[have++] = (struct pst_sort_pair){block[j], i + j};
    }
    (void)keep_first(a, have, k, spare);
}

/* --- lanes ---------------------------------------------------------------- */

struct job {
    const struct pst_call *c;
    struct pst_lane l;
    int64_t k; /* k of topk; else all elements */
    bool descending;
    bool topk, sorted, stable;
    size_t share; /* scratch of a thread, in pairs */
};

/* Returns the number of pairs in the scratch of a thread for the first k of n:
 * enough for collect_first(), or for the whole lane if there are ties. */
static size_t topk_share(int64_t n, int64_t k)
{
    return (size_t)PST_MAX(2 * pst_sort_capacity(n, k), n);
}

static bool has_ties(const struct pst_sort_pair *a, int64_t n)
{
    bool any = false;

    for (int64_t i = 1; i < n; i++)
        any = any || a[i].key == a[i - 1].key;
    return any;
}

#define STORE(type)                                                            \
    for (int64_t i = 0; i < n; i++)                                            \
        ((type *)c->out[0].data)[to + i * inner] =                             \
            ((const type *)c->in[0].data)[from + a[i].index * inner];          \
    break

/* Stores n sorted elements and their indices, like pst_sort_store. */
static void store(const struct pst_call *c, int64_t from, int64_t to,
                  int64_t inner, const struct pst_sort_pair *a, int64_t n)
{
    switch (pst_dtype_size(c->in[0].meta->dtype)) {
    case 1:
        STORE(uint8_t);
    case 2:
        STORE(uint16_t);
    case 4:
        STORE(uint32_t);
    default:
        STORE(uint64_t);
    }
    for (int64_t i = 0; i < n && c->n_out > 1; i++)
        ((int64_t *)c->out[1].data)[to + i * inner] = a[i].index;
}

static void run_first(const struct job *j, const struct lane *lane,
                      int64_t first, int64_t to, struct pst_sort_pair *a)
{
    /* The element after the k-th shows whether the k-th equals one that is
     * left out. */
    const int64_t n = j->topk ? PST_MIN(j->k + 1, lane->n) : lane->n;
    struct pst_sort_pair *spare = a + pst_sort_capacity(lane->n, n);
    /* An unstable sort orders equal elements as PyTorch does (select.c), so
     * radix sort serves only lanes without equal elements. Integers usually
     * have some, so it is not tried for them. */
    const bool loose = !j->topk && !j->stable && n > PST_SORT_SMALL;
    bool settled =
        j->topk ? j->sorted
                : !loose || pst_dtype_kind(lane->dtype) == PST_KIND_FLOAT;

    if (settled && n <= FEW)
        collect_few(lane, n, a);
    else if (settled && n < lane->n)
        collect_first(lane, n, a, spare);
    else if (settled)
        load_all(lane, a);
    if (settled && n > FEW)
        radix_sort(a, spare, n, (unsigned)pst_dtype_size(lane->dtype));
    if (!settled || ((j->topk || loose) && has_ties(a, n))) {
        load_all(lane, a);
        if (j->topk)
            pst_sort_select(a, lane->n, j->k, j->sorted);
        else
            pst_sort_unstable(a, lane->n);
    }
    store(j->c, first, to, lane->inner, a, j->k);
}

static void run_part(void *ctx, unsigned part, unsigned parts)
{
    const struct job *j = ctx;
    const struct pst_operand *x = &j->c->in[0];
    const int64_t size = (int64_t)pst_dtype_size(x->meta->dtype);
    struct pst_sort_pair *a =
        (struct pst_sort_pair *)j->c->scratch + part * j->share;
    int64_t begin, end;

    pst_pool_share(pst_lane_count(&j->l), 1, part, parts, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        const int64_t first = pst_lane_first(&j->l, i, j->l.size);
        const struct lane lane = {
            .dtype = x->meta->dtype,
            .data = (const char *)x->data + first * size,
            .inner = j->l.inner,
            .n = j->l.size,
            .flip = j->descending ? all_ones(x->meta->dtype) : 0,
        };

        run_first(j, &lane, first, pst_lane_first(&j->l, i, j->k), a);
    }
}

static void run(struct job *j)
{
    if (j->l.size == 0 || pst_lane_count(&j->l) == 0)
        return;
    j->share = j->topk ? topk_share(j->l.size, PST_MIN(j->k + 1, j->l.size))
                       : 2 * (size_t)j->l.size;
    pst_pool_run(pst_pool_if(j->c->pool,
                             pst_meta_numel(j->c->in[0].meta) >= PST_ND_SERIAL),
                 run_part, j);
}

void pst_sort_all(const struct pst_call *c, int64_t dim, bool descending,
                  bool stable)
{
    const struct pst_lane l = pst_lane_of(c->in[0].meta, dim);
    struct job j = {.c = c,
                    .l = l,
                    .k = l.size,
                    .descending = descending,
                    .stable = stable};

    run(&j);
}

void pst_sort_topk(const struct pst_call *c, int64_t dim, int64_t k,
                   bool descending, bool sorted)
{
    struct job j = {.c = c,
                    .l = pst_lane_of(c->in[0].meta, dim),
                    .k = k,
                    .descending = descending,
                    .topk = true,
                    .sorted = sorted};

    if (k > 0)
        run(&j);
}

size_t pst_sort_topk_scratch(int64_t n, int64_t k, unsigned threads)
{
    return threads * topk_share(n, PST_MIN(k + 1, n)) *
           sizeof(struct pst_sort_pair);
}
