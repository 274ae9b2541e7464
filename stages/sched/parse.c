// SPDX-License-Identifier: Apache-2.0
/* Parses one action in PyTorch's grammar with our extensions; the text must
 * contain nothing else. */
#include "stages/sched/generate.h"

#include <string.h>

static const char *const texts[] = {
#define PST_ACTION_ROW(name, text) [PST_ACT_##name] = (text),
    PST_ACTION_LIST(PST_ACTION_ROW)
#undef PST_ACTION_ROW
};

struct cursor {
    const char *at, *end;
};

/* Reads a number up to 2^30; no sign, no leading zero. */
static bool read_number(struct cursor *c, int *ret)
{
    const char *first = c->at;
    int64_t x = 0;

    while (c->at < c->end && *c->at >= '0' && *c->at <= '9' && x < 1 << 30)
        x = 10 * x + (*c->at++ - '0');
    *ret = (int)x;
    return c->at > first && x < 1 << 30 &&
           (*first != '0' || c->at == first + 1);
}

/* Reads the longest name that matches at the cursor. */
static bool read_kind(struct cursor *c, enum pst_action_kind *ret)
{
    size_t best = 0;

    for (unsigned k = 0; k < PST_N_ACTIONS; k++) {
        const size_t len = strlen(texts[k]);

        if (k != PST_ACT_IDLE && len > best &&
            (size_t)(c->end - c->at) >= len &&
            memcmp(c->at, texts[k], len) == 0) {
            best = len;
            *ret = (enum pst_action_kind)k;
        }
    }
    c->at += best;
    return best > 0;
}

static bool read_mark(struct cursor *c, char mark)
{
    if (c->at == c->end || *c->at != mark)
        return false;
    c->at++;
    return true;
}

static bool has_microbatch(enum pst_action_kind kind)
{
    return kind != PST_ACT_REDUCE && kind != PST_ACT_UNSHARD &&
           kind != PST_ACT_RESHARD;
}

static bool read_leaf(struct cursor *c, struct pst_action *ret)
{
    enum pst_action_kind kind;
    int stage, microbatch = -1, peer_stage, param = -1;

    if (!read_number(c, &stage) || stage >= PST_MAX_STAGES ||
        !read_kind(c, &kind))
        return false;
    if (has_microbatch(kind) && !read_number(c, &microbatch))
        return false;
    peer_stage = pst_action_usual_peer(kind, stage);
    if (pst_action_has_peer(kind) &&
        read_mark(c, pst_action_receives(kind) ? '<' : '>') &&
        !read_number(c, &peer_stage))
        return false;
    if (peer_stage >= PST_MAX_STAGES)
        return false;
    if (kind == PST_ACT_REDUCE && read_mark(c, '#') && !read_number(c, &param))
        return false;
    *ret = (struct pst_action){
        (uint8_t)kind, (int16_t)stage, microbatch, (int16_t)peer_stage, -1,
        param};
    return true;
}

static bool read_compound(struct cursor *c, struct pst_action ret[2])
{
    static const char name[] = "OVERLAP_F_B";

    if (!read_mark(c, '(') || !read_leaf(c, &ret[0]) || !read_mark(c, ';') ||
        !read_leaf(c, &ret[1]) || !read_mark(c, ')') ||
        (size_t)(c->end - c->at) < sizeof(name) - 1 ||
        memcmp(c->at, name, sizeof(name) - 1) != 0)
        return false;
    c->at += sizeof(name) - 1;
    ret[0].overlap = true;
    return ret[0].kind == PST_ACT_F && ret[1].kind == PST_ACT_B;
}

unsigned pst_action_parse(const char *text, size_t len,
                          struct pst_action ret[2])
{
    struct cursor c = {text, text + len};
    unsigned n;

    while (c.at < c.end && (*c.at == ' ' || *c.at == '\t'))
        c.at++;
    while (c.end > c.at && (c.end[-1] == ' ' || c.end[-1] == '\t'))
        c.end--;
    if (c.end - c.at == 1 && *c.at == '.') {
        ret[0] = (struct pst_action){PST_ACT_IDLE, -1, -1, -1, -1, -1};
        return 1;
    }
    n = c.at < c.end && *c.at == '(' ? 2 : 1;
    if (!(n == 2 ? read_compound(&c, ret) : read_leaf(&c, ret)) ||
        c.at != c.end)
        return 0;
    return n;
}
