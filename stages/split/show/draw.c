// SPDX-License-Identifier: Apache-2.0
/*
 * Draws a plan: stages, edges between them, shared parameters. All values
 * between two stages share one arrow.
 */
#include "stages/split/show/show.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "stages/base/plural.h"

#define MAX_NAMES 3 /* values named on an arrow; the others are counted */

/* All values from stage `from` to stage `to`. The edges of stage `from` are
 * [begin, end): edges are sorted by producer. */
struct arrow {
    unsigned from, to, values;
    double bytes;
    size_t begin, end;
};

static bool sum_arrow(const struct pst_plan *plan, struct arrow *arrow)
{
    arrow->values = 0;
    arrow->bytes = 0.0;
    for (size_t i = arrow->begin; i < arrow->end; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];

        if (edge->to_stage != arrow->to)
            continue;
        arrow->values++;
        arrow->bytes += (double)pst_meta_bytes(&edge->meta);
    }
    return arrow->values > 0;
}

/* Advances to the next arrow; a zeroed *arrow advances to the first. Returns
 * false at the end. */
static bool next_arrow(const struct pst_plan *plan, struct arrow *arrow)
{
    for (;;) {
        while (arrow->end > arrow->begin && ++arrow->to < plan->stages.n)
            if (sum_arrow(plan, arrow))
                return true;
        if (arrow->end == plan->edges.n)
            return false;
        arrow->begin = arrow->end;
        arrow->from = plan->edges.at[arrow->begin].from_stage;
        /* ++to begins at stage 0: a carried buffer goes to an earlier stage */
        arrow->to = UINT_MAX;
        while (arrow->end < plan->edges.n &&
               plan->edges.at[arrow->end].from_stage == arrow->from)
            arrow->end++;
    }
}

static void add_names(struct pst_str *out, const struct pst_plan *plan,
                      const struct arrow *arrow)
{
    unsigned n = 0;

    for (size_t i = arrow->begin; i < arrow->end; i++) {
        const struct pst_edge *edge = &plan->edges.at[i];

        if (edge->to_stage != arrow->to)
            continue;
        if (n < MAX_NAMES)
            pst_str_addf(out, "%s%s", n ? ", " : "", edge->value);
        n++;
    }
    if (n > MAX_NAMES)
        pst_str_addf(out, " and %u more", n - MAX_NAMES);
}

/* Appends the names of the model's inputs that a stage reads. */
static void add_inputs(struct pst_str *out, const struct pst_plan *plan,
                       const struct pst_stage *stage)
{
    bool any = false;

    for (size_t i = 0; i < stage->graph->inputs.n; i++) {
        if (stage->inputs[i].kind != PST_SOURCE_MODEL_INPUT)
            continue;
        pst_str_addf(out, "%s%s", any ? ", " : "reads ",
                     plan->inputs.at[stage->inputs[i].index].name);
        any = true;
    }
}

static void add_outputs(struct pst_str *out, const struct pst_plan *plan,
                        unsigned stage)
{
    bool any = false;

    for (size_t i = 0; i < plan->outputs.n; i++) {
        const struct pst_plan_output *output = &plan->outputs.at[i];

        if (!output->is_tensor || output->stage != (int)stage)
            continue;
        pst_str_addf(out, "%s%s%s", any ? ", " : "gives ", output->path,
                     (int)i == plan->loss ? " (loss)" : "");
        any = true;
    }
}

/* Number of lines in a stage's box; `line` counts from 0. */
#define N_LINES 5

static void add_line(struct pst_str *out, const struct pst_plan *plan,
                     const struct pst_stage *stage, unsigned line)
{
    switch (line) {
    case 0:
        pst_str_addf(out, "stage %u", stage->index);
        break;
    case 1:
        pst_show_modules(out, stage->graph);
        break;
    case 2:
        pst_show_amount(out, 0, stage->flops, 1000.0, "FLOP, ");
        pst_show_amount(out, 0, (double)stage->param_bytes, 1024.0, "B");
        break;
    case 3:
        add_inputs(out, plan, stage);
        break;
    default:
        add_outputs(out, plan, stage->index);
    }
}

static void add_mode(struct pst_str *out, const struct pst_plan_param *param)
{
    pst_str_addf(out, "%s%s", param->fqn,
                 param->carried                   ? " (carried)"
                 : param->kind != PST_VALUE_PARAM ? " (copied)"
                 : param->transmit                ? " (transmitted)"
                                                  : " (replicated)");
}

