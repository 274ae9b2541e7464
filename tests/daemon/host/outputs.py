# SPDX-License-Identifier: Apache-2.0
"""Checks that no command writes its output over a file that it reads, or over
one of a plan or a checkpoint.

usage: outputs.py PENSTOCK TINY.pt2
"""
import fcntl
import glob
import os
import shutil
import stat
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                ".."))
import clients  # noqa: E402
import logs  # noqa: E402
from job import Bench  # noqa: E402
from patience import wait_until  # noqa: E402


def bytes_of(b, name):
    with open(b.path(name), "rb") as file:
        return file.read()


def write(b, name, text):
    with open(b.path(name), "w", encoding="utf-8") as file:
        file.write(text)


def keeps_inputs(b, model):
    """Tries each output on each input, also by another name of the file."""
    b.call("weights", "tiny.plan", "-o", "w.safetensors")
    for name, source in (("m.pt2", model), ("e.pt2", model),
                         ("v.safetensors", b.path("data.safetensors"))):
        shutil.copy(source, b.path(name))
    b.call("plan", "tiny.plan", "--csv", "s.csv")
    os.link(b.path("data.safetensors"), b.path("again.safetensors"))
    plan = "plan", "m.pt2", "--weights", "w.safetensors", "--schedule", \
        "csv:s.csv"
    infer = "infer", "m.pt2", "--data", "data.safetensors", "--weights", \
        "w.safetensors"
    run = "run", "m.pt2", "--data", "data.safetensors", "--transport", \
        "self", "--quiet", "--weights", "w.safetensors", "--eval-data", \
        "v.safetensors", "--eval-model", "e.pt2", "--checkpoint", "ck2"
    files = ["m.pt2", "w.safetensors", "data.safetensors"]
    owned = [f"ck/{x}" for x in ("owner.json", "steps.history")]
    cases = [(run, ["--dump", "--dump-fault", "--write-costs"],
              files + ["again.safetensors", "v.safetensors", "e.pt2"] + owned),
             (run, ["--svg", "--trace"], files),
             (plan, ["--svg", "--trace", "--csv"],
              ["m.pt2", "w.safetensors", "s.csv", "tiny.plan/plan.pb"]),
             (infer, ["-o"], files)]
    before = {x: bytes_of(b, x) for x in files + owned + [
        "e.pt2", "v.safetensors", "s.csv", "tiny.plan/plan.pb"]}
    for words, options, paths in cases:
        for option in options:
            for path in paths:
                said = b.call(*words, option, path, code=64)
                assert "would be written over" in said, (words, option, said)
    write(b, "points", "0=1\n10=.5\n")
    write(b, "options.toml", "lr = 1e-3\n")
    for words in (("--lr-points", "@points", "--svg", "points"),
                  ("@options.toml", "--trace", "options.toml")):
        said = b.call(*run, *words, code=64)
        assert "would be written over" in said, (words, said)
    # Without the file as an input it is replaced.
    b.call("plan", "tiny.plan", "--csv", "s.csv")
    assert before == {x: bytes_of(b, x) for x in before}


def names(b, folder):
    return sorted(os.listdir(b.path(folder)))


def keeps_own_checkpoints(b):
    """Checks that no output is written where a run has, or will have, its
    checkpoints, whatever path leads there, and that other folders in the folder
    of checkpoints may be used."""
    run = "run", "tiny.plan", "--data", "data.safetensors", "--transport", \
        "self", "--quiet", "--steps"
    both = "--checkpoint", "own", "--checkpoint-fallback", "second", \
        "--keep-best", "--eval-data", "data.safetensors", "--eval-every", "2"
    b.call(*run, "2", *both)
    os.mkdir(b.path("own/plots"))
    os.mkdir(b.path("else"))
    os.symlink(b.path("own/step-00000004/manifest.json"), b.path("else/link"))
    os.symlink(b.path("own"), b.path("else/own"))
    before = names(b, "own"), names(b, "own/best"), names(b, "second")
    for option in ("--dump", "--dump-fault", "--write-costs", "--svg",
                   "--trace", "--prom"):
        for path in ("own/x", "own/step-00000004/manifest.json", "own/best/x",
                     "own/best/step-00000004/x", "own/former-1/x",
                     b.path("own/x"), "else/../own/x", "else/own/x",
                     "else/link", "else/link//x",
                     "own/plots/../step-00000004/x", "second/x",
                     "second/step-00000004/x"):
            said = b.call(*run, "4", *both, "--resume", option, path, code=64)
            assert f"--{option[2:]} {path}: the run makes and " in said, said
            assert "[option.value]" in said, said
        # Before the folder is there; and a second one that is not named.
        for path in "new/x", "./new/step-00000004/manifest.json":
            b.call(*run, "4", "--checkpoint", "new", option, path, code=64)
        b.call(*run, "4", "--checkpoint", "own", "--resume", option,
               "second/x", code=64)
    for option in "--log-dir", "--tensorboard":
        for path in "own/best", "own/step-00000004", "second/step-00000004/x":
            b.call(*run, "4", *both, "--resume", option, path, code=64)
    assert before == (names(b, "own"), names(b, "own/best"),
                      names(b, "second"))
    assert not os.path.exists(b.path("new"))
    b.call(*run, "4", *both, "--resume", "--dump", "own/plots/dump",
           "--prom", "own/plots/of.prom", "--trace", "own/plots/trace.json",
           "--tensorboard", "own/board", "--log-dir", "own/log")
    assert names(b, "own/plots") == ["dump", "of.prom", "trace.json"]


