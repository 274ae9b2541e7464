// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/complex/fourier.h"

#include "stages/base/macros.h"

#include <math.h>
#include <string.h>

#define PI 3.14159265358979323846

struct pst_fourier pst_fourier_plan(int64_t n)
{
    static const int factors[] = {4, 2, 3, 5, 7, 11, PST_FOURIER_RADIX};
    struct pst_fourier f = {.n = n, .length = n};
    int64_t left = n;

    /* Radix 4 goes first: later passes then have more transforms side by side,
     * over which the loops are vectorised. */
    for (unsigned i = 0; i < PST_COUNT(factors); i++)
        for (; left % factors[i] == 0; left /= factors[i])
            f.radix[f.n_passes++] = factors[i];
    if (left == 1)
        return f;
    f.n_passes = 0;
    for (f.length = 1; f.length < 2 * n - 1;) {
        const int radix = 2 * n - 1 > 2 * f.length ? 4 : 2;

        f.length *= radix;
        f.radix[f.n_passes++] = radix;
    }
    return f;
}

int64_t pst_fourier_table_size(const struct pst_fourier *f)
{
    return f->n == f->length ? 2 * f->length : 4 * f->length + 2 * f->n;
}

int64_t pst_fourier_scratch(const struct pst_fourier *f)
{
    return 4 * f->length;
}

/* Computes exp(-2 pi i t / n) for 0 <= t < n, from an angle up to pi / 4. */
static void compute_root(int64_t t, int64_t n, double *re, double *im)
{
    const int64_t quarter = 4 * t / n, rest = 4 * t % n;
    const int64_t near = 2 * rest > n ? n - rest : rest;
    const double angle = PI / 2 * ((double)near / (double)n);
    const double a = near == rest ? cos(angle) : sin(angle);
    const double b = near == rest ? sin(angle) : cos(angle);

    *re = quarter == 0 ? a : quarter == 1 ? -b : quarter == 2 ? -a : b;
    *im = quarter == 0 ? -b : quarter == 1 ? -a : quarter == 2 ? b : a;
}

void pst_fourier_table(const struct pst_fourier *f, double *table,
                       double *scratch)
{
    const int64_t n = f->n, m = f->length;
    double *chirp = table + 2 * m, *kernel = chirp + 2 * n;
    struct pst_fourier inner = *f;
    const double *y;

    for (int64_t t = 0; t < m; t++)
        compute_root(t, m, &table[t], &table[m + t]);
    if (n == m)
        return;
    for (int64_t j = 0; j < n; j++)
        compute_root(j * j % (2 * n), 2 * n, &chirp[j], &chirp[n + j]);
    /* The kernel of the convolution in Bluestein's algorithm: the transform of
     * the conjugate chirp for both signs of j, scaled by the 1 / m of the
     * inverse transform. */
    memset(scratch, 0, (size_t)(2 * m) * sizeof(*scratch));
    for (int64_t j = 0; j < n; j++) {
        const int64_t at[2] = {j, (m - j) % m};

        for (int i = 0; i < 2; i++) {
            scratch[at[i]] = chirp[j] / (double)m;
            scratch[m + at[i]] = -chirp[n + j] / (double)m;
        }
    }
    inner.n = m;
    y = pst_fourier_run_any(&inner, table, scratch);
    memcpy(kernel, y, (size_t)(2 * m) * sizeof(*y));
}
