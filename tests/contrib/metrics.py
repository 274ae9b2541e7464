#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests metrics for Prometheus: --prom, contrib/penstock.mtail and
contrib/alerts.yml.

usage: metrics.py PENSTOCK NORM.pt2 ROOT [READS]

mtail and promtool check the program and the rules if they are installed
(Debian: mtail, prometheus). Otherwise only the names are compared with
penstock's own table, and a message says so.
"""
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "daemon"))
import eval_job  # noqa: E402  pylint: disable=wrong-import-position
import logs  # noqa: E402  pylint: disable=wrong-import-position
from patience import PATIENCE  # noqa: E402  pylint: disable=wrong-import-position

ROW = re.compile(
    r'(GAUGE|COUNT|BETWEEN)(?:_IS)?\("(\w+)", (\w+),\s+(?:\w+|"(\w+)"),')
# Metrics of each named set of --eval-data.
SETS = re.compile(r'add_sets\(prom, PREFIX "(\w+)"')
DECLARED = re.compile(r"^(gauge|counter) (penstock_\w+) by ", re.MULTILINE)
LOGROTATE = shutil.which("logrotate", path="/usr/sbin:" + os.environ["PATH"])
SAMPLE = re.compile(r'(penstock_\w+)\{job="([^"\\]|\\.)*"\} (\S+)')
# Metrics of the supervisor, which has no --prom file.
OF_LOGS = {"penstock_restarts_total", "penstock_ends_total"}


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


def names_agree(root):
    """Checks that the daemon, the mtail program and the rules use the same
    names."""
    ours = {"penstock_" + name: "counter" if kind == "COUNT" else "gauge"
            for kind, name, _, _ in
            ROW.findall(read(root, "daemon/loop/record/prom.c"))}
    of_sets = {"penstock_" + name for name in
               SETS.findall(read(root, "daemon/loop/record/prom.c"))}
    assert of_sets, "no metrics of sets"
    theirs = {name: kind for kind, name in
              DECLARED.findall(read(root, "contrib/penstock.mtail"))}
    assert set(theirs) - set(ours) == OF_LOGS | of_sets, \
        set(theirs) ^ set(ours)
    assert all(theirs[name] == kind for name, kind in ours.items())
    for name, kind in theirs.items():
        assert name.endswith("_total") == (kind == "counter"), name
    used = set(re.findall(r"penstock_\w+", "\n".join(
        line for line in read(root, "contrib/alerts.yml").splitlines()
        if "summary:" not in line and "action:" not in line)))
    assert used <= set(theirs), used - set(theirs)
    return ours


def ask(words, **options):
    done = subprocess.run(words, text=True, check=False, timeout=PATIENCE,
                          capture_output=True, **options)
    assert done.returncode == 0, (words, done)
    return done.stdout


def mtail_reads(root):
    if not shutil.which("mtail"):
        print("mtail is not installed: only names were compared")
        return
    words = ["mtail", "--port", "0", "--progs", f"{root}/contrib/penstock.mtail",
             "--emit_prog_label=false"]
    ask([*words, "--compile_only"])
    said = ask([*words, "--one_shot", "--one_shot_format", "prometheus",
                "--logs", f"{HERE}/night.log"])
    said = [line for line in said.splitlines() if line[:6] != "# HELP"]
    assert said == read(HERE, "night.prom").splitlines()
    assert 'penstock_loss{job="night",rank="0"} NaN' in said


def rules_hold(root):
    if not shutil.which("promtool"):
        text = read(root, "contrib/alerts.yml")
        assert text.count("- alert: ") == text.count("expr: ") == \
            text.count("summary: ") == text.count("action: ")
        print("promtool is not installed: the rules were not evaluated")
        return
    ask(["promtool", "check", "rules", "alerts.yml"], cwd=f"{root}/contrib")
    ask(["promtool", "test", "rules", "alerts.test.yml"], cwd=f"{root}/contrib")
    tests = read(root, "contrib/alerts.test.yml")
    for name in re.findall(r"- alert: (\w+)",
                           read(root, "contrib/alerts.yml")):
        cases = re.findall(rf"alertname: {name}\n\s+exp_alerts:(.*)\n", tests)
        assert {c.strip() for c in cases} == {"", "[]"}, (name, cases)


def file_is_whole(b, names, reads):
    """Checks that a reader sees either the old or the new file of --prom,
    never a partial one, and that the last file has the values of the log."""
    job = b.begin(*b.words("log", "--prom", "job.prom", "--steps", "1000000000",
                           "--log-every", "1", "--job", "night",
                           "--checkpoint", "ck"))
    until = time.monotonic() + PATIENCE
    while not os.path.exists(b.path("job.prom")):
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)
    versions = set()
    for _ in range(reads):
        text = b.bytes_of("job.prom").decode()
        check(text, names)
        versions.add(text)
    while len(versions) < 3:
        assert time.monotonic() < until
        versions.add(b.bytes_of("job.prom").decode())
    b.call("stop", "--job", "night")
    job.communicate(timeout=PATIENCE)
    found = check(b.bytes_of("job.prom").decode(), names)
    said = [(head["event"], fields) for head, fields in logs.read(b.path("log"))
            if head["rank"] == "0"]
    last = [fields for event, fields in said if event == "step"][-1]
    assert found["penstock_step"] == float(last["step"]), (found, last)
    assert found["penstock_loss"] == float(last["loss"])
    assert found["penstock_steps_total"] == found["penstock_step"]
    assert found["penstock_training"] == 0
    assert found["penstock_checkpoints_total"] == sum(
        event == "checkpoint_saved" for event, _ in said) == 1
    assert not [x for x in os.listdir(b.folder) if x.endswith(".tmp")]
    if shutil.which("promtool"):
        ask(["promtool", "check", "metrics"],
            input=b.bytes_of("job.prom").decode())
    # A path that cannot be written is refused when the job starts.
    b.call(*b.words("log2", "--prom", "missing/job.prom"), code=74)


def newest_is_reported(b, names):
    """Checks that clients get the newest step if steps are too fast for each
    to be reported: when they query, and when they wait for a pause or the
    end."""
    def ask_status():
        return json.loads(b.call("status", "--job", "few", "--json"))

    job = b.begin(*b.words("few", "--prom", "few.prom", "--steps", "1000000000",
                           "--log-every", "1000000000", "--job", "few"))
    until = time.monotonic() + PATIENCE
    while not os.path.exists(b.path("few.prom")) or check(
            b.bytes_of("few.prom").decode(), names).get("penstock_step", 0) < 2:
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)
    early = check(b.bytes_of("few.prom").decode(), names)
    assert ask_status()["step"] >= 2
    b.call("pause", "--job", "few")
    while not ask_status()["paused"]:
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)

    def events_of(event):
        return [fields for head, fields in logs.read(b.path("few"))
                if head["rank"] == "0" and head["event"] == event]

    first, last = events_of("step")
    status = ask_status()
    assert early["penstock_loss"] != float(first["loss"]), early
    assert first["step"] == "1" and \
        last["step"] == events_of("paused")[0]["step"]
    assert status["step"] == int(last["step"]), (status, last)
    assert status["loss"] == float(last["loss"]), (status, last)
    while not check(b.bytes_of("few.prom").decode(), names)["penstock_paused"]:
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)
    b.call("resume", "--job", "few")
    b.call("stop", "--job", "few")
    job.communicate(timeout=PATIENCE)
    end, last = events_of("train_end")[0], events_of("step")[-1]
    assert end["step"] == last["step"] and end["loss"] == last["loss"], end
    found = check(b.bytes_of("few.prom").decode(), names)
    assert found["penstock_steps_total"] == found["penstock_step"] == \
        float(end["step"]), (found, end)
    assert found["penstock_loss"] == float(end["loss"]), (found, end)
    assert found["penstock_paused"] == 0


def rotates(b, root, times):
    """Renames the log of a running job, by logrotate or in the same way, and
    checks that every line is in one of the files."""
    conf = read(root, "contrib/penstock.logrotate")
    assert ("/var/log/penstock/*/rank-*.log "
            "/var/log/penstock/*/supervisor.log {") in conf
    job = b.begin(*b.words("turn", "--steps", "1000000000", "--log-every", "1"))
    path = b.path("turn/rank-0.log")
    until = time.monotonic() + PATIENCE
    while not os.path.exists(path) or b" event=step " not in b.bytes_of(path):
        assert time.monotonic() < until and job.poll() is None
        time.sleep(.01)
    pid = re.search(rb" event=start .* pid=(\d+) ", b.bytes_of(path))[1].decode()
    with open(b.path("conf"), "w", encoding="utf-8") as file:
        file.write(conf.replace("/var/log/penstock/*", b.path("turn"))
                   .replace("pkill -HUP -x penstockd", f"kill -HUP {pid}")
                   .replace("rotate 14", f"rotate {times}")
                   .replace("    compress\n    delaycompress\n", ""))
    os.chmod(b.path("conf"), 0o644)
    for i in range(times):
        if LOGROTATE:
            ask([LOGROTATE, "-f", "-s", b.path("state"), b.path("conf")])
        else:
            os.rename(path, f"{path}.{times - i}")
            ask(["kill", "-HUP", pid])
        while not os.path.exists(path) or not b.bytes_of(path):
            assert time.monotonic() < until and job.poll() is None
            time.sleep(.005)
    job.terminate()
    job.communicate(timeout=PATIENCE)
    seen = []
    for number in range(times, -1, -1):
        part = f"{path}.{number}" if number else path
        seen += [logs.parse(line)[0]["seq"]
                 for line in read(part).splitlines(keepends=True)]
    assert seen == list(range(1, len(seen) + 1)), len(seen)
    print(f"{times} rotations, {len(seen)} lines, by",
          "logrotate" if LOGROTATE else "renaming (logrotate is not installed)")


def truncates(b, times):
    """Checks that after logrotate's copytruncate the file continues with a
    whole line, and that only lines written between copy and truncation are
    lost."""
    job = b.begin(*b.words("cut", "--steps", "1000000000", "--log-every", "1"))
    path = b.path("cut/rank-0.log")
    until = time.monotonic() + PATIENCE
    parts = []
    for _ in range(times + 1):
        while not os.path.exists(path) or b.bytes_of(path).count(b"\n") < 20:
            assert time.monotonic() < until and job.poll() is None
            time.sleep(.01)
        parts.append(b.bytes_of("cut/rank-0.log"))
        os.truncate(path, 0)
    job.terminate()
    job.communicate(timeout=PATIENCE)
    last = lost = 0
    for part in parts:
        # The last line may be incomplete if it was being written.
        seen = [logs.parse(line)[0]["seq"] for line in
                part[:part.rindex(b"\n") + 1].decode().splitlines(True)]
        assert seen == list(range(seen[0], seen[0] + len(seen)))
        lost += seen[0] - last - 1
        last = seen[-1]
    print(f"{times} truncations, {last} lines, {lost} lost")


def check(text, names):
    found, lines = {}, text.split("\n")
    assert lines.pop() == "" and len(lines) % 3 == 0, text[-200:]
    while lines:
        about, kind, sample = lines[:3]
        del lines[:3]
        name = SAMPLE.fullmatch(sample)
        assert name, sample
        assert about.startswith(f"# HELP {name[1]} ") and about[-1] == "."
        assert kind == f"# TYPE {name[1]} {names[name[1]]}", kind
        assert name[1] not in found
        found[name[1]] = float(name[3])
    assert "penstock_failures_total" in found  # the last metric of the file
    return found


def main():
    penstock, norm, root = map(os.path.abspath, sys.argv[1:4])
    reads = int(sys.argv[4]) if len(sys.argv) > 4 else 300
    names = names_agree(root)
    mtail_reads(root)
    rules_hold(root)
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        with eval_job.Bench(penstock, norm, None, "self", folder) as b:
            file_is_whole(b, names, reads)
            newest_is_reported(b, names)
            rotates(b, root, max(3, reads // 100))
            truncates(b, max(3, reads // 100))
    print("ok")


if __name__ == "__main__":
    main()
