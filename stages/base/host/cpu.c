// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/cpu.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[PST_N_ISAS] = {"any", "avx2", "avx512"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static enum pst_isa best;
static char features[256];
static unsigned count;

/* True if PST_HIDE, such as "amx avx512_bf16", contains the name of the feature
 * or the beginning of it. */
static int is_hidden(const char *name)
{
    const char *at = getenv("PST_HIDE");

    while (at != NULL && *at != '\0') {
        const size_t n = strcspn(at, " ");

        if (n > 0 && strncmp(name, at, n) == 0)
            return 1;
        at += n + strspn(at + n, " ");
    }
    return 0;
}

static void add_feature(const char *name, int have)
{
    if (!have || is_hidden(name))
        return;
    if (features[0])
        strncat(features, " ", sizeof(features) - strlen(features) - 1);
    strncat(features, name, sizeof(features) - strlen(features) - 1);
}

#if defined(__x86_64__)
/* Asks cpuid: clang 14 has no name for this feature. */
static int has_f16c(void)
{
    unsigned a, b, c = 0, d;

    return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & bit_F16C) != 0;
}
#endif

/* Detects the best instruction set. The compiler's runtime reads cpuid and
 * xgetbv: a set whose registers the operating system does not save counts as
 * absent. */
static enum pst_isa detect_isa(void)
{
#if defined(__x86_64__)
    int avx2, avx512;

    __builtin_cpu_init();
    avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
           has_f16c();
    avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
             __builtin_cpu_supports("avx512bw") &&
             __builtin_cpu_supports("avx512dq") &&
             __builtin_cpu_supports("avx512vl") &&
             __builtin_cpu_supports("avx512cd");
    add_feature("amd", __builtin_cpu_is("amd") != 0);
    add_feature("avx2", __builtin_cpu_supports("avx2") != 0);
    add_feature("fma", __builtin_cpu_supports("fma") != 0);
    add_feature("f16c", has_f16c());
    add_feature("avx512f", __builtin_cpu_supports("avx512f") != 0);
    add_feature("avx512bw", __builtin_cpu_supports("avx512bw") != 0);
    add_feature("avx512dq", __builtin_cpu_supports("avx512dq") != 0);
    add_feature("avx512vl", __builtin_cpu_supports("avx512vl") != 0);
    add_feature("avx512cd", __builtin_cpu_supports("avx512cd") != 0);
    add_feature("avx512vnni", __builtin_cpu_supports("avx512vnni") != 0);
    add_feature("avx512_bf16", __builtin_cpu_supports("avx512bf16") != 0);
#if defined(__GNUC__) && !defined(__clang__)
    add_feature("amx_tile", __builtin_cpu_supports("amx-tile") != 0);
    add_feature("amx_bf16", __builtin_cpu_supports("amx-bf16") != 0);
#endif
    return avx512 ? PST_ISA_AVX512 : avx2 ? PST_ISA_AVX2 : PST_ISA_ANY;
#else
    add_feature("none", 1);
    return PST_ISA_ANY;
#endif
}

static void read_cpu(void)
{
    const char *mask = getenv("PST_ISA");
    cpu_set_t set;

    best = detect_isa();
    for (int i = 0; mask && i < PST_N_ISAS; i++) {
        if (strcmp(mask, names[i]) == 0)
            best = PST_MIN(best, (enum pst_isa)i);
    }
    count = 1;
    if (sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) > 0)
        count = (unsigned)CPU_COUNT(&set);
}

enum pst_isa pst_cpu_isa(void)
{
    pthread_once(&once, read_cpu);
    return best;
}

const char *pst_isa_name(enum pst_isa isa)
{
    return (unsigned)isa < PST_N_ISAS ? names[isa] : "?";
}

const char *pst_cpu_features(void)
{
    pthread_once(&once, read_cpu);
    return features;
}

unsigned pst_cpu_count(void)
{
    pthread_once(&once, read_cpu);
    return count;
}
