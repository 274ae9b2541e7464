# SPDX-License-Identifier: Apache-2.0
# Draws the loss over the steps, from the step events of a log, in `rows` lines
# of `columns` characters.
/ event=step / {
    for (i = 1; i <= NF; i++)
        if ($i ~ /^loss=/)
            loss[n++] = substr($i, 6) + 0
}
END {
    if (n == 0)
        exit 1
    if (columns > n)
        columns = n
    # each column has the mean of equally many steps
    for (c = 0; c < columns; c++) {
        from = int(c * n / columns)
        to = int((c + 1) * n / columns)
        sum = 0
        for (i = from; i < to; i++)
            sum += loss[i]
        mean[c] = sum / (to - from)
        if (c == 0 || mean[c] > high)
            high = mean[c]
        if (c == 0 || mean[c] < low)
            low = mean[c]
    }
    for (r = 0; r < rows; r++) {
        line = ""
        for (c = 0; c < columns; c++) {
            at = high > low ? (high - mean[c]) / (high - low) * (rows - 1) : 0
            line = line (int(at + 0.5) == r ? "*" : " ")
        }
        printf "%6.2f |%s\n", high - (high - low) * r / (rows - 1), line
    }
    printf "       +"
    for (c = 0; c < columns; c++)
        printf "-"
    printf "\n        1%*d steps\n", columns - 1, n
    printf "first %.2f, last %.2f\n", loss[0], loss[n - 1]
}
