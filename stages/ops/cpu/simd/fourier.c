// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/complex/fourier.h"

#include "stages/ops/cpu/simd/simd.h"

#include <string.h>

/*
 * A pass of radix r divides transforms of length r m, of which there are s side
 * by side, into r times as many of length m:
 *     y[q, j, p] = w^(p j) sum over k of x[q, p + m k] u^(j k)
 * with w = exp(-2 pi i / (r m)), u = exp(-2 pi i / r). q < s is the innermost
 * index; the outer one is p + m k in x and r p + j in y.
 */
struct pass {
    int64_t m, s;
    int64_t length;
    const double *cos, *sin; /* table for the length: exp(-2 pi i t / length) */
    const double *xr, *xi;
    double *yr, *yi;
};

static void pass_4(const struct pass *p)
{
    const int64_t s = p->s, step = p->m * s;

    for (int64_t t = 0; t < p->m; t++) {
        const double c1 = p->cos[t * s], s1 = p->sin[t * s];
        const double c2 = p->cos[2 * t * s], s2 = p->sin[2 * t * s];
        const double c3 = p->cos[3 * t * s], s3 = p->sin[3 * t * s];
        const double *restrict xr = p->xr + t * s, *restrict xi = p->xi + t * s;
        double *restrict yr = p->yr + 4 * t * s, *restrict yi =
                                                     p->yi + 4 * t * s;

        for (int64_t q = 0; q < s; q++) {
            const double ar = xr[q], ai = xi[q];
            const double br = xr[q + step], bi = xi[q + step];
            const double cr = xr[q + 2 * step], ci = xi[q + 2 * step];
            const double dr = xr[q + 3 * step], di = xi[q + 3 * step];
            const double er = ar + cr, ei = ai + ci, fr = ar - cr, fi = ai - ci;
            const double gr = br + dr, gi = bi + di, hr = br - dr, hi = bi - di;
            const double y1r = fr + hi, y1i = fi - hr;
            const double y2r = er - gr, y2i = ei - gi;
            const double y3r = fr - hi, y3i = fi + hr;

            yr[q] = er + gr;
            yi[q] = ei + gi;
            yr[q + s] = c1 * y1r - s1 * y1i;
            yi[q + s] = c1 * y1i + s1 * y1r;
            yr[q + 2 * s] = c2 * y2r - s2 * y2i;
            yi[q + 2 * s] = c2 * y2i + s2 * y2r;
            yr[q + 3 * s] = c3 * y3r - s3 * y3i;
            yi[q + 3 * s] = c3 * y3i + s3 * y3r;
        }
    }
}

/* y += (c + i s) x */
static void add_scaled(int64_t n, double c, double s, const double *restrict xr,
                       const double *restrict xi, double *restrict yr,
                       double *restrict yi)
{
    for (int64_t q = 0; q < n; q++) {
        yr[q] += c * xr[q] - s * xi[q];
        yi[q] += c * xi[q] + s * xr[q];
    }
}

static void scale_complex(int64_t n, double c, double s, double *restrict yr,
                          double *restrict yi)
{
    for (int64_t q = 0; q < n; q++) {
        const double r = yr[q];

        yr[q] = c * r - s * yi[q];
        yi[q] = c * yi[q] + s * r;
    }
}

/* x *= w */
static void multiply_table(int64_t n, const double *restrict wr,
                           const double *restrict wi, double *restrict xr,
                           double *restrict xi)
{
    for (int64_t i = 0; i < n; i++) {
        const double r = xr[i];

        xr[i] = wr[i] * r - wi[i] * xi[i];
        xi[i] = wr[i] * xi[i] + wi[i] * r;
    }
}

static void pass_any(const struct pass *p, int radix)
{
    const int64_t s = p->s, turn = p->length / radix;
    const size_t bytes = (size_t)s * sizeof(double);

    for (int64_t t = 0; t < p->m; t++)
        for (int j = 0; j < radix; j++) {
            double *yr = p->yr + (radix * t + j) * s;
            double *yi = p->yi + (radix * t + j) * s;

            memcpy(yr, p->xr + t * s, bytes);
            memcpy(yi, p->xi + t * s, bytes);
            for (int k = 1; k < radix; k++) {
                const int64_t at = (t + p->m * k) * s;
                const int64_t w = j * k % radix * turn;

                add_scaled(s, p->cos[w], p->sin[w], p->xr + at, p->xi + at, yr,
                           yi);
            }
            if (j > 0 && t > 0)
                scale_complex(s, p->cos[t * j * s], p->sin[t * j * s], yr, yi);
        }
}

/* Runs all passes, from (xr, xi) to (yr, yi) and back in turn; true if the
 * result is in (yr, yi). */
static bool run_passes(const struct pst_fourier *f, const double *roots,
                       double *xr, double *xi, double *yr, double *yi)
{
    struct pass p = {.m = f->length,
                     .s = 1,
                     .length = f->length,
                     .cos = roots,
                     .sin = roots + f->length};

    for (unsigned i = 0; i < f->n_passes; i++) {
        p.m /= f->radix[i];
        p.xr = i % 2 == 0 ? xr : yr;
        p.xi = i % 2 == 0 ? xi : yi;
        p.yr = i % 2 == 0 ? yr : xr;
        p.yi = i % 2 == 0 ? yi : xi;
        if (f->radix[i] == 4)
            pass_4(&p);
        else
            pass_any(&p, f->radix[i]);
        p.s *= f->radix[i];
    }
    return f->n_passes % 2 == 1;
}

const double *PST_SIMD(pst_fourier_run)(const struct pst_fourier *f,
                                        const double *table, double *scratch)
{
    const int64_t n = f->n, m = f->length;
    double *x = scratch, *y = scratch + 2 * m;
    const double *chirp = table + 2 * m, *kernel = chirp + 2 * n;

    if (n == m)
        return run_passes(f, table, x, x + m, y, y + m) ? y : x;
    multiply_table(n, chirp, chirp + n, x, x + m);
    memset(x + n, 0, (size_t)(m - n) * sizeof(*x));
    memset(x + m + n, 0, (size_t)(m - n) * sizeof(*x));
    if (run_passes(f, table, x, x + m, y, y + m)) {
        double *was = x;

        x = y;
        y = was;
    }
    multiply_table(m, kernel, kernel + m, x, x + m);
    /* The inverse transform is the same one with real and imaginary parts
     * swapped. */
    if (run_passes(f, table, x + m, x, y + m, y)) {
        double *was = x;

        x = y;
        y = was;
    }
    multiply_table(n, chirp, chirp + n, x, x + m);
    return x;
}
