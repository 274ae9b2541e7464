// SPDX-License-Identifier: Apache-2.0
/* Reads the tensors of a request. Names, dtypes, sizes and bytes are
 * untrusted. */
#include "daemon/loop/serve/serving.h"

#include <inttypes.h>
#include <string.h>

#include "stages/base/alloc.h"
#include "stages/graph/bytes.h"

/* Appends the names of the model's inputs: "x, mask". */
static void add_inputs(const struct pstd_signature *s, struct pst_str *out)
{
    for (size_t i = 0; i < s->n_inputs; i++)
        pst_str_addf(out, "%s%s", i > 0 ? ", " : "", s->inputs[i].name);
}

/* Appends the expected dtype and shape: "f32[2 n, 7]" for n samples. */
static void add_wanted(const struct pstd_port *port, struct pst_str *out)
{
    pst_str_addf(out, "%s[", pst_dtype_name(port->meta.dtype));
    for (unsigned d = 0; d < port->meta.rank; d++) {
        pst_str_add(out, d > 0 ? ", " : "");
        if ((int)d != port->dim)
            pst_str_addf(out, "%" PRId64, port->meta.size[d]);
        else if (port->each == 1)
            pst_str_add(out, "n");
        else
            pst_str_addf(out, "%" PRId64 " n", port->each);
    }
    pst_str_add(out, "]");
}

static void add_sent(const Pst__Control__Tensor *t, struct pst_str *out)
{
    pst_str_addf(out, "%.20s[", t->dtype);
    for (size_t d = 0; d < t->n_size && d < PST_MAX_RANK; d++)
        pst_str_addf(out, "%s%" PRIu64, d > 0 ? ", " : "", t->size[d]);
    pst_str_add(out, t->n_size > PST_MAX_RANK ? ", ...]" : "]");
}

static enum pst_status refuse_shape(const struct pstd_port *port,
                                    const Pst__Control__Tensor *t,
                                    struct pst_diag *diag)
{
    struct pst_str want = {0}, have = {0};

    add_wanted(port, &want);
    add_sent(t, &have);
    (void)pst_diag_set(diag, PST_E_ASK_SHAPE,
                       "input '%s' of the request is %s; the model takes %s%s",
                       port->name, pst_str_text(&have), pst_str_text(&want),
                       port->dim >= 0 ? ", n samples" : "");
    pst_str_fini(&want);
    pst_str_fini(&have);
    return PST_ERR_SHAPE;
}

/* Checks the tensor of an input. *samples: number of samples of the inputs
 * checked so far; 0: not known yet. */
static enum pst_status check_tensor(const struct pstd_signature *s,
                                    const struct pstd_port *port,
                                    const Pst__Control__Tensor *t,
                                    int64_t *samples, struct pst_diag *diag)
{
    enum pst_dtype dtype;
    int64_t n = 1;

    if (!pst_dtype_from_safetensors(t->dtype, &dtype) ||
        dtype != port->meta.dtype || t->n_size != port->meta.rank)
        return refuse_shape(port, t, diag);
    for (unsigned d = 0; d < port->meta.rank; d++)
        if ((int)d != port->dim && t->size[d] != (uint64_t)port->meta.size[d])
            return refuse_shape(port, t, diag);
    if (port->dim >= 0) {
        const uint64_t size = t->size[port->dim];

        if (size == 0 || size % (uint64_t)port->each != 0)
            return refuse_shape(port, t, diag);
        if (size / (uint64_t)port->each > (uint64_t)s->most)
            return pst_diag_set(diag, PST_E_ASK_SHAPE,
                                "a request has at most %" PRId64
                                " samples; input '%s' has %" PRIu64
                                ": ask with several requests",
                                s->most, port->name,
                                size / (uint64_t)port->each);
        n = (int64_t)(size / (uint64_t)port->each);
        if (*samples != 0 && n != *samples)
            return pst_diag_set(diag, PST_E_ASK_SHAPE,
                                "input '%s' has %" PRId64
                                " samples, an input before it has %" PRId64,
                                port->name, n, *samples);
        *samples = n;
    }
    if (t->data.len != pstd_port_bytes(port, n))
        return pst_diag_set(diag, PST_E_ASK_SHAPE,
                            "input '%s' of the request has %zu bytes of data, "
                            "its sizes want %zu",
                            port->name, t->data.len, pstd_port_bytes(port, n));
    return PST_OK;
}