/* --- dot ---------------------------------------------------------------- */

/* Appends text in quotes, with \ and " escaped. */
static void add_quoted(struct pst_str *out, const struct pst_str *text)
{
    for (const char *c = pst_str_text(text); *c != '\0'; c++) {
        if (*c == '"' || *c == '\\')
            pst_str_addn(out, "\\", 1);
        pst_str_addn(out, c, 1);
    }
    out->failed = out->failed || text->failed;
}

/* Draws a box for each group of operators inside the box of the stage. */
static void dot_groups(struct pst_str *out, const struct pst_stage *stage)
{
    struct pst_show_group groups[PST_SHOW_GROUPS];
    unsigned more;
    const unsigned n = pst_show_groups(stage->graph, groups, &more);

    if (n < 2)
        return;
    pst_str_addf(out, "  subgraph cluster_%u {\n    s%u;\n", stage->index,
                 stage->index);
    for (unsigned i = 0; i < n; i++) {
        struct pst_str name = {.visible = 1};

        pst_show_group_name(&name, &groups[i]);
        pst_str_addf(out, "    m%u_%u [label=\"", stage->index, i);
        add_quoted(out, &name);
        pst_str_addf(out, "\\n%u operator%s, ", groups[i].operators,
                     pst_plural(groups[i].operators));
        pst_show_amount(out, 0, groups[i].flops, 1000.0, "FLOP");
        if (i + 1 == n && more > 0)
            pst_str_addf(out, "\\nand %u more", more);
        pst_str_add(out, "\"];\n");
        pst_str_fini(&name);
    }
    pst_str_addf(out, "    s%u", stage->index);
    for (unsigned i = 0; i < n; i++)
        pst_str_addf(out, " -> m%u_%u", stage->index, i);
    pst_str_add(out, " [style=dotted];\n  }\n");
}

static void dot_stage(struct pst_str *out, const struct pst_plan *plan,
                      const struct pst_stage *stage)
{
    pst_str_addf(out, "  s%u [label=\"", stage->index);
    for (unsigned i = 0; i < N_LINES; i++) {
        struct pst_str line = {.visible = 1};

        add_line(&line, plan, stage, i);
        if (line.len > 0) {
            pst_str_add(out, i > 0 ? "\\n" : "");
            add_quoted(out, &line);
        }
        pst_str_fini(&line);
    }
    pst_str_add(out, "\"];\n");
    dot_groups(out, stage);
}

void pst_plan_draw_dot(const struct pst_plan *plan, struct pst_str *out)
{
    struct arrow arrow = {0};

    pst_str_add(out, "digraph plan {\n  rankdir=LR;\n  node [shape=box];\n");
    for (size_t i = 0; i < plan->stages.n; i++)
        dot_stage(out, plan, &plan->stages.at[i]);
    while (next_arrow(plan, &arrow)) {
        struct pst_str names = {.visible = 1};

        add_names(&names, plan, &arrow);
        pst_str_addf(out, "  s%u -> s%u [label=\"", arrow.from, arrow.to);
        add_quoted(out, &names);
        pst_str_add(out, "\\n");
        pst_show_amount(out, 0, arrow.bytes, 1024.0, "B");
        pst_str_add(out, "\"];\n");
        pst_str_fini(&names);
    }
    for (size_t i = 0; i < plan->params.n; i++) {
        const struct pst_plan_param *param = &plan->params.at[i];
        struct pst_str text = {.visible = 1};

        add_mode(&text, param);
        for (unsigned k = 1; pst_show_is_shared(param) && k < param->n_stages;
             k++) {
            pst_str_addf(out, "  s%u -> s%u [style=dashed, dir=%s, label=\"",
                         param->owner_stage, param->stages[k],
                         param->transmit ? "forward" : "none");
            add_quoted(out, &text);
            pst_str_add(out, "\"];\n");
        }
        pst_str_fini(&text);
    }
    pst_str_add(out, "}\n");
}

/* --- svg ---------------------------------------------------------------- */

#define BOX     190.0 /* pixels */
#define GAP     150.0
#define HEIGHT  90.0
#define MARGIN  20.0
#define ARC     34.0 /* height of an arc per stage that it spans */
#define LETTERS 30   /* number of characters that fit into a box */

static double box_x(unsigned stage)
{
    return MARGIN + stage * (BOX + GAP);
}

