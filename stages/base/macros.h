// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_MACROS_H
#define PENSTOCK_STAGES_BASE_MACROS_H
/* Compiler attributes; the only file that may spell them out. */
#include <stddef.h>

#define PST_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define PST_MUST_CHECK        __attribute__((warn_unused_result))
#define PST_UNUSED            __attribute__((unused))
#define PST_ALIGNED(n)        __attribute__((aligned(n)))
/* Large, of which the part that is used is written first: the compiler would
 * zero all of it each time (-ftrivial-auto-var-init). */
#define PST_UNINIT __attribute__((uninitialized))
/* Keeps what is rare out of what is frequent. */
#define PST_NOINLINE      __attribute__((noinline))
#define PST_ALWAYS_INLINE __attribute__((always_inline)) inline
/* Declared here, perhaps missing in the library: NULL then. */
#define PST_WEAK __attribute__((weak))
/* Compiled for processors that have this; others must not call it. */
#define PST_TARGET(isa) __attribute__((target(isa)))
/* PST_INDEPENDENT: turns of the next loop do not depend on each other.
 * PST_OPTIMIZED: a function with more registers than an unoptimized build
 * has room for. */
#if defined(__clang__)
#define PST_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define PST_OPTIMIZED
#else
#define PST_INDEPENDENT _Pragma("GCC ivdep")
#define PST_OPTIMIZED   __attribute__((optimize("O2")))
#endif
/* Runs before main. */
#define PST_CONSTRUCTOR __attribute__((constructor))
/* Type of several floats that may lie at any address of a float. */
#define PST_VECTOR(bytes)                                                      \
    __attribute__((vector_size(bytes), aligned(4), may_alias))
#define PST_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PST_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define PST_MAX(a, b)    ((a) > (b) ? (a) : (b))

#endif
