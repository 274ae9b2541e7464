// SPDX-License-Identifier: Apache-2.0
/*
 * Selects the first k of n elements, or sorts all. The steps of the algorithm
 * decide which of equal elements are selected, and in which order. PyTorch's
 * topk and sort use the C++ library (topk: partial_sort if k is at most n/64,
 * else nth_element and sort) and kthvalue its own code; the functions here take
 * the same steps. Models have ties where a router starts as zero or where ReLU
 * makes scores 0, and the choice among them decides which experts compute.
 */
#include "stages/ops/sort/sort.h"

#include <string.h>

typedef struct pst_sort_pair item;

static bool is_before(const item *a, const item *b)
{
    return a->key < b->key;
}

static void swap(item *a, item *b)
{
    const item t = *a;

    *a = *b;
    *b = t;
}

/* --- heaps: the last in order is at the root ------------------------------ */

/* Puts v into the heap a[0..n), whose slot `hole` is free: moves the hole down
 * to a leaf, always to the later child, then moves v up. */
static void sift(item *a, int64_t n, int64_t hole, item v)
{
    const int64_t top = hole;
    int64_t child = hole;

    while (child < (n - 1) / 2) {
        child = 2 * child + 2;
        if (is_before(&a[child], &a[child - 1]))
            child--;
        a[hole] = a[child];
        hole = child;
    }
    if (n % 2 == 0 && child == (n - 2) / 2) {
        child = 2 * child + 1;
        a[hole] = a[child];
        hole = child;
    }
    while (hole > top && is_before(&a[(hole - 1) / 2], &v)) {
        a[hole] = a[(hole - 1) / 2];
        hole = (hole - 1) / 2;
    }
    a[hole] = v;
}

/* Moves the root to *to, and puts the old *to into the heap. */
static void exchange(item *a, int64_t n, item *to)
{
    const item v = *to;

    *to = a[0];
    sift(a, n, 0, v);
}

/* Moves the k smallest of n elements to a[0..k), as a heap. */
static void heap_select(item *a, int64_t k, int64_t n)
{
    for (int64_t i = (k - 2) / 2; k > 1 && i >= 0; i--)
        sift(a, k, i, a[i]);
    for (int64_t i = k; i < n; i++)
        if (is_before(&a[i], &a[0]))
            exchange(a, k, &a[i]);
}

static void partial_sort(item *a, int64_t k, int64_t n)
{
    heap_select(a, k, n);
    for (int64_t i = k - 1; i > 0; i--)
        exchange(a, i, &a[i]);
}

/* --- partitions ----------------------------------------------------------- */

/* Moves a[i] towards a[0] until the element before it is not larger. Such an
 * element must exist. */
static void insert(item *a, int64_t i)
{
    const item v = a[i];

    for (; is_before(&v, &a[i - 1]); i--)
        a[i] = a[i - 1];
    a[i] = v;
}

static void insertion_sort(item *a, int64_t n)
{
    for (int64_t i = 1; i < n; i++) {
        if (is_before(&a[i], &a[0])) {
            const item v = a[i];

            memmove(a + 1, a, (size_t)i * sizeof(*a));
            a[0] = v;
        } else {
            insert(a, i);
        }
    }
}

/* Moves the median of a[1], the middle one and the last one to a[0]. */
static void choose_pivot(item *a, int64_t n)
{
    item *x = a + 1, *y = a + n / 2, *z = a + n - 1, *median;

    if (is_before(x, y))
        median = is_before(y, z) ? y : is_before(x, z) ? z : x;
    else
        median = is_before(x, z) ? x : is_before(y, z) ? z : y;
    swap(a, median);
}

/* Partitions around a pivot, the median of three elements, and returns the
 * start of the second part: none of its elements is before one of the first
 * part. Elements equal to the pivot are exchanged, too. */
