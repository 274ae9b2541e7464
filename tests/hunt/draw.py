# SPDX-License-Identifier: Apache-2.0
"""Draws the options of a life: those that numbers depend on, which its plain
form has, too, and those that must change no bit (docs/guarantees.md)."""

SCHEDULES = ["1f1b", "gpipe", "looped-bfs", "zb-h1", "auto"]
LR = {"sgd": "0.02", "adadelta": "0.5", "rmsprop": "0.003", "lion": "0.002",
      "muon": "0.02", "none": None}
# optimizer: its own options, of which some are drawn
OPTIMIZERS = {
    "adamw": ["--beta1 0.8", "--beta2 0.95", "--eps 1e-5",
              "--weight-decay 0.1"],
    "sgd": ["--momentum 0.9", "--momentum 0.8 --nesterov",
            "--momentum 0.9 --dampening 0.1", "--weight-decay 0.01"],
    "adam": ["--beta1 0.7"], "adamax": ["--weight-decay 0.01"],
    "lion": ["--beta1 0.85"],
    "rmsprop": ["--centered", "--momentum 0.5", "--alpha 0.9"],
    "adagrad": ["--lr-decay 0.1"], "adadelta": ["--rho 0.8"],
    "lamb": ["--weight-decay 0.05"],
    "muon": ["--ns-steps 3", "--match-rms-adamw"],
    "adafactor": ["--beta2-decay -0.7", "--clip-threshold 1.5"],
    "schedulefree": ["--beta1 0.8", "--weight-decay 0.1"],
}
GROUPS = ["biases:weight-decay=0", "ndim=2:lr=0.004", "norms:lr=0.02",
          "biases:clip-norm=0.5", "ndim<2:optimizer=sgd,lr=0.01,momentum=0.9",
          "ndim=2:optimizer=adamw,lr=0.003"]
RATES = ["--lr-schedule cosine", "--lr-schedule linear --lr-min 0.0001",
         "--lr-schedule inverse-sqrt", "--lr-schedule one-cycle",
         "--lr-schedule wsd --lr-decay-steps 4",
         "--lr-schedule cosine-restarts --lr-cycles 2",
         "--lr-schedule polynomial --lr-power 2",
         "--lr-points 0=0.3,5=1,12=0.2"]
# points at which a job may be killed, by what makes it pass them
SAVING = ["save", "shard", "sharded", "rename", "manifest", "saved"]
STEPPING = ["step", "F", "compute", "report", "update", "updated"]