static const Pst__Control__Tensor *find_tensor(const Pst__Control__Infer *from,
                                               const char *name, size_t *ret_n)
{
    const Pst__Control__Tensor *found = NULL;

    *ret_n = 0;
    for (size_t i = 0; i < from->n_inputs; i++)
        if (strcmp(from->inputs[i]->name, name) == 0) {
            found = from->inputs[i];
            ++*ret_n;
        }
    return found;
}

static enum pst_status refuse_names(const struct pstd_signature *s,
                                    const Pst__Control__Infer *from,
                                    struct pst_diag *diag)
{
    for (size_t i = 0; i < from->n_inputs; i++) {
        const char *name = from->inputs[i]->name;
        struct pst_str names = {0};
        bool known = false;

        for (size_t k = 0; k < s->n_inputs; k++)
            known = known || strcmp(s->inputs[k].name, name) == 0;
        if (known)
            continue;
        add_inputs(s, &names);
        (void)pst_diag_set(diag, PST_E_DATA_NO_TENSOR,
                           "the model has no input '%.100s'; it has: %s", name,
                           pst_str_text(&names));
        pst_str_fini(&names);
        return PST_ERR_NOT_FOUND;
    }
    return PST_OK;
}

/* Checks all tensors of a request. *ret_samples: number of samples; *ret_bytes:
 * bytes of the inputs. */
static enum pst_status check_request(const struct pstd_signature *s,
                                     const Pst__Control__Infer *from,
                                     int64_t *ret_samples, size_t *ret_bytes,
                                     struct pst_diag *diag)
{
    enum pst_status status = refuse_names(s, from, diag);

    *ret_samples = 0;
    *ret_bytes = 0;
    for (size_t i = 0; i < s->n_inputs && status == PST_OK; i++) {
        const struct pstd_port *port = &s->inputs[i];
        size_t n;
        const Pst__Control__Tensor *t = find_tensor(from, port->name, &n);

        if (n > 1)
            return pst_diag_set(diag, PST_E_ASK_TEXT,
                                "the request has input '%s' %zu times",
                                port->name, n);
        if (t != NULL) {
            status = check_tensor(s, port, t, ret_samples, diag);
            *ret_bytes += t->data.len;
        } else if (!port->optional) {
            return pst_diag_set(diag, PST_E_DATA_NO_TENSOR,
                                "the request has no input '%s'", port->name);
        }
    }
    if (*ret_samples == 0)
        *ret_samples = 1; /* no input has a dimension of samples */
    return status;
}

enum pst_status pstd_serving_read(const struct pstd_signature *s,
                                  const Pst__Control__Infer *from,
                                  struct pstd_ask **ret, struct pst_diag *diag)
{
    struct pstd_ask *ask;
    unsigned char *at;
    int64_t samples;
    size_t bytes;
    enum pst_status status = check_request(s, from, &samples, &bytes, diag);

    if (status != PST_OK)
        return status;
    ask = pst_calloc(PST_TAG_DAEMON, 1, sizeof(*ask));
    if (ask == NULL)
        return pst_diag_nomem(diag, sizeof(*ask));
    pst_diag_init(&ask->diag);
    ask->samples = samples;
    ask->bytes = bytes;
    ask->data = at = pst_alloc(PST_TAG_DAEMON, bytes + 1);
    // NOLINTNEXTLINE(bugprone-sizeof-expression): an array of pointers
    ask->inputs = pst_calloc(PST_TAG_DAEMON, s->n_inputs + 1, sizeof(at));
    if (ask->data == NULL || ask->inputs == NULL) {
        pstd_ask_free(ask);
        return pst_diag_nomem(diag, bytes);
    }
    for (size_t i = 0; i < s->n_inputs; i++) {
        size_t n;
        const Pst__Control__Tensor *t =
            find_tensor(from, s->inputs[i].name, &n);

        if (t == NULL)
            continue;
        ask->inputs[i] = at;
        if (t->data.len > 0)
            memcpy(at, t->data.data, t->data.len);
        pst_bytes_to_values(s->inputs[i].meta.dtype, at, t->data.len);
        at += t->data.len;
    }
    *ret = ask;
    return PST_OK;
}
