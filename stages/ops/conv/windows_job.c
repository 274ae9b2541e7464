// SPDX-License-Identifier: Apache-2.0
#include "stages/ops/conv/windows_job.h"

float *pst_windows_copy(const struct pst_windows_job *j, unsigned part)
{
    return j->parts + part * j->part;
}

float *pst_windows_side_buffer(const struct pst_windows_job *j, unsigned part)
{
    return pst_windows_copy(j, part) + j->copy;
}

float *pst_windows_scratch(const struct pst_windows_job *j, float *side)
{
    return side + j->side;
}

int64_t pst_windows_images(const struct pst_windows_job *j, int64_t set)
{
    return PST_MIN(j->each, j->c->n - set * j->each);
}

void pst_windows_fill(const struct pst_windows_job *j, int64_t set,
                      int64_t group, float *to)
{
    for (int64_t i = 0; !j->bare && i < pst_windows_images(j, set); i++)
        pst_direct_fill(&j->plan, set * j->each + i, group, to + i * j->image);
}

struct pst_windows pst_windows_of(const struct pst_windows_job *j,
                                  const struct pst_direct_pass *p, int64_t set,
                                  int64_t group, const float *copy)
{
    const struct pst_direct_copy *from = &j->plan.copy;
    struct pst_windows ret = {
        .copy = copy,
        .end = copy + j->copy,
        .taps = p->offset_of,
        .count = {p->count[0], p->count[1], p->count[2]},
        .step = {j->image, from->size[1] * from->size[2], from->size[2]}};

    if (j->picked) {
        ret.weights = p->weight_of;
        ret.row_stride = j->plan.row_step;
    }
    if (j->flat) {
        ret.count[0] = ret.count[1] = 1;
        ret.count[2] = INT64_MAX / 2;
    }
    if (j->bare) {
        const float *source = (j->fill == PST_CONV_X ? j->c->y : j->c->x)->data;

        ret.copy = source + set * j->each * j->image +
                   group * from->channels * pst_conv_volume(from->from);
        ret.end = source + j->c->n * j->image;
    }
    return ret;
}
