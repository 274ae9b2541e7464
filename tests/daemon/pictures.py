#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the output files of `penstock plan`, `run` and `trace` are valid
and agree.

usage: pictures.py PENSTOCK PENSTOCKD MODEL.pt2

SVG is parsed as XML, traces and results as JSON, and CSV is read back.
"""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree

from patience import PATIENCE, wait_until

SVG = "{http://www.w3.org/2000/svg}"
WORK = {"forward", "backward", "input gradients", "parameter gradients"}

MOVES = {"send", "receive", "hand over", "reduce"}


def plan(penstock, model, folder, *options):
    svg, trace = os.path.join(folder, "a.svg"), os.path.join(folder, "a.json")
    done = subprocess.run(
        [penstock, "plan", model, "--json", "--svg", svg, "--trace", trace,
         *options], stdout=subprocess.PIPE, check=True)
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    return json.loads(done.stdout), ElementTree.parse(svg).getroot(), events


def check_arrows(events, pid, number):
    """Checks that each message begins in a span of one rank and ends at the
    begin of a span of another rank, which has the same microbatch and the next
    stage."""
    spans = [e for e in events if e["ph"] == "X" and e["pid"] == pid and
             e["cat"] in WORK]
    begins, ends = ({e["id"]: e for e in events if e["ph"] == ph and
                     e["pid"] == pid} for ph in "sf")
    assert begins.keys() == ends.keys() and len(begins) == number, number
    for key, begin in begins.items():
        end = ends[key]
        assert begin["tid"] != end["tid"] and end["bp"] == "e", (begin, end)
        # A span without duration begins at the time at which another one ends.
        sources = [s for s in spans if s["tid"] == begin["tid"] and s["ts"] <=
                   begin["ts"] < s["ts"] + max(s["dur"], .001)]
        targets = [s for s in spans if s["tid"] == end["tid"] and
                   s["ts"] == end["ts"]]
        assert any(s["args"]["microbatch"] == t["args"]["microbatch"] and
                   s["args"]["stage"] + (1 if s["cat"] == "forward" else -1) ==
                   t["args"]["stage"] for s in sources for t in targets), begin


def check(result, svg, events, ranks, microbatches):
    check_arrows(events, 0, 2 * (ranks - 1) * microbatches)
    spans = [e for e in events if e["ph"] == "X"]
    step = result["step_s"] * 1e6
    assert len(result["ranks"]) == ranks
    assert svg.tag == SVG + "svg"
    texts = ["".join(t.itertext()) for t in svg.iter(SVG + "text")]
    for rank in result["ranks"]:
        mine = sorted((e for e in spans if e["tid"] == rank["rank"]),
                      key=lambda e: e["ts"])
        # The spans of a rank have no gaps and no overlaps.
        end = 0.0
        for e in mine:
            assert abs(e["ts"] - end) < 0.01, (e, end)
            end = e["ts"] + e["dur"]
        assert abs(end - step) < 0.01
        # The times of work and of the four causes of waiting add up to the
        # step.
        kinds = {}
        for e in mine:
            cat = "waits for a message" if e["cat"] in MOVES else e["cat"]
            kinds[cat] = kinds.get(cat, 0.0) + e["dur"]
        for key, cat in (("warm_up", "warm-up"), ("drain", "drain"),
                         ("imbalance", "imbalance"),
                         ("message", "waits for a message")):
            assert abs(rank[key] * step - kinds.get(cat, 0.0)) < 0.1, key
        forwards = [e for e in mine if e["cat"] == "forward"]
        numbers = {e["args"]["microbatch"] for e in forwards}
        assert numbers == set(range(microbatches))
        assert "rank %d" % rank["rank"] in texts
        assert rank["bubble"] > 0
    for number in range(microbatches):
        assert str(number) in texts
    assert "forward" in texts and "warm-up" in texts


def check_auto(penstock, model, folder):
    """Checks that the schedule `auto` has the predicted time and memory, and
    that its CSV gives the same result."""
    csv = os.path.join(folder, "a.csv")
    common = ["--stages", "4", "-m", "6"]
    result, _, _ = plan(penstock, model, folder, *common, "--schedule", "auto",
                        "--csv", csv)
    rows = result["candidates"]
    times = [row["step_s"] for row in rows if "step_s" in row]
    assert times[0] <= 1.005 * min(times)
    assert {"gpipe", "1f1b", "greedy"} <= {row["schedule"] for row in rows}
    again, _, _ = plan(penstock, model, folder, *common, "--schedule",
                       "csv:" + csv)
    assert abs(again["step_s"] - result["step_s"]) < 1e-9 * result["step_s"]
    limit = 0.75 * max(r["arena_bytes"] for r in result["ranks"]) / 2**20
    small, _, _ = plan(penstock, model, folder, *common, "--schedule", "auto",
                       "--memory-limit", str(limit))
    assert max(r["arena_bytes"] for r in small["ranks"]) <= limit * 2**20
    for schedule, code in ("auto", 64), ("gpipe", 64):
        done = subprocess.run(
            [penstock, "plan", model, *common, "--schedule", schedule,
             "--memory-limit", "5"], stderr=subprocess.PIPE, check=False)
        assert done.returncode == code and b"MiB more" in done.stderr, done


def check_choices(penstock, model, folder):
    """Checks that memory and time of each way of recomputation in --what-if
    match the plan with that way. With a memory limit, plan and run choose the
    fastest way that fits."""
    common = ["--stages", "2", "-m", "4"]
    result, _, _ = plan(penstock, model, folder, *common, "--what-if")
    choices = result["choices"]
    assert result["recompute"] == "none" == choices[0]["recompute"]
    assert {"attention", "block", "full"} <= {c["recompute"] for c in choices}
    for c in choices:
        alone, _, _ = plan(penstock, model, folder, *common, "--recompute",
                           c["recompute"])
        most = max(r["arena_bytes"] for r in alone["ranks"])
        assert most == c["peak_bytes"], c
        assert abs(alone["step_s"] - c["step_s"]) < 1e-9, c
        assert alone["choices"] is None
    least = min(choices, key=lambda c: c["peak_bytes"])
    assert least["peak_bytes"] < choices[0]["peak_bytes"]
    for limit in {c["peak_bytes"] for c in choices}:
        want = min((c for c in choices if c["peak_bytes"] <= limit),
                   key=lambda c: c["step_s"])
        taken, _, _ = plan(penstock, model, folder, *common, "--memory-limit",
                           str((limit + 1) / 2**20))
        assert taken["recompute"] == want["recompute"], (limit, want, taken)
    data, log = os.path.join(folder, "c.bin"), os.path.join(folder, "clog")
    with open(data, "wb") as file:
        file.write(bytes(range(256)) * 64)
    run = [penstock, "run", model, *common, "--steps", "1", "--data", data,
           "--transport", "self", "--threads", "1", "--quiet", "--log-dir",
           log, "--memory-limit"]
    subprocess.run([*run, str((least["peak_bytes"] + 1) / 2**20)], check=True)
    text = ""
    for name in (n for n in os.listdir(log) if n.endswith(".log")):
        with open(os.path.join(log, name), encoding="utf-8") as file:
            text += file.read()
    assert least["recompute"] in text, text
    done = subprocess.run([*run, str((least["peak_bytes"] - 64) / 2**20)],
                          stderr=subprocess.PIPE, check=False)
    assert done.returncode == 64, done
    assert b"recompute " + least["recompute"].encode() in done.stderr, done
    assert b"0.00 MiB more" in done.stderr, done


def check_shares(ranks):
    """Checks that the times of work and of the causes of waiting add up to the
    whole time."""
    for rank in ranks:
        causes = rank.get("step", rank)
        idle = 1 - causes["work"] if "work" in causes else causes["bubble"]
        parts = sum(causes.get(k, 0.0)
                    for k in ("warm_up", "drain", "imbalance", "message",
                              "other", "move"))
        assert abs(parts - idle) < 1e-3 and 0 <= idle <= 1, rank


def check_picture(svg, trace, ranks):
    """Checks that the picture shows the measured and the predicted step with
    all ranks."""
    texts = ["".join(t.itertext())
             for t in ElementTree.parse(svg).getroot().iter(SVG + "text")]
    for rank in range(ranks):
        assert texts.count("rank %d" % rank) == 2
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    for pid in 0, 1:
        for rank in range(ranks):
            assert sum(e["ph"] == "X" and e["pid"] == pid and e["tid"] == rank
                       and e["cat"] == "forward" for e in events) == 4
        check_arrows(events, pid, 2 * (ranks - 1) * 4)


def check_run(penstock, model, folder):
    """Checks that a run writes pictures and costs, and that plan and split
    accept these costs."""
    data = os.path.join(folder, "data.bin")
    costs = os.path.join(folder, "costs.json")
    svg, trace = os.path.join(folder, "r.svg"), os.path.join(folder, "r.json")
    with open(data, "wb") as file:
        file.write(bytes(range(256)) * 64)
    done = subprocess.run(
        [penstock, "run", model, "--stages", "2", "-n", "2", "-m", "4",
         "--steps", "3", "--data", data, "--transport", "self", "--threads",
         "1", "--json", "--quiet", "--svg", svg, "--trace", trace,
         "--write-costs", costs], stdout=subprocess.PIPE, check=True)
    check_shares(json.loads(done.stdout)["ranks"])
    check_picture(svg, trace, 2)
    with open(costs, encoding="utf-8") as file:
        measured = json.load(file)
    for kinds in ("forward",), ("input", "weight"):
        stages = sum(s[k] for s in measured["stages"] for k in kinds)
        modules = sum(m[k] for m in measured["modules"] for k in kinds)
        assert stages > 0 and abs(stages - modules) < 1e-6 * stages, kinds
    # The same modules have the same total cost in every cut.
    work = []
    for stages in "2", "4":
        result, _, events = plan(penstock, model, folder, "--stages", stages,
                                 "-m", "4", "--costs", costs)
        work.append(sum(e["dur"] for e in events
                        if e["ph"] == "X" and e["cat"] in WORK))
        assert result["step_s"] > 0
    assert abs(work[0] - work[1]) < 0.05 * work[0], work


def check_nothing_left(penstock, model, folder):
    """Checks that a run that ends before its trace succeeds and reports which
    files are missing."""
    files = [os.path.join(folder, "over." + x) for x in ("svg", "json", "costs",
                                                         "dump")]
    words = [penstock, "run", model, "--stages", "2", "-n", "2", "-m", "4",
             "--transport", "self", "--data", os.path.join(folder, "data.bin"),
             "--quiet"]
    ck = ["--checkpoint", os.path.join(folder, "over")]
    subprocess.run([*words, *ck], stdout=subprocess.DEVNULL, check=True)
    for more in ([*ck, "--resume"], ["--steps", "0"]):
        said = subprocess.run(
            [*words, *more, "--svg", files[0], "--trace", files[1],
             "--write-costs", files[2], "--dump", files[3]], check=True,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True).stderr
        for file in files:
            assert f"{file} was not written" in said, said
            assert not os.path.exists(file), file


def check_job(penstock, penstockd, model, folder):
    """Traces a running job, and again after its run has ended."""
    plan_folder = os.path.join(folder, "job.plan")
    svg, trace = os.path.join(folder, "j.svg"), os.path.join(folder, "j.json")
    socket = os.path.join(folder, "job", "s")
    subprocess.run([penstock, "split", model, "-o", plan_folder, "--stages",
                    "2"], stdout=subprocess.DEVNULL, check=True)
    job = ["--socket", socket]
    os.mkdir(os.path.dirname(socket), 0o700)
    daemon = subprocess.Popen(
        [penstockd, plan_folder, "--transport", "self", "-n", "2", "--threads",
         "1", "--die-with-parent", *job])
    try:
        subprocess.run(
            ["sh", "-c", "until [ -S $0 ]; do sleep 0.05; done", socket],
            check=True, timeout=PATIENCE)
        def is_ready():
            done = subprocess.run([penstock, "status", *job, "--json"],
                                  check=False, stdout=subprocess.PIPE)
            return done.returncode == 0 and \
                json.loads(done.stdout)["state"] == "ready"

        wait_until(is_ready, "the daemon is not ready", every=.05)
        none = subprocess.run([penstock, "trace", *job], check=False,
                              stderr=subprocess.PIPE)
        assert none.returncode in (65, 75), none
        subprocess.run(
            [penstock, "train", *job, "--data",
             os.path.join(folder, "data.bin"), "-m", "4", "--steps", "40",
             "--schedule", "1f1b", "--detach"], check=True,
            stdout=subprocess.DEVNULL)
        for _ in range(2):
            done = subprocess.run(
                [penstock, "trace", *job, "--json", "--svg", svg, "--trace",
                 trace], stdout=subprocess.PIPE, check=True)
            result = json.loads(done.stdout)
            assert result["step_s"] > 0 and result["predicted_step_s"] > 0
            alone = [r["predicted_bubble"] for r in result["ranks"]]
            assert abs(sum(alone) / len(alone) -
                       result["predicted_bubble"]) < 1e-9, result
            check_shares(result["ranks"])
            check_picture(svg, trace, 2)
    finally:
        subprocess.run([penstock, "stop", "--now", *job], check=False,
                       stdout=subprocess.DEVNULL)
        daemon.wait(PATIENCE)


def main():
    penstock, penstockd, model = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        check_auto(penstock, model, folder)
        check_choices(penstock, model, folder)
        check_run(penstock, model, folder)
        check_nothing_left(penstock, model, folder)
        check_job(penstock, penstockd, model, folder)
        awkward = os.path.join(folder, "a<b>&\"c'.pt2")
        shutil.copy(model, awkward)
        for schedule in "gpipe", "1f1b":
            result, svg, events = plan(penstock, awkward, folder, "--stages",
                                       "3", "-m", "4", "--schedule", schedule)
            assert result["schedule"] == schedule
            check(result, svg, events, 3, 4)
    return 0


if __name__ == "__main__":
    sys.exit(main())
