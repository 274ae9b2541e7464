// SPDX-License-Identifier: Apache-2.0
/* Compares a tensor with what the case expects. cases.py describes the rules at
 * its top. */
#include "tests/cases/case.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool compare_fail(const struct trial *t, const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    vsnprintf(t->text, t->size, fmt, args);
    va_end(args);
    return false;
}

static double json_number(const json_t *object, const char *key,
                          double otherwise)
{
    const json_t *value = json_object_get(object, key);

    return json_is_number(value) ? json_number_value(value) : otherwise;
}

static double element_at(const struct got *g, int64_t i)
{
    return pst_load_f64(g->meta.dtype, g->data, pst_meta_offset(&g->meta, i));
}

static bool is_close(double have, double want, double rtol, double atol)
{
    if (isnan(want) || isnan(have))
        return isnan(want) && isnan(have);
    if (isinf(want) || isinf(have))
        return want == have;
    return fabs(have - want) <= atol + rtol * fabs(want);
}

/* Returns an aligned copy of the data; free with free(). Entries in files of
 * other programs may be unaligned. */
static void *copy_aligned(const struct pst_safetensors_entry *e)
{
    void *copy = malloc(e->bytes + 1);

    if (copy != NULL && e->bytes > 0)
        memcpy(copy, e->data, e->bytes);
    return copy;
}

static bool compare_values(const struct trial *t, const char *name,
                           const struct got *got, const struct got *want,
                           bool gradient)
{
    const json_t *spec = t->spec;
    const double rtol = json_number(spec, gradient ? "grad_rtol" : "rtol", 0.0);
    const double atol = json_number(spec, gradient ? "grad_atol" : "atol", 0.0);
    const bool whole = pst_dtype_kind(want->meta.dtype) != PST_KIND_FLOAT;

    for (int64_t i = 0; i < pst_meta_numel(&want->meta); i++) {
        const int64_t o = pst_meta_offset(&got->meta, i);

        if (whole) {
            const int64_t a = pst_load_i64(got->meta.dtype, got->data, o);
            const int64_t b = pst_load_i64(want->meta.dtype, want->data, i);

            if (a != b)
                return compare_fail(t, "%s[%lld] is %lld, not %lld", name,
                                    (long long)i, (long long)a, (long long)b);
        } else if (!is_close(element_at(got, i), element_at(want, i), rtol,
                             atol)) {
            return compare_fail(t, "%s[%lld] is %.17g, not %.17g", name,
                                (long long)i, element_at(got, i),
                                element_at(want, i));
        }
    }
    return true;
}

/* Compares the norm of the error against the float64 result, for a tensor with
 * a limit of its own. */
static bool compare_norm(const struct trial *t, const char *name,
                         const struct got *got, double limit)
{
    const struct pst_safetensors_entry *e;
    struct got want = {0};
    double sum = 0.0;
    char key[300];

    (void)snprintf(key, sizeof(key), "exact.%s", name);
    e = pst_safetensors_find(t->given, key);
    if (e == NULL || pst_meta_numel(&e->meta) != pst_meta_numel(&got->meta))
        return compare_fail(t, "the case has no %s like %s", key, name);
    want.meta = e->meta;
    want.data = copy_aligned(e);
    if (want.data == NULL)
        return compare_fail(t, "out of memory");
    for (int64_t i = 0; i < pst_meta_numel(&e->meta); i++) {
        const double off = element_at(got, i) - element_at(&want, i);

        sum += off * off;
    }
    free((void *)want.data);
    return sqrt(sum) <= limit || /* NaN counts as wrong */
           compare_fail(t, "%s is off by %.3g, which may be %.3g", name,
                        sqrt(sum), limit);
}

/* Compares only the dtype and shape of an output, which are in cases.json. */
static bool compare_meta(const struct trial *t, const char *name,
                         const struct got *got)
{
    const json_t *outputs = json_object_get(t->spec, "outputs");
    const json_t *want, *shape;
    const char *dtype;

    if (strncmp(name, "out.", 4) != 0)
        return true;
    want = json_array_get(outputs, (size_t)atoi(name + 4));
    shape = json_object_get(want, "shape");
    dtype = json_string_value(json_object_get(want, "dtype"));
    if (dtype == NULL || strcmp(pst_dtype_name(got->meta.dtype), dtype) != 0)
        return compare_fail(t, "%s is %s, not %s", name,
                            pst_dtype_name(got->meta.dtype), dtype);
    if (json_array_size(shape) != got->meta.rank)
        return compare_fail(t, "%s has rank %u", name, got->meta.rank);
    for (unsigned d = 0; d < got->meta.rank; d++)
        if (json_integer_value(json_array_get(shape, d)) != got->meta.size[d])
            return compare_fail(t, "dimension %u of %s is %lld", d, name,
                                (long long)got->meta.size[d]);
    return true;
}