class Drawn:
    """The options of a life."""

    def __init__(self, rng, models, mpi):
        self.rng, self.mpi = rng, mpi
        self.name = rng.choice(sorted(models))
        self.about = models[self.name]
        self.steps = rng.randint(8, 24)
        self.replicas = 2 if self.some(.35) else 1
        self.whole = self.some(.5)  # no sharding or zero1
        # zero1 adds up norms in another order (docs/memory.md)
        self.norms = self.some(.5)
        self.spikes = False
        self.seed = str(rng.randrange(100))
        self.base = ["--threads", "1", "--seed", self.seed]
        self.batch()
        self.data()
        self.optimizer()
        self.model()
        self.faults()
        self.evaluation()
        self.fallback = self.some(.2)
        self.stays = self.some(.12)
        self.plans = 0  # plans that were split

    def some(self, p):
        return self.rng.random() < p

    def add(self, p, *words):
        if self.some(p):
            self.base += words

    def batch(self):
        rng = self.rng
        self.micro = [rng.choice([2, 4])]
        self.ramp = self.some(.2)
        if self.ramp:
            self.micro = [2, 4, 6]
            a, b = sorted(rng.sample(range(1, self.steps), 2))
            self.first = rng.choice([2, 4])
            self.base += ["-m", f"{self.first}:0,4:{a},6:{b},2:{b + 2}"]
        else:
            self.first = self.micro[0]
            self.base += ["-m", str(self.micro[0])]
        kind = rng.random()
        if kind < .3:
            self.base += ["--microbatch-size", str(rng.choice([2, 3]))]
        elif kind < .5 and not self.ramp and self.replicas == 1:
            self.base += ["--batch", str(rng.randint(2 * self.micro[0], 13))]
        self.add(.25, "--microbatch-weights", rng.choice(
            ["equal", "tokens"] if self.about["tokens"] else ["equal"]))
        self.add(.1, "--dtype", "bf16")
        self.add(.1, "--no-chunked-loss")

    def data(self):
        self.end = end = "bin" if self.about["tokens"] else "safetensors"
        self.nan = not self.about["tokens"] and self.some(.15)
        self.base += ["--data", "m/n.safetensors" if self.nan else
                      self.rng.choice([
                          f"m/a.{end}", f"m/a.{end}", f"m/a.{end},m/b.{end}",
                          f"m/a.{end}:0.7,m/b.{end}:0.3", f"m/[ab].{end}"])]
        if self.about["packed"]:
            self.base += ["--pack", "0"]
        self.add(.4, "--shuffle")
        if self.about["tokens"]:
            self.add(.2, "--token-dtype", "uint8")

    def optimizer(self):
        rng = self.rng
        name = rng.choice(sorted(OPTIMIZERS))
        self.optimizer_name = name
        self.base += ["--optimizer", name, "--lr", LR.get(name, "0.01")]
        if name not in ("lamb", "muon", "adafactor", "none"):
            self.add(.2, "--state-dtype", rng.choice(["bf16", "int8"]))
        for words in rng.sample(OPTIMIZERS[name], 1):
            self.add(.5, *words.split())
        groups = [g for g in GROUPS if (self.norms or "clip" not in g) and
                  (self.name != "plain" or "norms" not in g)]
        for rule in rng.sample(groups, rng.choice([0, 0, 0, 1, 2])):
            self.base += ["--group", rule]
        self.add(.15, "--no-decay", "biases")
        if self.norms:
            self.add(.5, "--clip-norm", rng.choice(["0.3", "1"]))
        self.add(.15, "--clip-value", "0.05")
        self.add(.3, "--ema", rng.choice(["0.9", "0.99"]))
        if self.some(.4):
            self.base += rng.choice(RATES).split()
            self.add(.4, "--warmup", str(rng.randint(1, 4)))

    def model(self):
        """Options of the cut that change the model."""
        rng = self.rng
        self.cut = []
        if self.some(.2):
            self.cut += ["--freeze", rng.choice(self.about["patterns"])]
        if self.about["lora"] and self.some(.2):
            self.cut += ["--lora", f"{self.about['lora']}:rank=2" + (
                ",dropout=0.1" if self.some(.5) else "")]

    def faults(self):
        rng = self.rng
        if self.nan:
            self.base += ["--on-nan", rng.choice(["skip", "rollback"])]
        else:
            self.add(.2, "--on-nan", rng.choice(["skip", "rollback", "stop"]))
        if self.norms and self.some(.25):
            self.spikes = True
            self.base += ["--on-spike", rng.choice(["skip", "rollback"]),
                          "--spike-window", "5", "--spike-threshold",
                          rng.choice(["1.5", "3"])]

    def evaluation(self):
        rng = self.rng
        self.evals = []
        self.eval_model = False
        self.best = None  # min or max, with --keep-best
        self.patience = False
        self.evaluates = self.some(.65)
        if not self.evaluates:
            return
        sets = [f"m/e.{self.end}"]
        names = [""]
        if self.some(.3):
            names = ["one/", "two/"]
            sets = [f"one=m/e.{self.end}", f"two=m/f.{self.end}"]
        words = [x for s in sets for x in ("--eval-data", s)]
        words += ["--eval-every", str(rng.randint(1, 5))]
        largest = False
        if self.about["tokens"] and self.some(.3):
            largest = True
            words += ["--eval-metric", rng.choice(names) + "accuracy:max"]
        elif len(names) > 1 and self.some(.5):
            words += ["--eval-metric", "two/loss"]
        if self.some(.3):
            words += ["--eval-batches", "1"]
        self.eval_model = self.some(.25) and not self.cut
        if self.eval_model:
            words += ["--eval-model", f"m/{self.name}.eval.pt2"]
        if self.some(.75):
            words += ["--keep-best"]
            self.best = "max" if largest else "min"
        if self.some(.2):
            self.patience = True
            words += ["--patience", str(rng.randint(2, 4))]
        self.evals = words

    def layout(self):
        """Draws a cut (`at`), and returns options of ranks and memory that
        change no bit."""
        rng = self.rng
        cuts = rng.sample(self.about["cuts"], rng.randint(
            0, min(3, len(self.about["cuts"]))))
        self.at = [x for name in cuts for x in ("--at", name)] or [
            "--stages", "1"]
        words = []
        ranks = rng.randint(1, len(cuts) + 1)
        self.ranks = ranks * self.replicas
        self.transport = "mpi" if self.ranks > 1 and self.some(self.mpi) \
            else "self"
        words += ["-n", f"{self.replicas}x{ranks}", "--transport",
                  self.transport, "--schedule", rng.choice(
                      SCHEDULES + (["interleaved-1f1b"]
                                   if ranks < len(cuts) + 1 else []))]
        if self.some(.25):
            words += ["--recompute", rng.choice(
                ["full", "none", "full,twice"] + (
                    ["block", "attention", "block,twice"]
                    if self.about["tokens"] else []))]
        if self.some(.15):
            words += ["--stash", "ram", "--stash-keep", "1"]
        if len(cuts) + 1 > ranks > 1 and self.some(.3):
            # one stage more for one of the ranks
            most = rng.randrange(ranks)
            at, pairs = 0, []
            for rank in range(ranks):
                for _ in range(1 + (len(cuts) + 1 - ranks) * (rank == most)):
                    pairs.append(f"{at}={rank}")
                    at += 1
            words[words.index("--schedule") + 1] = rng.choice(["1f1b", "gpipe"])
            words += ["--place", ",".join(pairs)]
        words += self.shard()
        for p, *more in ((.15, "--verify"), (.1, "--compare-replicas", "3"),
                         (.2, "--data-at", "first"), (.1, "--log-every", "1")):
            if self.some(p):
                words += more
        return words

    def shard(self):
        rng = self.rng
        if self.replicas == 1:
            return []
        if self.whole:
            modes = ["none"] if self.norms else ["none", "zero1", "zero1"]
            words = ["--shard", rng.choice(modes)]
        else:
            names = rng.choice(self.about["cuts"])
            words = ["--shard", rng.choice(
                ["zero2", "zero3", "zero3", f"zero3,{names}=zero2",
                 f"zero2,{names}=zero3"])]
            if self.some(.3):
                words += ["--unshard-window", str(rng.randint(0, 3))]
        if self.some(.3):
            words += ["--shard-layout", "rows"]
        return words

    def plain_layout(self):
        words = ["--stages", "1", "-n", f"{self.replicas}x1", "--transport",
                 "self"]
        if self.replicas > 1 and not self.whole:
            words += ["--shard", "zero2"]
        if "rollback" in self.base:
            words += ["--checkpoint-every", "3"]
        return words

    def saving(self):
        rng = self.rng
        least = 1 if "rollback" in self.base else 0
        words = ["--checkpoint-every", str(rng.randint(least, 5)), "--keep",
                 str(rng.choice([0, 1, 1, 2, 2, 3])), "--checkpoint-retry",
                 "1"]
        if self.some(.2):
            words.append("--checkpoint-sync")
        if self.fallback:
            words += ["--checkpoint-fallback", "ck2"]
        return words

    def fault(self, flag):
        """Returns the environment of a start that can be killed at a point by
        the file `flag`, and whether a save passes that point; None: saves are
        slow instead."""
        if self.some(.2):
            return {"PENSTOCK_FAULT": "shard:1+:60"}, None
        saves = self.some(.6)
        point = self.rng.choice(SAVING if saves else STEPPING)
        env = {"PENSTOCK_FAULT": f"{point}:1+:kill",
               "PENSTOCK_FAULT_ONCE": flag}
        if self.transport == "mpi":
            rank = self.rng.randrange(self.ranks)
            # The ranks of the first replica alone write files.
            env["PENSTOCK_FAULT_RANK"] = "0" if saves else str(rank)
        return env, saves