def keeps_histories(b):
    """Checks that the folder of checkpoints of one run is no --log-dir of
    another, also for runs of `penstock train`, and that it is one of the run
    itself."""
    run = "run", "tiny.plan", "--data", "data.safetensors", "--transport", \
        "self", "--quiet", "--steps"
    logged = "--checkpoint", "both", "--log-dir", "both"
    b.call(*run, "2", *logged)
    b.call(*run, "2", "--checkpoint", "apart", "--log-dir", "apart-log")
    history = bytes_of(b, "both/steps.history")
    before = names(b, "both"), names(b, "apart")
    for words in (("--log-dir", "both"),
                  ("--log-dir", "both/", "--checkpoint", "apart", "--resume"),
                  ("--log-dir", "apart", "--max-restarts", "1", "--checkpoint",
                   "third")):
        said = b.call(*run, "3", *words, code=64)
        assert "is the checkpoint folder of another run" in said, said
        assert "[option.value]" in said, said
    b.call("up", "tiny.plan", "--transport", "self", "--log-dir", "apart",
           "--job", "stays", "--detach")
    train = "train", "--job", "stays", "--data", "data.safetensors", "--quiet"
    said = b.call(*train, "--steps", "3", code=64)
    assert "is the checkpoint folder of another run" in said, said
    assert names(b, "apart").count("steps.history.former") == 0
    b.call(*train, "--steps", "3", "--checkpoint", "apart", "--resume")
    b.call("stop", "--job", "stays")
    assert history == bytes_of(b, "both/steps.history")
    assert before[0] == names(b, "both") and not os.path.exists(b.path("third"))
    b.call(*run, "3", *logged, "--resume")
    # A copy of the folder has the run that goes on.
    shutil.copytree(b.path("both"), b.path("copy"))
    b.call(*run, "4", "--checkpoint", "both", "--log-dir", "copy", "--resume")
    for name in "both", "copy":
        assert b.call("history", name).count("\n") == 5, name
        assert not os.path.exists(b.path(name, "steps.history.former")), name


def keeps_others(b):
    """Checks that files of others beside --socket are refused, and those of a
    killed job replaced."""
    run = "run", "tiny.plan", "--data", "data.safetensors", "--transport", \
        "self", "--quiet", "--steps", "1", "--socket", "train"
    for end in "out", "result", "last", "run", "lock":
        name = f"train.{end}"
        write(b, name, "precious")
        said = b.call(*run, code=78)
        assert f"{name} exists" in said and "[socket.path]" in said, said
        assert bytes_of(b, name) == b"precious", name
        os.unlink(b.path(name))
    write(b, "train.lock", "precious")
    write(b, "train.out", "precious")
    b.call(*run, code=78)
    assert bytes_of(b, "train.out") == b"precious"
    os.unlink(b.path("train.lock"))
    write(b, "train.run", f"{2 ** 22:<11}{2 ** 22 + 1:<11}\n0 - ")
    write(b, "train.result", "of a killed job")
    b.call(*run)
    assert not glob.glob(b.path("train.*")), glob.glob(b.path("train.*"))


def keeps_logs_apart(b):
    """Starts two runs with one --log-dir at once: one of them is refused, and
    so are ranks that are started by hand. The gate holds the other until then,
    so both are there in any case."""
    for folder in "logs-1", "logs-2":
        b.gate(0)
        jobs = [b.begin("run", "tiny.plan", "--data", "data.safetensors",
                        "--transport", "self", "--quiet", "--steps", "2",
                        "--log-dir", folder, PENSTOCK_GATE="gate")
                for _ in range(2)]
        wait_until(lambda: any(x.poll() is not None for x in jobs), "a refusal")
        jobs.sort(key=lambda x: x.poll() is None)
        said = b.ended(jobs[0], 78).stderr
        assert folder in said and "[job.log-in-use]" in said, said
        by_hand = b.begin_as([b.penstock + "d", "tiny.plan", "--transport",
                              "self", "--job", "own", "--log-dir", folder],
                             env=b.env)
        said = b.ended(by_hand, 78).stderr
        assert folder in said and "[job.log-in-use]" in said, said
        b.gate(9)
        b.ended(jobs[1])
        names = {head["job"] for head, _ in logs.read(b.path(folder))}
        assert len(names) == 1, names


