# SPDX-License-Identifier: Apache-2.0
"""A job in its folder: starts, steps, changes, ends; and its plain form."""
import json
import os

from ground import Broken, Gone, processes

CHANGES = ("set", "swapped", "frozen", "unfrozen", "attr_set", "attr_cast")
REFUSED = 64, 65, 78  # exit codes of a start that is refused


class Refused(Exception):
    pass


class Late(Exception):
    """The job is already past the step of an event."""


class Job:
    """The job of a life in the ground `g`, with the options `d` (draw.Drawn).
    After step n it is changed by `changes` (n, words)."""

    def __init__(self, g, d):
        self.g, self.d, self.rng = g, d, d.rng
        self.run = None
        self.supervised = self.paused = self.begun = self.over = False
        self.seen = 0  # lines of the log before this start
        self.changes, self.lost = [], []
        self.course = []  # what happened, for the report
        self.pins = set()  # pinned steps
        self.evaluates = True  # this start has the options of evaluations
        self.blind = False  # a start had none
        self.went_back = False  # to an older checkpoint, by --resume=STEP
        self.watching = None  # client that gets all events
        self.flag = g.path("flag")
        self.faulty_saves = True

    # --- starts -------------------------------------------------------------

    def words(self, at=()):
        """Returns the command without options of the layout."""
        d = self.d
        evals = d.evals if self.evaluates else []
        return ["run", f"m/{d.name}.pt2", *d.cut, *at, *d.base, *evals,
                "--steps", d.steps, "--checkpoint", "ck", "--log-dir", "log",
                "--job", "life", "--quiet"]

    def begin(self, *more):
        """Starts the job, anew or from its newest checkpoint."""
        g, d = self.g, self.d
        self.evaluates = not (self.begun and d.some(.1))
        self.blind |= not self.evaluates
        layout = [*d.layout(), *d.saving()]
        words = self.words(d.at)
        if d.some(.25):
            d.plans += 1
            seed = ["--seed", d.seed] if "--lora" in d.cut else []
            done = g.do("split", *words[1:words.index("--threads")], *seed,
                        "-o", f"plan-{d.plans}", codes=(0, *REFUSED))
            if done.returncode != 0:
                raise Refused(done.err)
            words[1:words.index("--threads")] = [f"plan-{d.plans}"]
        words += layout
        self.supervised = d.stays or d.some(.45)
        if self.supervised and not d.stays:
            words += ["--max-restarts", "9"]
        resume = list(more)
        if self.begun and not any(x.startswith("--resume") for x in more):
            resume.append("--resume=auto")
        self.paused = False
        self.seen = len(g.lines())
        g.forget_place()
        env, self.faulty_saves = d.fault(self.flag)
        env["PENSTOCK_GATE"] = g.path("gate")
        if not d.stays:
            self.run = g.start(*words, *resume, **env)
            return
        done = g.do("up", *words[1:], "--detach", codes=(0, *REFUSED), **env)
        if done.returncode != 0:
            raise Refused(done.err)
        self.run = g.start("train", "--job", "life", "--quiet", *resume)

    def await_start(self):
        """Waits until a start has begun its run. Returns False if it was
        refused."""
        try:
            self.g.until(lambda: self.events("train_begin"), "train_begin",
                         self.run)
        except Gone:
            done = self.g.wait(self.run, "run")
            if self.d.stays:
                self.ask("stop", codes=None)
            if done.returncode in REFUSED:
                self.refusal = (done.err.strip().splitlines() or [""])[-1]
                return False
            if done.returncode != 0:
                raise Broken(f"code: the start ended with {done.returncode}:\n"
                             f"{done.out}{done.err}") from None
        self.begun = True
        return True

    def again(self, *more):
        """Starts the job again, from its newest checkpoint."""
        for _ in range(4):
            self.begin(*more)
            if self.await_start():
                break
            self.course.append(f"refused: {self.refusal}")
        else:
            raise Refused(self.refusal)
        return self.lose()

    # --- steps --------------------------------------------------------------

    def events(self, *names):
        return [x for x in self.g.lines()[self.seen:]
                if x.get("event") in names]

    def reach(self, n):
        """Lets the job go on until it waits at the beginning of step n."""
        if self.now() >= n:
            raise Late(n)
        if self.paused:
            self.ask("resume")
            self.paused = False
        self.g.gate(n - 1)
        self.g.note(f"at {n}")
        self.g.until(lambda: self.g.place() == n, f"step {n}", self.run)

    def ask(self, *words, codes=(0,), **more):
        return self.g.do(*words, "--job", "life", codes=codes, **more)

    def requested(self, words, n, opens=True):
        """Sends a request at the beginning of step n, so that it takes effect
        after it. Returns the client. opens: lets the job make that step."""
        before = len(self.events("request"))
        client = self.g.start(*words, "--job", "life")
        self.g.note("sleep .2")
        self.g.until(lambda: client.poll() is not None or len(
            self.events("request")) > before, f"request {words}", self.run)
        if opens:
            self.g.gate(n)
        return client

    def pause(self, n):
        """Pauses the job after step n."""
        if self.paused and self.now() == n:
            return
        self.reach(n)
        pause_at(self.g, "life", n)
        self.paused = True

    def now(self):
        """Returns the newest step that is done."""
        if self.paused:
            return int(self.events("paused")[-1]["step"])
        return max(self.g.place() - 1, 0)

    # --- changes ------------------------------------------------------------

    def change(self, n, words, refused=()):
        """Changes the job after step n, paused or in its run. refused: exit
        codes that are right, too. Returns the exit code."""
        # A rollback makes steps again with options that were set later, unless
        # a checkpoint has them.
        saves = words[0] == "set" and "rollback" in self.d.base
        if saves or self.d.some(.5) or (self.paused and self.now() == n):
            self.pause(n)
            done = self.ask(*words, codes=None)
            if saves:
                self.ask("checkpoint")
        else:
            self.reach(n)
            done = self.g.wait(self.requested(words, n), words[0])
        code = done.returncode
        self.course.append(f"  {n}: {' '.join(words)} -> {code}")
        if code == 0:
            line = self.events(*CHANGES)[-1]
            self.changes.append((int(line["step"]), words))
        elif code not in refused:
            raise Broken(f"code: {words} ended with {code}:\n"
                         f"{done.out}{done.err}")
        return code

    def both(self, n, words, others):
        """Two clients change the job after step n."""
        self.reach(n)
        seen = len(self.g.lines())
        clients = [self.requested(w, n, opens=False) for w in (words, others)]
        self.g.gate(n)
        codes = [self.g.wait(c, "change").returncode for c in clients]
        self.course.append(f"  {n}: {' '.join(words)} -> {codes[0]}, "
                           f"{' '.join(others)} -> {codes[1]}")
        for code, client in zip(codes, clients):
            if code not in (0, 64, 65, 75):
                raise Broken(f"code: {client.args} ended with {code}: "
                             f"{client.err}")
        for x in self.g.lines()[seen:]:
            if x["event"] in CHANGES:
                of = words if (x["event"] == "set") == (words[0] == "set") \
                    else others
                self.changes.append((int(x["step"]), of))

    def lose(self):
        """After a start from a checkpoint: forgets the changes that it does
        not have. Returns them."""
        lines = self.g.lines()
        first = max(i for i, x in enumerate(lines)
                    if x["event"] in ("train_begin", "resume"))
        resumed = [x for x in lines[first - 6:first + 1]
                   if x["event"] == "resume"]
        step = int(resumed[-1]["step"]) if resumed else 0
        unsaved = 0
        for x in lines[:first]:
            if x["event"] in CHANGES and int(x["step"]) == step:
                unsaved += 1
            if x["event"] == "checkpoint_saved" and int(x["step"]) == step:
                unsaved = 0
        kept = [c for c in self.changes if c[0] <= step]
        if unsaved and kept and kept[-1][0] == step:
            kept = kept[:-unsaved] + self.present(kept[-unsaved:])
        lost = self.changes[len(kept):]
        self.changes = kept
        self.lost += lost
        self.course.append(f"  from step {step}" + (
            f", lost {[' '.join(w) for _, w in lost]}" if lost else ""))
        self.not_older(step, lines[:first])
        return lost

    def present(self, changes):
        """Returns those of the changes that the run has which has begun: a
        save may have ended that no event reports."""
        restored = " ".join(x["options"] for x in self.events("set_restored"))
        digest = json.loads(self.ask("status", "--json").out)["plan_digest"]
        digests = [x["digest"] for x in self.g.lines() if x["event"] in CHANGES
                   and "digest" in x]
        n = sum(c[1][0] != "set" for c in changes)
        of = iter(digests[-n:] if n else [])
        found, plan = [], []
        for at, words in changes:
            if words[0] == "set":
                if all(x in restored for x in words[1:]):
                    found.append((at, words))
                continue
            plan.append((at, words))
            if next(of) == digest:
                found += plan
                plan = []
        return found

    def not_older(self, step, lines):
        """Checks that the job goes on from the newest checkpoint that was
        announced."""
        saved, base = 0, 0
        for x in lines:
            if x["event"] == "checkpoint_saved":
                saved = max(saved, int(x["step"]))
            if x["event"] in ("rolled_back", "resume"):
                saved = min(saved, int(x.get("to", x["step"])))
            base = max(base, saved)
        if step < saved:
            raise Broken(f"older: the job goes on from step {step}, although "
                         f"step {saved} was saved")

    # --- ends ---------------------------------------------------------------

    def ended(self, *codes):
        """Waits until the run has ended, and with it the job."""
        done = self.g.wait(self.run, "run")
        if done.returncode not in codes:
            raise Broken(f"code: the run ended with {done.returncode}, not "
                         f"{codes}:\n{done.out}{done.err}")
        if self.d.stays:
            self.ask("stop", codes=(0, 69, 75))
        if self.d.stays or "attach" in self.run.args:
            self.g.until(lambda: not processes(self.g.folder),
                         "end of the job")
        return done

    def plain(self):
        """Runs the plain form: one rank for each replica, the changes at their
        steps, in its run or, if options can say them, by resumes."""
        g, d = self.g, self.d
        words = ["run", f"m/{d.name}.pt2", *d.cut, *d.base, *d.evals,
                 "--steps", d.steps, "--checkpoint", "plain-ck", "--log-dir",
                 "plain-log", "--job", "plain", "--quiet", *d.plain_layout()]
        resumes = are_options(d, self.changes) and d.some(.6)
        g.forget_place()
        steps = sorted({step for step, _ in self.changes})
        g.gate(0 if steps else 10 ** 9)
        run = g.start(*words, PENSTOCK_GATE=g.path("gate"))
        for step in steps:
            g.gate(step - 1)
            g.note(f"at {step}")
            try:
                g.until(lambda s=step: g.place() == s, f"step {step}", run)
            except Gone:
                done = g.wait(run, "plain run")
                raise Broken(f"plain: ended before step {step}: "
                             f"{done.out}{done.err}") from None
            pause_at(g, "plain", step)
            of_step = [c for at, c in self.changes if at == step]
            if resumes:
                g.do("stop", "--job", "plain")
                g.wait(run, "plain run")
                for change in of_step:
                    words = with_options(words, change)
                g.forget_place()
                run = g.start(*words, "--resume", PENSTOCK_GATE=g.path("gate"))
                continue
            for change in of_step:
                g.do(*change, "--job", "plain")
            if "rollback" in d.base:
                g.do("checkpoint", "--job", "plain")
            g.do("resume", "--job", "plain")
        g.gate(10 ** 9)
        done = g.wait(run, "plain run")
        if done.returncode != 0:
            raise Broken(f"plain: {done.returncode}\n{done.out}{done.err}")