/* Appends at most `most` characters, escaped for XML. */
static void add_xml(struct pst_str *out, const struct pst_str *text,
                    size_t most)
{
    const char *c = pst_str_text(text);

    for (size_t n = 0; *c != '\0'; n++) {
        size_t bytes = pst_utf8_length(c);

        bytes = bytes > 0 ? bytes : 1;
        if (n + 1 == most && c[bytes] != '\0') {
            pst_str_add(out, "\xe2\x80\xa6");
            break;
        }
        if (*c == '<' || *c == '>' || *c == '&' || *c == '"')
            pst_str_addf(out, "&#%d;", *c);
        else if ((unsigned char)*c >= ' ')
            pst_str_addn(out, c, bytes);
        c += bytes;
    }
    out->failed = out->failed || text->failed;
}

static void svg_text(struct pst_str *out, double x, double y,
                     const struct pst_str *text, size_t most)
{
    pst_str_addf(out, "<text x=\"%.1f\" y=\"%.1f\">", x, y);
    add_xml(out, text, most);
    pst_str_add(out, "</text>\n");
}

#define ROW 15.0 /* height of a group's line in the stage's box */

/* Returns the height of a box that fits the groups of any stage; all boxes have
 * this height. */
static double box_height(const struct pst_plan *plan)
{
    struct pst_show_group groups[PST_SHOW_GROUPS];
    unsigned rows = 0;

    for (size_t i = 0; i < plan->stages.n; i++) {
        unsigned more, n;

        n = pst_show_groups(plan->stages.at[i].graph, groups, &more);
        n += more > 0;
        rows = PST_MAX(rows, n < 2 ? 0 : n);
    }
    return rows == 0 ? HEIGHT : HEIGHT + ROW * (rows + 0.5);
}

/* Draws the groups of operators of a stage, one below the other. */
static void svg_groups(struct pst_str *out, const struct pst_stage *stage,
                       double x, double y)
{
    struct pst_show_group groups[PST_SHOW_GROUPS];
    unsigned more;
    const unsigned n = pst_show_groups(stage->graph, groups, &more);

    for (unsigned i = 0; n >= 2 && i < n + (more > 0); i++, y += ROW) {
        struct pst_str line = {.visible = 1};

        if (i == n) {
            pst_str_addf(&line, "and %u more", more);
        } else {
            pst_str_addf(out,
                         "<rect class=\"module\" x=\"%.1f\" y=\"%.1f\" "
                         "width=\"%.1f\" height=\"%.1f\"/>\n",
                         x + 6.0, y - 11.0, BOX - 12.0, ROW - 2.0);
            pst_show_group_name(&line, &groups[i]);
            pst_str_add(&line, ", ");
            pst_show_amount(&line, 0, groups[i].flops, 1000.0, "FLOP");
        }
        svg_text(out, x + BOX / 2, y, &line, LETTERS);
        pst_str_fini(&line);
    }
}

static void svg_stage(struct pst_str *out, const struct pst_plan *plan,
                      const struct pst_stage *stage, double top, double height)
{
    const double x = box_x(stage->index);
    double y = top + 16.0;

    pst_str_addf(out,
                 "<g class=\"stage\"><rect x=\"%.1f\" y=\"%.1f\" "
                 "width=\"%.1f\" height=\"%.1f\" rx=\"4\"/>\n",
                 x, top, BOX, height);
    for (unsigned i = 0; i < N_LINES; i++, y += 16.0) {
        struct pst_str line = {.visible = 1};

        add_line(&line, plan, stage, i);
        if (line.len > 0)
            svg_text(out, x + BOX / 2, y, &line, LETTERS);
        pst_str_fini(&line);
    }
    svg_groups(out, stage, x, top + HEIGHT + 8.0);
    pst_str_add(out, "</g>\n");
}

/* Draws an arc above the boxes (below them if rise < 0). */
static void svg_arc(struct pst_str *out, unsigned from, unsigned to, double y,
                    double rise, const char *class)
{
    const double a = box_x(from) + BOX / 2, b = box_x(to) + BOX / 2;

    pst_str_addf(out,
                 "<path class=\"%s\" d=\"M%.1f %.1f C%.1f %.1f %.1f %.1f %.1f "
                 "%.1f\"/>\n",
                 class, a, y, a, y - rise * 4 / 3, b, y - rise * 4 / 3, b, y);
}