static bool is_zero(const struct got *g)
{
    for (int64_t i = 0; i < pst_meta_numel(&g->meta); i++)
        if (element_at(g, i) != 0.0)
            return false;
    return true;
}

/* True if the program writes the input whose gradient this is. PyTorch has no
 * gradient for it: the input was not a leaf. */
static bool is_written(const struct trial *t, const char *grad)
{
    const json_t *written = json_object_get(t->spec, "written");

    for (size_t i = 0; i < json_array_size(written); i++)
        if (strcmp(json_string_value(json_array_get(written, i)),
                   grad + strlen("grad.")) == 0)
            return true;
    return false;
}

static bool is_right(const struct trial *t, const char *name,
                     const struct got *got, bool gradient)
{
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(t->given, name);
    const char *kind = json_string_value(json_object_get(t->spec, "kind"));
    const json_t *limits = json_object_get(t->spec, "limits");
    char a[PST_META_TEXT], b[PST_META_TEXT];
    struct got want = {0};
    bool ok;

    if (e == NULL && got->data == NULL)
        return true;
    if (!gradient && got->data != NULL &&
        (strcmp(kind, "meta") == 0 || strcmp(kind, "stat") == 0))
        return compare_meta(t, name, got);
    if (e == NULL) /* a missing gradient means zeros */
        return (gradient && (is_zero(got) || is_written(t, name))) ||
               compare_fail(t, "%s is not expected", name);
    want.meta = e->meta;
    want.data = copy_aligned(e);
    if (want.data == NULL)
        return compare_fail(t, "out of memory");
    if (got->data == NULL)
        ok = (gradient && is_zero(&want)) ||
             compare_fail(t, "%s is missing", name);
    else if (!pst_meta_same(&got->meta, &e->meta))
        ok = compare_fail(t, "%s is %s, not %s", name,
                          pst_meta_text(&got->meta, a),
                          pst_meta_text(&e->meta, b));
    else if (limits != NULL)
        ok = compare_norm(t, name, got, json_number(limits, name, -1.0));
    else
        ok = compare_values(t, name, got, &want, gradient);
    free((void *)want.data);
    return ok;
}

bool compare_tensor(const struct trial *t, const char *name,
                    const struct got *got, bool gradient)
{
    return is_right(t, name, got, gradient) ||
           excuses_use(t->excuses,
                       json_string_value(json_object_get(t->spec, "case")),
                       name);
}

/* --- random operators ----------------------------------------------------- */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

static bool check_moments(const struct trial *t, const json_t *check,
                          const double *x, size_t n)
{
    const double tol = json_number(check, "tol", 0.05);
    double mean = 0.0, var = 0.0, zeros = 0.0;

    for (size_t i = 0; i < n; i++) {
        mean += x[i];
        zeros += (x[i] == 0.0) / (double)n;
    }
    mean /= (double)PST_MAX(n, (size_t)1);
    for (size_t i = 0; i < n; i++)
        var += (x[i] - mean) * (x[i] - mean) / (double)n;
    if (json_object_get(check, "mean") &&
        !(fabs(mean - json_number(check, "mean", 0)) <= tol))
        return compare_fail(t, "the mean is %g", mean);
    if (json_object_get(check, "std") &&
        !(fabs(sqrt(var) - json_number(check, "std", 0)) <=
          json_number(check, "std_tol", tol)))
        return compare_fail(t, "the deviation is %g", sqrt(var));
    if (json_object_get(check, "zero") &&
        !(fabs(zeros - json_number(check, "zero", 0)) <= tol))
        return compare_fail(t, "%g of it are zeros", zeros);
    return true;
}

static bool is_among(const json_t *values, double x)
{
    for (size_t i = 0; i < json_array_size(values); i++)
        if (json_number_value(json_array_get(values, i)) == x)
            return true;
    return values == NULL;
}

static bool check_range(const struct trial *t, const json_t *check,
                        const double *x, size_t n)
{
    const json_t *values = json_object_get(check, "values");
    const bool integer = json_is_true(json_object_get(check, "integer"));

    for (size_t i = 0; i < n; i++)
        if (!(x[i] >= json_number(check, "min", -INFINITY)) ||
            !(x[i] <= json_number(check, "max", INFINITY)) ||
            !(x[i] < json_number(check, "below", INFINITY) ||
              json_object_get(check, "below") == NULL) ||
            (integer && x[i] != floor(x[i])) || !is_among(values, x[i]))
            return compare_fail(t, "%g is out of range", x[i]);
    return true;
}

/* Sorts rows of length m and checks what the case requires: a permutation of
 * 0..m-1, no duplicates in a row, or the median. */
