// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/cpu/simd/loops.h"

#include "stages/ops/cpu/simd/loop_math.h"

/* --- loops ---------------------------------------------------------------- */

/* Loops over elements; the operands in the mask `fix` are one number each. */
#define FORM(n_args, fix, T0, T, R, from, to, expr)                            \
    do {                                                                       \
        PST_INDEPENDENT for (int64_t i = (from); i < (to); i++)                \
        {                                                                      \
            const T0 a PST_UNUSED = (fix)&1 ? a0 : pa[i];                      \
            const T b PST_UNUSED =                                             \
                (n_args) > 1 ? ((fix)&2 ? b0 : pb[i]) : (T)0;                  \
            const T c PST_UNUSED =                                             \
                (n_args) > 2 ? ((fix)&4 ? c0 : pc[i]) : (T)0;                  \
                                                                               \
            py[i] = (R)(expr);                                                 \
        }                                                                      \
    } while (0)

#define FORMS(n_args, T0, T, R, from, to, expr)                                \
    do {                                                                       \
        if ((n_args) == 2 && fixed == 1)                                       \
            FORM(n_args, 1, T0, T, R, from, to, expr);                         \
        else if ((n_args) == 2 && fixed == 2)                                  \
            FORM(n_args, 2, T0, T, R, from, to, expr);                         \
        else if ((n_args) == 3 && fixed == 4)                                  \
            FORM(n_args, 4, T0, T, R, from, to, expr);                         \
        else                                                                   \
            FORM(n_args, 0, T0, T, R, from, to, expr);                         \
    } while (0)

#define DEFINE(name, n_args, T0, T, R, body)                                   \
    void PST_SIMD(pst_loop_##name)(int64_t n, const void *const *x,            \
                                   unsigned fixed, const float *s, void *y)    \
    {                                                                          \
        const T0 *pa = x[0];                                                   \
        const T *pb = (n_args) > 1 ? x[1] : NULL;                              \
        const T *pc = (n_args) > 2 ? x[2] : NULL;                              \
        const T0 a0 PST_UNUSED = pa[0];                                        \
        const T b0 PST_UNUSED = (n_args) > 1 ? pb[0] : (T)0;                   \
        const T c0 PST_UNUSED = (n_args) > 2 ? pc[0] : (T)0;                   \
        const float s0 PST_UNUSED = s[0], s1 PST_UNUSED = s[1];                \
        const float s2 PST_UNUSED = s[2];                                      \
        R *py = y;                                                             \
                                                                               \
        (void)fixed;                                                           \
        body;                                                                  \
    }

/* Elements that are tested for `ok` together, before they are computed. */
#define CHUNK 1024

#define COUNT_BAD(n_args, to, ok)                                              \
    for (int64_t i = at; i < (to); i++) {                                      \
        const float a PST_UNUSED = fixed & 1 ? a0 : pa[i];                     \
        const float b PST_UNUSED =                                             \
            (n_args) > 1 ? (fixed & 2 ? b0 : pb[i]) : 0.0f;                    \
                                                                               \
        bad += !(ok);                                                          \
    }

#define CHUNKS(n_args, expr, ok, other)                                        \
    for (int64_t at = 0; at < n; at += CHUNK) {                                \
        const int64_t to = n - at < CHUNK ? n : at + CHUNK;                    \
        int bad = 0;                                                           \
                                                                               \
        COUNT_BAD(n_args, to, ok)                                              \
        if (bad == 0)                                                          \
            FORMS(n_args, float, float, float, at, to, expr);                  \
        else                                                                   \
            FORMS(n_args, float, float, float, at, to, other);                 \
    }

#define LOOP(name, n_args, expr)                                               \
    DEFINE(name, n_args, float, float, float,                                  \
           FORMS(n_args, float, float, float, 0, n, expr))
#define GUARDED(name, n_args, expr, ok, slow)                                  \
    DEFINE(name, n_args, float, float, float,                                  \
           CHUNKS(n_args, expr, ok, (ok) ? (expr) : (slow)))
#define RANGED(name, n_args, expr, ok, slow)                                   \
    DEFINE(name, n_args, float, float, float, CHUNKS(n_args, expr, ok, slow))
#define QUESTION(name, n_args, expr)                                           \
    DEFINE(name, n_args, float, float, uint8_t,                                \
           FORMS(n_args, float, float, uint8_t, 0, n, expr))
#define LOGIC(name, n_args, expr)                                              \
    DEFINE(name, n_args, uint8_t, uint8_t, uint8_t,                            \
           FORMS(n_args, uint8_t, uint8_t, uint8_t, 0, n, expr))
#define INTEGER(name, n_args, expr)                                            \
    DEFINE(name, n_args, int64_t, int64_t, int64_t,                            \
           FORMS(n_args, int64_t, int64_t, int64_t, 0, n, expr))
#define COMPARE(name, n_args, expr)                                            \
    DEFINE(name, n_args, int64_t, int64_t, uint8_t,                            \
           FORMS(n_args, int64_t, int64_t, uint8_t, 0, n, expr))
#define CHOICE(name, expr)                                                     \
    DEFINE(name, 3, uint8_t, float, float,                                     \
           FORMS(3, uint8_t, float, float, 0, n, expr))
#include "stages/ops/cpu/simd/loops.def"