static void svg_arrow(struct pst_str *out, const struct pst_plan *plan,
                      const struct arrow *arrow, double top)
{
    const int way = (int)arrow->to - (int)arrow->from;
    /* an arrow to the previous stage needs an arc, too */
    const double rise = ARC * (way > 0 ? way - 1 : -way);
    const bool next = arrow->to == arrow->from + 1;
    const double middle = (box_x(arrow->from) + box_x(arrow->to) + BOX) / 2.0;
    const double y = next ? top + HEIGHT / 2 : top - rise;
    struct pst_str names = {.visible = 1}, bytes = {0};

    pst_str_add(out, "<g class=\"edge\">");
    if (next)
        pst_str_addf(out,
                     "<path class=\"edge\" d=\"M%.1f %.1f L%.1f %.1f\"/>\n",
                     box_x(arrow->from) + BOX, y, box_x(arrow->to), y);
    else
        svg_arc(out, arrow->from, arrow->to, top, rise, "edge");
    add_names(&names, plan, arrow);
    pst_show_amount(&bytes, 0, arrow->bytes, 1024.0, "B");
    svg_text(out, middle, y - 5.0, &names, LETTERS - 6);
    svg_text(out, middle, y + 13.0, &bytes, LETTERS);
    pst_str_add(out, "</g>\n");
    pst_str_fini(&names);
    pst_str_fini(&bytes);
}

static void svg_shared(struct pst_str *out, const struct pst_plan_param *param,
                       double bottom, double *depth)
{
    struct pst_str text = {.visible = 1};

    *depth += ARC;
    add_mode(&text, param);
    pst_str_add(out, "<g class=\"shared\">");
    for (unsigned k = 1; k < param->n_stages; k++)
        svg_arc(out, param->stages[k - 1], param->stages[k], bottom, -*depth,
                "shared");
    svg_text(out,
             (box_x(param->stages[0]) + box_x(param->stages[1]) + BOX) / 2.0,
             bottom + *depth - 4.0, &text, (size_t)2 * LETTERS);
    pst_str_add(out, "</g>\n");
    pst_str_fini(&text);
}

static unsigned longest_arrow(const struct pst_plan *plan)
{
    unsigned n = 1;

    for (size_t i = 0; i < plan->edges.n; i++)
        n = PST_MAX(n, (unsigned)abs((int)plan->edges.at[i].to_stage -
                                     (int)plan->edges.at[i].from_stage));
    return n;
}

void pst_plan_draw_svg(const struct pst_plan *plan, struct pst_str *out)
{
    const double top = MARGIN + ARC * longest_arrow(plan);
    const double height = box_height(plan);
    const double width = box_x((unsigned)plan->stages.n) - GAP + MARGIN;
    struct arrow arrow = {0};
    unsigned shared = 0;
    double depth = 0.0;

    for (size_t i = 0; i < plan->params.n; i++)
        shared += pst_show_is_shared(&plan->params.at[i]);
    pst_str_addf(out,
                 "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" "
                 "height=\"%.0f\" font-family=\"sans-serif\" "
                 "font-size=\"11\" text-anchor=\"middle\">\n",
                 width, top + height + ARC * (shared + 1) + MARGIN);
    pst_str_add(
        out,
        "<style>rect{fill:#eef3fa;stroke:#345}path{fill:none}"
        "rect.module{fill:#fff;stroke:#9ab}"
        "path.edge{stroke:#345;marker-end:url(#tip)}"
        "path.shared{stroke:#a33;stroke-dasharray:5 3}"
        "g.shared text{fill:#a33}</style>\n"
        "<defs><marker id=\"tip\" markerWidth=\"8\" markerHeight=\"8\" "
        "refX=\"7\" refY=\"4\" orient=\"auto\"><path d=\"M0 0 L8 4 L0 8 z\" "
        "style=\"fill:#345\"/></marker></defs>\n");
    for (size_t i = 0; i < plan->stages.n; i++)
        svg_stage(out, plan, &plan->stages.at[i], top, height);
    while (next_arrow(plan, &arrow))
        svg_arrow(out, plan, &arrow, top);
    for (size_t i = 0; i < plan->params.n; i++)
        if (pst_show_is_shared(&plan->params.at[i]))
            svg_shared(out, &plan->params.at[i], top + height, &depth);
    pst_str_add(out, "</svg>\n");
}
