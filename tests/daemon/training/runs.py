#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Tests `penstock runs`.

usage: runs.py PENSTOCK NORM.pt2

found    the folders of a run are one row, with its numbers and the options in
         which it differs from others, from the logs or from a checkpoint
hostile  damaged files and names are left out or escaped
planted  a pipe or a device in the place of a file is refused, and not read
"""
import json
import os
import shutil
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import eval_job  # noqa: E402


class Bench(eval_job.Bench):
    def run(self, name, *more, eval_data=True):
        os.makedirs(self.path(name), exist_ok=True)
        words = self.words(name + "/log", "--checkpoint", name + "/save", *more)
        if eval_data:
            words += ["--eval-data", "other.safetensors", "--eval-every", "3"]
        return json.loads(self.call(*words))

    def runs(self, *folders):
        said = json.loads(self.call("runs", *folders, "--json"))
        return {x["path"]: x for x in said["runs"]}, said["differing"]


def found(b):
    said = {name: b.run("exp/" + name, *more) for name, more in (
        ("a", ("--lr", "1e-3")),
        ("b", ("--lr", "1e-2", "--steps", "9", "--shuffle")))}
    b.run("exp/deep/c", "--lr", "1e-2", eval_data=False)
    rows, differing = b.runs("exp")
    assert list(rows) == ["exp/a/log", "exp/b/log", "exp/deep/c/log"], rows
    assert differing == ["lr", "shuffle", "eval-data", "eval-every",
                         "steps"], differing
    for name, result in said.items():
        row = rows[f"exp/{name}/log"]
        assert row["steps"] == result["steps"], (row, result)
        assert row["options"] == result["options"], (row, result)
        assert row["loss"] == result["losses"][-1], (row, result)
        assert abs(row["best_eval"] - result["best_loss"]) < 1e-6, (row, result)
        assert len(row["run"]) == 32, row
    assert rows["exp/deep/c/log"]["best_eval"] is None
    assert rows["exp/b/log"]["options"]["shuffle"] == "1"
    table = b.call("runs", "exp").splitlines()
    assert len(table) == 4 and table[0].split() == [
        "run", "steps", "loss", "best", "eval", *differing], table
    assert table[2].split()[:2] == ["exp/b/log", "9"], table
    assert " 0.01 " in table[2] and " 0.001 " in table[1], table

    # Runs that only checkpoints show; the folder `best` is a part of its run.
    b.run("exp/d", "--lr", "1e-4", "--keep-best")
    for name in "a", "b", "d":
        shutil.copytree(b.path("exp", name, "save"), b.path("saves", name))
    saves, differing = b.runs("saves")
    assert list(saves) == ["saves/a", "saves/b", "saves/d"], saves
    assert {"lr", "shuffle"} <= set(differing), differing
    for name in "a", "b":
        for key in "steps", "loss", "run":
            assert saves["saves/" + name][key] == \
                rows[f"exp/{name}/log"][key], (name, key)
        assert abs(saves["saves/" + name]["best_eval"] -
                   rows[f"exp/{name}/log"]["best_eval"]) < 1e-6
    both, _ = b.runs("exp", "saves")
    assert len(both) == 4, both
    one, differing = b.runs("exp/a")
    assert len(one) == 1 and differing == [], (one, differing)


def check_hostile_files(b):
    shutil.copytree(b.path("exp"), b.path("bad"))
    for name in "log", "save":
        with open(b.path("bad/a", name, "steps.history"), "r+b") as file:
            file.write(b"\0" * 70)
    with open(b.path("bad/b/save/evaluations"), "w", encoding="utf-8") as file:
        file.write("nothing")
    os.rename(b.path("bad/deep"), b.path("bad/\x1b[31m"))
    os.makedirs(b.path("bad/empty/log"))
    with open(b.path("bad/empty/log/rank-0.log"), "w",
              encoding="utf-8") as file:
        file.write("no log\n")
    os.symlink(b.path("bad"), b.path("bad/loop"))
    rows, _ = b.runs("bad")
    assert {"bad/a/log", "bad/a/save", "bad/b/log", "bad/d/log",
            "bad/\x1b[31m/c/log"} == set(rows), list(rows)
    assert "\x1b" not in b.call("runs", "bad")
    text = b.call("runs", "bad/empty", code=65)
    assert "bad/empty" in text and "[history.none]" in text, text
    assert "nowhere" in b.call("runs", "nowhere", code=74)


def refuse_planted_files(b):
    """Checks that `runs` and `report` refuse files that would block or never
    end. A folder with the name of a log is no log."""
    shutil.copytree(b.path("exp/a/log"), b.path("odd/log"))
    os.mkdir(b.path("odd/log/old.log"))
    b.call("runs", "odd")
    b.call("report", "odd/log")
    for name in "rank-0.log", "supervisor.log", "steps.history":
        for plant in os.mkfifo, lambda path: os.symlink("/dev/zero", path):
            shutil.rmtree(b.path("odd"))
            shutil.copytree(b.path("exp/a/log"), b.path("odd/log"))
            path = b.path("odd/log", name)
            if os.path.exists(path):
                os.remove(path)
            plant(path)
            # A page needs no history: its curves are then those of the log.
            for words in ("runs", "odd"), ("report", "odd/log"):
                if words[0] == "report" and name == "steps.history":
                    b.call(*words)
                    continue
                said = b.call(*words, code=74)
                assert f"odd/log/{name}" in said, (words, said)
                assert "[file.wrong-kind]" in said, (words, said)
    os.makedirs(b.path("pipe/save"))
    shutil.copy(b.path("exp/a/save/owner.json"), b.path("pipe/save"))
    os.mkfifo(b.path("pipe/save/evaluations"))
    said = b.call("runs", "pipe", code=74)
    assert "evaluations" in said and "[file.wrong-kind]" in said, said
    # The other runs are listed, and each of these folders is named.
    said = b.call("runs", "exp", "pipe", "odd", code=74)
    assert "[file.wrong-kind]" in said and "pipe/save" in said and \
        "odd/log/steps.history" in said, said
    for path in b.runs("exp")[0]:
        assert path in said, (path, said)


def main():
    penstock, norm = map(os.path.abspath, sys.argv[1:3])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder, \
            Bench(penstock, norm, None, "self", folder) as b:
        for test in found, check_hostile_files, refuse_planted_files:
            test(b)
    print("ok")


if __name__ == "__main__":
    main()
