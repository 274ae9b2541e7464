// SPDX-License-Identifier: Apache-2.0
#include "stages/base/host/log.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[] = {"error", "warn", "info", "debug", "trace"};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_int threshold = PST_LOG_WARN;
static pst_log_sink_fn sink; /* guarded by `lock` */
static void *sink_ctx;       /* guarded by `lock` */

static void read_environment(void)
{
    const char *text = getenv("PST_LOG");

    for (int i = 0; text && i < (int)PST_COUNT(names); i++) {
        if (strcmp(text, names[i]) == 0)
            atomic_store(&threshold, i);
    }
}

void pst_log_set_sink(pst_log_sink_fn new_sink, void *ctx)
{
    pthread_mutex_lock(&lock);
    sink = new_sink;
    sink_ctx = ctx;
    pthread_mutex_unlock(&lock);
}

int pst_log_enabled(enum pst_log_level level)
{
    pthread_once(&once, read_environment);
    return (int)level <= atomic_load_explicit(&threshold, memory_order_relaxed);
}

void pst_log(enum pst_log_level level, const char *topic, const char *fmt, ...)
{
    char text[1024];
    va_list ap;

    if ((unsigned)level >= PST_COUNT(names) || !pst_log_enabled(level))
        return;
    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    pthread_mutex_lock(&lock);
    if (sink)
        sink(sink_ctx, level, topic, text);
    else
        fprintf(stderr, "%s %s: %s\n", names[level], topic, text);
    pthread_mutex_unlock(&lock);
}