def keeps_special_files(b):
    """--prom replaces its file, and so it refuses a pipe, a folder and a
    device, also through a link."""
    os.mkfifo(b.path("pipe.prom"))
    os.mkdir(b.path("folder.prom"))
    os.symlink("/dev/null", b.path("null.prom"))
    for name in "pipe.prom", "folder.prom", "null.prom":
        said = b.call("run", "tiny.plan", "--data", "data.safetensors",
                      "--transport", "self", "--quiet", "--steps", "1",
                      "--prom", name, code=74)
        assert name in said and "[file.wrong-kind]" in said, said
    assert stat.S_ISFIFO(os.lstat(b.path("pipe.prom")).st_mode)
    assert os.path.islink(b.path("null.prom"))
    assert not os.listdir(b.path("folder.prom"))
    assert not glob.glob(b.path("*.tmp")), glob.glob(b.path("*.tmp"))


def removes_leftovers(b):
    """A split removes what a killed one has left, and nothing that a process
    is writing or that has another name."""
    names = [f"tiny.plan.tmp-{x}" for x in ("999999999", "999999998", "x", "")]
    names += ["other.plan.tmp-1", "tiny.plan.tmp-1.old"]
    for name in names:
        os.mkdir(b.path(name))
        write(b, os.path.join(name, "plan.pb"), "half")
    lock = os.open(b.path(names[1]), os.O_RDONLY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    b.call("split", "m.pt2", "-o", "tiny.plan")
    b.call("split", "m.pt2", "-o", "new.plan")
    assert [os.path.exists(b.path(x)) for x in names] == [False] + 5 * [True]
    os.close(lock)
    b.call("split", "m.pt2", "-o", b.path("tiny.plan"))
    assert not os.path.exists(b.path(names[1]))
    left = {os.path.basename(x) for x in glob.glob(b.path("*.tmp-*"))}
    assert left == set(names[2:]), left
    for name in names[2:]:
        shutil.rmtree(b.path(name))


def needs_folders(b):
    """Checks that a run says at its start that it could not write a file, and
    that a resume goes on with a warning."""
    run = "run", "tiny.plan", "--data", "data.safetensors", "--transport", \
        "self", "--quiet", "--steps"
    for option in "--dump", "--dump-fault", "--write-costs":
        for path, words in (("none/x", "could not make this file in "),
                            ("tiny.plan", "Is a directory"),
                            ("data.safetensors/x", "Not a directory")):
            done = b.done(*run, "2", "--checkpoint", "ck3", option, path,
                          "--json", code=74)
            assert words in done.stderr, done.stderr
            assert not os.path.exists(b.path("ck3")), done.stdout
    b.call(*run, "2", "--checkpoint", "ck3", "--dump", "x")
    done = b.done(*run, "4", "--checkpoint", "ck3", "--resume", "--dump-fault",
                  "none/x")
    assert "could not make this file in " in done.stderr, done.stderr


def main():
    penstock, model = map(os.path.abspath, sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="pst-") as folder:
        b = Bench(penstock, folder)
        clients.write_data(b.path("data.safetensors"))
        b.call("split", model, "-o", "tiny.plan")
        data = "tiny.plan", "--data", "data.safetensors"
        run = "run", *data, "--transport", "self", "--quiet"
        b.call(*run, "--steps", "2", "--checkpoint", "ck")
        stage = glob.glob(b.path("tiny.plan/*.safetensors"))[0]
        shard = glob.glob(b.path("ck/step-00000002/*.safetensors"))[0]
        os.symlink(shard, b.path("link.safetensors"))
        for path in stage, shard, "link.safetensors":
            with open(b.path(path), "rb") as file:
                before = file.read()
            for words in ((*run, "--steps", "1", "--dump", path),
                          ("infer", *data, "--checkpoint", "ck", "-o", path),
                          ("weights", "ck", "-o", path)):
                said = b.call(*words, code=64)
                assert "would be written over" in said, (words, said)
                with open(b.path(path), "rb") as file:
                    assert file.read() == before, words
        b.call("weights", "ck", "-o", "ck/step-00000002/new.safetensors")
        keeps_inputs(b, model)
        keeps_own_checkpoints(b)
        keeps_histories(b)
        keeps_others(b)
        keeps_logs_apart(b)
        keeps_special_files(b)
        removes_leftovers(b)
        needs_folders(b)
    print("ok")


if __name__ == "__main__":
    main()
