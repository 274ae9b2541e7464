// SPDX-License-Identifier: Apache-2.0
#ifndef PENSTOCK_STAGES_BASE_HOST_LOG_H
#define PENSTOCK_STAGES_BASE_HOST_LOG_H
/*
 * Debug log of the library: debug and trace only (CONTRIBUTING.md, rule 14).
 * The daemon installs a sink that writes the lines to its log file; without a
 * sink, PST_LOG=debug prints to standard error. Thread-safe. The topic is the
 * folder of the source.
 */
#include "stages/base/macros.h"

enum pst_log_level {
    PST_LOG_ERROR,
    PST_LOG_WARN,
    PST_LOG_INFO,
    PST_LOG_DEBUG,
    PST_LOG_TRACE,
};

typedef void (*pst_log_sink_fn)(void *ctx, enum pst_log_level level,
                                const char *topic, const char *text);

void pst_log_set_sink(pst_log_sink_fn sink, void *ctx);
int pst_log_enabled(enum pst_log_level level);
void pst_log(enum pst_log_level level, const char *topic, const char *fmt, ...)
    PST_PRINTF(3, 4);

#define pst_debug(topic, ...)                                                  \
    do {                                                                       \
        if (pst_log_enabled(PST_LOG_DEBUG))                                    \
            pst_log(PST_LOG_DEBUG, topic, __VA_ARGS__);                        \
    } while (0)

#endif