static bool check_order(const struct trial *t, const json_t *check, double *x,
                        size_t n, size_t m)
{
    const json_t *median = json_object_get(check, "median");

    if (json_object_get(check, "permutation") || median != NULL)
        m = n;
    for (size_t row = 0; m > 0 && row + m <= n; row += m)
        qsort(x + row, m, sizeof(*x), ascending);
    if (median != NULL && !(fabs(x[n / 2] - json_number_value(median)) <=
                            json_number(check, "tol", 0.05)))
        return compare_fail(t, "the median is %g", x[n / 2]);
    for (size_t i = 0; i < n; i++) {
        if (json_object_get(check, "permutation") && x[i] != (double)i)
            return compare_fail(t, "this is not a permutation");
        if (json_object_get(check, "rows_differ") && i % m > 0 &&
            x[i] == x[i - 1])
            return compare_fail(t, "%g is twice in a row", x[i]);
    }
    return true;
}

/* Checks that each non-zero element of the output is that of in.x times `kept`,
 * and that the gradient is `kept` there and 0 elsewhere. */
static bool check_kept(const struct trial *t, double kept,
                       const struct got *out, const struct got *grad)
{
    const struct pst_safetensors_entry *e =
        pst_safetensors_find(t->given, "in.x");
    struct got in = {0};
    const char *bad = NULL;

    if (e == NULL)
        return compare_fail(t, "there is no in.x");
    in.meta = e->meta;
    in.data = copy_aligned(e);
    for (int64_t i = 0; in.data != NULL && i < pst_meta_numel(&e->meta); i++) {
        const bool gone = element_at(out, i) == 0.0;

        if (!gone && !is_close(element_at(out, i), element_at(&in, i) * kept,
                               0.01, 1e-6))
            bad = "a kept element is not scaled";
        if (grad->data != NULL &&
            !is_close(element_at(grad, i), gone ? 0.0 : kept, 0.01, 1e-6))
            bad = "the gradient is not that of the mask";
    }
    free((void *)in.data);
    return bad == NULL || compare_fail(t, "%s", bad);
}

static bool check_mask(const struct trial *t, const struct got *out,
                       const struct got *mask)
{
    for (int64_t i = 0; i < pst_meta_numel(&mask->meta); i++)
        if ((element_at(out, i) != 0.0) != (element_at(mask, i) != 0.0))
            return compare_fail(t, "the mask is not that of the output");
    return true;
}

static bool check_slices(const struct trial *t, unsigned dim,
                         const struct got *out, const double *x, size_t n)
{
    size_t inner = 1;

    for (unsigned d = dim; d < out->meta.rank; d++)
        inner *= (size_t)out->meta.size[d];
    for (size_t i = 0; i < n; i++)
        if ((x[i] == 0.0) != (x[i - i % inner] == 0.0))
            return compare_fail(t, "a slice is zero in part");
    return true;
}

static bool apply_check(const struct trial *t, const json_t *check,
                        const struct got *out, size_t n_out,
                        const struct got *grad_x)
{
    const size_t which = (size_t)json_number(check, "out", 0);
    const struct got *g = &out[which];
    const json_t *equals = json_object_get(check, "equals");
    const json_t *mask = json_object_get(check, "mask");
    const json_t *slices = json_object_get(check, "slices");
    const double kept = json_number(check, "kept", NAN);
    size_t n, row;
    double *x;
    bool ok;

    if (which >= n_out || g->data == NULL)
        return compare_fail(t, "out.%zu is missing", which);
    n = (size_t)pst_meta_numel(&g->meta);
    row = g->meta.rank > 0 ? (size_t)g->meta.size[g->meta.rank - 1] : 1;
    x = malloc((n + 1) * sizeof(*x));
    if (x == NULL)
        return compare_fail(t, "out of memory");
    for (size_t i = 0; i < n; i++)
        x[i] = element_at(g, (int64_t)i);
    ok = check_moments(t, check, x, n) && check_range(t, check, x, n) &&
         (isnan(kept) || check_kept(t, kept, g, grad_x)) &&
         (mask == NULL ||
          check_mask(t, &out[0], &out[json_integer_value(mask)])) &&
         (slices == NULL ||
          check_slices(t, (unsigned)json_integer_value(slices), g, x, n)) &&
         check_order(t, check, x, n, row);
    free(x);
    if (ok && equals != NULL) {
        char name[300];
        struct got want = {0};
        const struct pst_safetensors_entry *e;

        snprintf(name, sizeof(name), "in.%s", json_string_value(equals));
        e = pst_safetensors_find(t->given, name);
        if (e == NULL)
            return compare_fail(t, "%s is missing", name);
        want.meta = e->meta;
        want.data = copy_aligned(e);
        ok = compare_values(t, "out.0", g, &want, false);
        free((void *)want.data);
    }
    return ok;
}

bool apply_checks(const struct trial *t, const struct got *out, size_t n,
                  const struct got *grad_x)
{
    const json_t *checks = json_object_get(t->spec, "checks");

    for (size_t i = 0; i < json_array_size(checks); i++)
        if (!apply_check(t, json_array_get(checks, i), out, n, grad_x))
            return false;
    return true;
}
