#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests the pages that `penstock report` writes from logs.

usage: report.py PENSTOCK NORM.pt2 self|mpi
"""
import json
import os
import sys
import tempfile
import xml.etree.ElementTree as ET

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402

HTML, SVG = "{http://www.w3.org/1999/xhtml}", "{http://www.w3.org/2000/svg}"
# Harmful text for a name, a path or a message of a log.
HOSTILE = '</td><script src="http://x/">&amp;\x1b[31m\u202e\'"'


def page_of(b, folder, *words):
    said = json.loads(b.call("report", folder, "--json", *words))
    with open(b.path(said["page"]), encoding="utf-8") as file:
        text = file.read()
    root = ET.fromstring(text.split("\n", 1)[1])
    assert root.tag == HTML + "html"
    # The page loads nothing and runs no scripts.
    for node in root.iter():
        assert not node.tag.endswith(("script", "link", "iframe", "img")), node
        for key, value in node.attrib.items():
            assert not key.startswith("on") and key not in ("href", "src")
            assert "url(" not in value
    style = root.find(f"{HTML}head/{HTML}style").text
    assert "prefers-color-scheme:dark" in style and "url(" not in style
    return said, root, text


def titles(root):
    return [node.text for node in root.iter(HTML + "h2")]


def facts(root):
    lists = root.find(f"{HTML}body/{HTML}dl")
    return dict(zip((x.text for x in lists if x.tag == HTML + "dt"),
                    (x.text for x in lists if x.tag == HTML + "dd")))


def check_page(b):
    b.call(*b.words("log", "--eval-data", "other.safetensors", "--eval-every",
                    "3", "--checkpoint", "ck", "--log-every", "1"))
    said, root, text = page_of(b, "log")
    assert said["step"] == 12 and said["evaluations"] == 4, said
    assert said["ranks"] == 2 and said["unread_lines"] == 0, said
    # The bubble is unknown if the spans of actions include waiting.
    assert not any("bubble" in (node.text or "")
                   for node in root.iter(SVG + "text"))
    assert titles(root) == ["Loss", "Learning rate", "Samples a second",
                            "Seconds of a step", "A step",
                            "One step, by cause of waiting",
                            "What steps were spent with",
                            "Memory by rank and use", "Events"], titles(root)
    known = facts(root)
    assert known["progress"].startswith("step 12 of 12, loss "), known
    assert known["end"] == "done" and "stages 0;1" in known["ranks"], known
    lines = [x for x in root.iter(HTML + "polyline")]
    assert len(lines[0].get("points").split()) == 12  # one point per step
    assert len(lines[1].get("points").split()) == 4  # one point per evaluation
    assert len(list(root.iter(HTML + "circle"))) == 4
    # The page contains a picture of a step.
    assert any(x.tag == SVG + "svg" for x in root.iter())
    rows = [[x.text for x in row] for row in root.iter(HTML + "tr")]
    assert [r[2] for r in rows].count("evaluated") == 4, rows
    assert any(r[2] == "train_end" for r in rows), rows
    assert len(text) < 200000
    # With -o and without --json, report prints one line.
    said = b.call("report", "log", "-o", "page.html")
    assert said.startswith("page.html: step 12, loss "), said
    assert b.bytes_of("page.html") == text.encode()


def line(event, seq, rank=0, job=HOSTILE, **fields):
    words = " ".join(f"{key}={json.dumps(value)}" if isinstance(value, str)
                     else f"{key}={value}" for key, value in fields.items())
    return (f"ts=2026-01-01T00:00:{seq % 60:02d}.000000Z level=info rank={rank} "
            f'stage=- job={json.dumps(job)} event={event} seq={seq} {words}'
            "\n")


def write(b, folder, lines, rank=0):
    os.makedirs(b.path(folder), exist_ok=True)
    with open(b.path(f"{folder}/rank-{rank}.log"), "w",
              encoding="utf-8") as file:
        file.writelines(lines)


def check_hostile_log(b):
    write(b, "bad", [line("train_begin", 1, steps=9, schedule=HOSTILE,
                          placement=HOSTILE),
                     "not a line\n", "ts= level=\n", "x" * 100000 + "\n",
                     "ts=2026-01-01T00:00:01Z level=info rank=0 stage=- job=j "
                     'event=step seq=1 loss="torn\n',
                     line("step", 2, step=1, steps=9, loss=1.5, lr=1),
                     line("step", 3, step=2, steps=9, loss="NaN"),
                     line("memory", 4, of_rank=10 ** 9, params=1),
                     line("memory", 4, of_rank=1, params=1e308, grads=-1,
                          stages=HOSTILE),
                     line("fault", 5, text=HOSTILE).replace("=info", "=error"),
                     line("step", 6, step=3, steps=9, loss=1e300, lr=0)[:-1]])
    said, root, text = page_of(b, "bad")
    assert said["unread_lines"] == 5, said
    assert "<script" not in text and "\x1b" not in text and "\u202e" not in text
    assert "\\x1b[31m\\u202e" in root.find(f"{HTML}body/{HTML}h1").text
    assert said["step"] == 1 and said["loss"] == 1.5, said


    # Zeros and an incomplete line, as after a power failure, do not hide other
    # lines.
    write(b, "torn", [line("step", 1, step=1, steps=9, loss=1.5, lr=1),
                      line("step", 2, step=2, steps=9, loss=9)[:40],
                      "\0" * 10000,
                      line("step", 3, step=3, steps=9, loss=2.5, lr=1), "\0"])
    said, root, text = page_of(b, "torn")
    assert said["unread_lines"] == 1 and said["loss"] == 2.5, said


def check_repeated_step(b):
    """Checks that a repeated step is shown once, with its last values."""
    write(b, "twice", [line("step", n + 1, step=step, steps=9, loss=loss, lr=1)
                       for n, (step, loss) in enumerate(
                           ((1, 9.), (2, 8.), (3, 7.), (2, 5.), (3, 4.)))])
    said, root, _ = page_of(b, "twice")
    curve = next(root.iter(HTML + "polyline"))
    assert len(curve.get("points").split()) == 3 and said["loss"] == 4.
    # With many points, only the minimum and maximum of each group are drawn.
    write(b, "long", [line("step", n, step=n, steps=9, lr=1,
                           loss=100. if n == 40000 else n % 7)
                      for n in range(1, 50001)])
    said, root, text = page_of(b, "long")
    curve = next(root.iter(HTML + "polyline"))
    points = [tuple(map(float, p.split(",")))
              for p in curve.get("points").split()]
    assert len(points) < 1000 and len(text) < 200000
    assert min(y for _, y in points) == 8.0  # the outlier is drawn
    # The last label of the axis fits, however long it is.
    write(b, "far", [line("step", n, step=10 ** n, steps=9, lr=1, loss=1.)
                     for n in range(1, 10)])
    _, root, _ = page_of(b, "far")
    last = [x for x in root.iter(HTML + "text") if x.text == "1000000000"]
    assert last and all(x.get("text-anchor") == "end" and
                        float(x.get("x")) <= 720 for x in last), last


def ends(b):
    """Checks that the page shows how and why the newest run ended."""
    begin = line("train_begin", 1, steps=90)
    over = {"run": 1, "status": "OK", "stopped": 0, "step": 40, "text": ""}
    early = line("early_stop", 2, step=40, best_step=20, patience=4)
    for lines, end in (
            ([], "the log has no end of the run"),
            ([line("train_end", 3, **over)], "done"),
            ([line("stop", 2, by="command"),
              line("train_end", 3, **{**over, "stopped": 1})],
             "stopped on request, by a command"),
            ([early, line("train_end", 3, **over)],
             "ended early: 4 evaluations were not better than that of step "
             "20"),
            ([line("train_end", 3, **{**over, "status": "ERR_IO",
                                      "text": "full"})], "ERR_IO: full"),
            # The end of an earlier run is not reported for a later one.
            ([early, line("train_end", 3, **over),
              line("train_begin", 4, steps=9), line("train_end", 5, **over)],
             "done"),
            ([line("train_end", 3, **over), line("start", 4, ranks=1)],
             "the log has no end of the run")):
        write(b, "ends", [begin, *lines])
        _, root, _ = page_of(b, "ends")
        assert facts(root)["end"] == end, (facts(root), end)


def rates(b):
    """Checks that the page shows rates of the whole run, not of its last
    step."""
    lines = [line("step", n, step=n, steps=9, loss=1., lr=1, tok_s=0,
                  step_s=seconds, samples_s=8 / seconds)
             for n, seconds in enumerate((.1, .1, .1, .5), 1)]
    write(b, "rates", lines)
    assert facts(page_of(b, "rates")[1])["rate"] == \
        "200 ms a step, 40 samples/s (mean of 4 steps)"
    write(b, "rates", [*lines, line("train_end", 5, status="OK", stopped=0,
                                    step_s=.1, text="")])
    assert facts(page_of(b, "rates")[1])["rate"] == \
        "100 ms a step, 80 samples/s (median of the run)"


def newest(b):
    """Checks that if a folder has logs of several jobs, the page shows name
    and ranks of the newest one."""
    write(b, "both", [
        line("start", 1, job="old", ranks=2),
        line("train_begin", 2, job="old", steps=9, placement="0;1"),
        line("start", 3, job="new", ranks=1),
        line("train_begin", 4, job="new", steps=9, placement="0-1")])
    write(b, "both", [line("start", 1, rank=1, job="old", ranks=2)], rank=1)
    said, root, _ = page_of(b, "both")
    assert said["job"] == "new" and said["ranks"] == 1, said
    assert root.find(f"{HTML}body/{HTML}h1").text == "new"
    assert facts(root)["ranks"].startswith("1, stages 0-1"), facts(root)


def nothing(b):
    write(b, "none", [line("start", 1, version="1", ranks=2)])
    said, root, _ = page_of(b, "none")
    assert said["step"] == 0 and said["loss"] is None, said
    assert facts(root)["progress"] == "no step was made"
    assert "contain no step" in b.call("report", "none")
    os.makedirs(b.path("empty"))
    assert "--log-dir" in b.call("report", "empty", code=65)
    assert not os.path.exists(b.path("empty/report.html"))
    b.call("report", "missing", code=74)
    b.call("report", "none", "-o", "none/missing/page.html", code=74)
    b.call("report", code=64)


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = eval_job.Bench(penstock, norm, None, sys.argv[3], folder)
        for part in (check_page, check_hostile_log, check_repeated_step, ends,
                     rates, newest, nothing):
            part(b)
    print("ok")


if __name__ == "__main__":
    main()