def are_options(d, changes):
    """True if a resume with other options has the bits of these changes."""
    frozen = [w for _, w in changes if w[0] in ("freeze", "unfreeze")]
    return (len(frozen) <= (0 if d.cut else 1) and
            all(w[0] == "set" or w in frozen for _, w in changes) and
            not any(x.startswith("microbatches") for _, w in changes
                    for x in w))


def with_options(words, change):
    """Returns the command with what a change has set."""
    if change[0] != "set":
        return [*words, "--" + change[0], change[1]]
    words = list(words)
    for text in change[1:]:
        key, value = text.split("=", 1)
        if "--" + key in words and key != "group":
            words[words.index("--" + key) + 1] = value
        else:
            words += ["--" + key, value]
    return words


def pause_at(g, name, n):
    """Pauses a job that waits at the beginning of step n, after that step. A
    rollback of that step, after which the pause begins at an earlier one, comes
    once (--on-nan, --on-spike)."""
    log = {"life": "log", "plain": "plain-log"}[name]

    def paused():
        return [int(x["step"]) for x in g.lines(log) if x["event"] == "paused"]

    at = 0
    for _ in range(3):
        before = len(paused())
        g.do("pause", "--detach", "--job", name)
        g.gate(n)
        g.do("pause", "--job", name)
        g.until(lambda k=before: len(paused()) > k, f"paused after {n}")
        at = paused()[-1]
        if at == n:
            return
        rolled = [x for x in g.lines(log) if x["event"] == "rolled_back"]
        if not rolled or int(rolled[-1]["to"]) != at:
            break
        g.forget_place()
        g.gate(n - 1)
        g.do("resume", "--job", name)
        g.until(lambda: g.place() == n, f"step {n}")
    raise Broken(f"pause: after {at}, not {n}")


def parent(pid):
    with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
        return int(file.read().rsplit(")", 1)[1].split()[1])


def name_of(pid):
    with open(f"/proc/{pid}/comm", encoding="utf-8") as file:
        return file.read().strip()


def is_there(path):
    return os.path.lexists(path)
