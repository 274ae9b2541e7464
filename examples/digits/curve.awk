# SPDX-License-Identifier: Apache-2.0
# An SVG of the loss of each step (left scale, logarithmic) from the step events
# of a log, and of the accuracy from a file of lines "STEP SHARE-WRONG" (right
# scale, 80 to 100 %).

function x_of(step) { return left + (right - left) * step / last }
function y_of(loss)
{
    loss = log(loss) / log(10)
    loss = loss < low ? low : loss > high ? high : loss
    return bottom - (bottom - top) * (loss - low) / (high - low)
}
function y_of_accuracy(a)
{
    return bottom - (bottom - top) * ((a < 0.8 ? 0.8 : a) - 0.8) / 0.2
}
function text(x, y, anchor, what)
{
    printf "<text x=\"%g\" y=\"%g\" text-anchor=\"%s\">%s</text>\n", x, y,
           anchor, what
}

/ event=step / {
    step = -1
    for (i = 1; i <= NF; i++)
        if ($i ~ /^step=/)
            step = substr($i, 6) + 0
        else if ($i ~ /^loss=/)
            value = substr($i, 6) + 0
    if (step > 0) {
        loss[step] = value
        last = step > last ? step : last
    }
}

END {
    if (last == 0)
        exit 1
    left = 50; right = 590; top = 20; bottom = 300; low = -3; high = 1
    print "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"640\" " \
          "height=\"350\" font-family=\"sans-serif\" font-size=\"12\">"
    print "<rect width=\"640\" height=\"350\" fill=\"white\"/>"
    for (e = low; e <= high; e++) {
        y = y_of(10 ^ e)
        printf "<path d=\"M%g %gH%g\" stroke=\"#ddd\"/>\n", left, y, right
        text(left - 6, y + 4, "end", 10 ^ e)
    }
    for (a = 0.8; a < 1.001; a += 0.05)
        text(right + 6, y_of_accuracy(a) + 4, "start", int(a * 100 + 0.5) " %")
    for (i = 0; i <= 6; i++)
        text(x_of(last * i / 6), bottom + 18, "middle", int(last * i / 6))
    text((left + right) / 2, bottom + 38, "middle",
         "step: training loss (line), test accuracy (dots)")
    printf "<path fill=\"none\" stroke=\"#1f6fb4\" d=\""
    for (s = 1; s <= last; s++)
        if (s in loss)
            printf "%s%.1f %.1f", s == 1 ? "M" : "L", x_of(s), y_of(loss[s])
    print "\"/>"
    while ((getline line < accuracy) > 0) {
        split(line, part, " ")
        printf "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" fill=\"#c2571a\">" \
               "<title>%.2f %%</title></circle>\n", x_of(part[1]),
               y_of_accuracy(1 - part[2]), 100 - 100 * part[2]
    }
    print "</svg>"
}
