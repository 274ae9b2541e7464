// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_MACROS_H
#define PENSTOCK_STAGES_BASE_MACROS_H
/* Compiler attributes; no other file spells them out. */
#include <stddef.h>

#define PST_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define PST_MUST_CHECK        __attribute__((warn_unused_result))
#define PST_UNUSED            __attribute__((unused))
#define PST_ALIGNED(n)        __attribute__((aligned(n)))
/* For large variables of which only a written part is read: the compiler would
 * otherwise zero all of it each time (-ftrivial-auto-var-init). */
#define PST_UNINIT __attribute__((uninitialized))
/* Keeps rare code out of a hot function. */
#define PST_NOINLINE      __attribute__((noinline))
#define PST_ALWAYS_INLINE __attribute__((always_inline)) inline
/* Marks a symbol that the library may lack; its address is then NULL. */
#define PST_WEAK __attribute__((weak))
/* Compiles a function for processors with this feature; the function must not
 * be called on others. */
#define PST_TARGET(isa) __attribute__((target(isa)))
/* PST_INDEPENDENT: iterations of the next loop are independent. PST_OPTIMIZED:
 * compiles a function with optimization also in unoptimized builds, which
 * cannot allocate the registers that it needs. */
#if defined(__clang__)
#define PST_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#define PST_OPTIMIZED
#else
#define PST_INDEPENDENT _Pragma("GCC ivdep")
#define PST_OPTIMIZED   __attribute__((optimize("O2")))
#endif
/* Marks a function that runs before main. */
#define PST_CONSTRUCTOR __attribute__((constructor))
/* Lets a function (int argc, char **argv, char **environment) of a program run
 * before the constructors of its libraries. */
#define PST_BEFORE_LIBRARIES(function)                                         \
    static void (*const pst_before_libraries)(int, char **, char **)           \
        __attribute__((section(".preinit_array"), used)) = (function)
/* Vector of floats without alignment beyond that of a float. */
#define PST_VECTOR(bytes)                                                      \
    __attribute__((vector_size(bytes), aligned(4), may_alias))
#define PST_COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define PST_MIN(a, b)    ((a) < (b) ? (a) : (b))
#define PST_MAX(a, b)    ((a) > (b) ? (a) : (b))

#endif
