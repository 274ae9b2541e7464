// SPDX-License-Identifier: Apache-2.0
#include "stages/optim/loss_scale.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "stages/base/macros.h"
#include "stages/base/str.h"

/* MOST: the largest power of two in f32, since the scale is the gradient of the
 * loss. LEAST: its inverse is in f32, too. */
#define LEAST    0x1p-60
#define MOST     0x1p127
#define MOST_GAP ((int64_t)1 << 53)

bool pst_loss_scale_is_valid(double scale)
{
    int exponent;

    return scale >= LEAST && scale <= MOST && frexp(scale, &exponent) == 0.5;
}

static enum pst_status refuse_scale(const char *what, const char *value,
                                    struct pst_diag *diag)
{
    return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                        "--loss-scale: %s \"%.40s\" is not a power of two from "
                        "2^-60 to 2^127, such as 1024",
                        what, value);
}

/* Reads "KEY=VALUE", ended by a zero byte. */
static enum pst_status read_key(char *pair, struct pst_loss_scale *ret,
                                struct pst_diag *diag)
{
    char *value = strchr(pair, '=');
    int64_t interval;
    double x = 0;

    if (value != NULL)
        *value++ = '\0';
    if (value != NULL && strcmp(pair, "growth-interval") == 0) {
        if (!pst_parse_i64(value, &interval) || interval < 1 ||
            interval > MOST_GAP)
            return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                                "--loss-scale: growth-interval \"%.40s\" is "
                                "not a number of steps from 1 to 2^53",
                                value);
        ret->interval = (uint64_t)interval;
        return PST_OK;
    }
    if (value == NULL ||
        (strcmp(pair, "init") != 0 && strcmp(pair, "min") != 0))
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--loss-scale: \"%.40s\" is none of auto, none, a "
                            "number, init=X, growth-interval=N and min=X",
                            pair);
    if (!pst_parse_f64(value, &x) || !pst_loss_scale_is_valid(x))
        return refuse_scale(pair, value, diag);
    *(strcmp(pair, "init") == 0 ? &ret->init : &ret->least) = x;
    return PST_OK;
}

/* Reads "KEY=VALUE,...". */
static enum pst_status read_keys(const char *text, struct pst_loss_scale *ret,
                                 struct pst_diag *diag)
{
    enum pst_status status = PST_OK;
    bool is_last = false;

    while (!is_last && status == PST_OK) {
        const size_t n = strcspn(text, ",");
        char pair[80];

        is_last = text[n] == '\0';
        (void)snprintf(pair, sizeof(pair), "%.*s",
                       (int)PST_MIN(n, sizeof(pair) - 1), text);
        status = read_key(pair, ret, diag);
        text += n + !is_last;
    }
    if (status == PST_OK && ret->least > ret->init)
        return pst_diag_set(diag, PST_E_OPTIMIZER_OPTION,
                            "--loss-scale: min=%g is more than init=%g",
                            ret->least, ret->init);
    return status;
}

enum pst_status pst_loss_scale_read(const char *text,
                                    struct pst_loss_scale *ret,
                                    struct pst_diag *diag)
{
    struct pst_loss_scale s = {PST_LOSS_SCALE_DYNAMIC, 65536, 1, 2000};
    enum pst_status status = PST_OK;

    if (strcmp(text, "auto") == 0) {
        s.kind = PST_LOSS_SCALE_AUTO;
    } else if (strcmp(text, "none") == 0) {
        s.kind = PST_LOSS_SCALE_NONE;
    } else if (pst_parse_f64(text, &s.init)) {
        s.kind = PST_LOSS_SCALE_FIXED;
        if (!pst_loss_scale_is_valid(s.init))
            return refuse_scale("the scale", text, diag);
    } else {
        s.init = 65536;
        status = read_keys(text, &s, diag);
    }
    if (status == PST_OK)
        *ret = s;
    return status;
}

struct pst_loss_scaler pst_loss_scaler_begin(const struct pst_loss_scale *of)
{
    const bool is_on =
        of->kind == PST_LOSS_SCALE_FIXED || of->kind == PST_LOSS_SCALE_DYNAMIC;

    return (struct pst_loss_scaler){.scale = is_on ? of->init : 1};
}

struct pst_loss_scaler pst_loss_scaler_resume(
    const struct pst_loss_scale *of, const struct pst_loss_scaler *saved)
{
    struct pst_loss_scaler s = *saved;

    if (of->kind != PST_LOSS_SCALE_DYNAMIC || saved->scale <= 0)
        return pst_loss_scaler_begin(of);
    if (s.scale < of->least) {
        s.scale = of->least;
        s.good = 0;
    }
    return s;
}

bool pst_loss_scaler_can_halve(const struct pst_loss_scale *of,
                               const struct pst_loss_scaler *s)
{
    return of->kind == PST_LOSS_SCALE_DYNAMIC && s->scale > of->least;
}

void pst_loss_scaler_update(const struct pst_loss_scale *of, bool overflow,
                            struct pst_loss_scaler *s)
{
    if (of->kind != PST_LOSS_SCALE_DYNAMIC)
        return;
    if (overflow) {
        s->scale /= 2;
        s->good = 0;
        s->overflows++;
        return;
    }
    if (++s->good < of->interval)
        return;
    s->good = 0;
    if (s->scale < MOST)
        s->scale *= 2;
}