static int64_t partition(item *a, int64_t n)
{
    int64_t low = 1, high = n;
    uint64_t pivot;

    choose_pivot(a, n);
    pivot = a[0].key;
    for (;; low++) {
        while (a[low].key < pivot)
            low++;
        for (high--; pivot < a[high].key;)
            high--;
        if (low >= high)
            return low;
        swap(&a[low], &a[high]);
    }
}

/* Returns the limit of nested partitions, after which a heap is used to bound
 * the time. */
static int depth_of(int64_t n)
{
    return 2 * (63 - __builtin_clzll((unsigned long long)n));
}

/* Reorders the elements so that a[nth] is the element that sorting would put
 * there, and the elements before it are not after it in the order. */
static void nth_element(item *a, int64_t nth, int64_t n)
{
    int64_t begin = 0, end = n;

    for (int depth = depth_of(n); end - begin > 3; depth--) {
        int64_t cut;

        if (depth == 0) {
            heap_select(a + begin, nth + 1 - begin, end - begin);
            swap(a + begin, a + nth);
            return;
        }
        cut = begin + partition(a + begin, end - begin);
        if (cut <= nth)
            begin = cut;
        else
            end = cut;
    }
    insertion_sort(a + begin, end - begin);
}

/* Sorts, except for runs of at most PST_SORT_SMALL elements. `depth` limits the
 * recursion. */
static void rough_sort(item *a, int64_t n, int depth)
{
    while (n > PST_SORT_SMALL) {
        int64_t cut;

        if (depth-- == 0) {
            partial_sort(a, n, n);
            return;
        }
        cut = partition(a, n);
        rough_sort(a + cut, n - cut, depth);
        n = cut;
    }
}

void pst_sort_unstable(struct pst_sort_pair *a, int64_t n)
{
    if (n <= 1)
        return;
    rough_sort(a, n, depth_of(n));
    insertion_sort(a, PST_MIN(n, PST_SORT_SMALL));
    for (int64_t i = PST_SORT_SMALL; i < n; i++)
        insert(a, i);
}

void pst_sort_select(struct pst_sort_pair *a, int64_t n, int64_t k, bool sorted)
{
    if (k == 0)
        return;
    if (k <= n / 64) {
        partial_sort(a, k, n);
        return;
    }
    nth_element(a, k - 1, n);
    if (sorted)
        pst_sort_unstable(a, k - 1);
}

/* --- kthvalue ------------------------------------------------------------- */

static void order_pair(item *a, item *b)
{
    if (is_before(b, a))
        swap(a, b);
}

/* Moves the median of a[0], the middle element and the last one to a[0], the
 * least of the three to a[1] and the largest to the end. Then partitions, and
 * moves a[0] to *ret_high: no element before it is larger, and no element from
 * *ret_low on is smaller. */
static void partition_by_median(item *a, int64_t n, int64_t *ret_low,
                                int64_t *ret_high)
{
    int64_t low = 1, high = n - 1;
    uint64_t pivot;

    swap(a + high / 2, a + 1);
    order_pair(a + 1, a + high);
    order_pair(a, a + high);
    order_pair(a + 1, a);
    pivot = a[0].key;
    for (;;) {
        do
            low++;
        while (a[low].key < pivot);
        do
            high--;
        while (pivot < a[high].key);
        if (high < low)
            break;
        swap(a + low, a + high);
    }
    swap(a, a + high);
    *ret_low = low;
    *ret_high = high;
}

void pst_sort_kth(struct pst_sort_pair *a, int64_t n, int64_t k)
{
    int64_t begin = 0, end = n;

    while (end - begin > 2) {
        int64_t low, high;

        partition_by_median(a + begin, end - begin, &low, &high);
        if (begin + high >= k)
            end = begin + high;
        if (begin + high <= k)
            begin += low; /* ends the loop if k is the pivot's position */
    }
    if (end - begin == 2)
        order_pair(a + begin, a + begin + 1);
}
