# SPDX-License-Identifier: Apache-2.0
"""PyTorch's optimizers by penstock's names (MAKERS), Muon with f32 for bf16, and
three that PyTorch has not. Lion: Chen et al., "Symbolic Discovery of Optimization Algorithms", 2023,
algorithm 2. LAMB: You et al., "Large Batch Optimization for Deep Learning",
2019, algorithm 2 with bias correction and phi(x) = x. ScheduleFree: AdamW of
Defazio et al., "The Road Less Scheduled", 2024."""
import torch
from torch.optim import _muon


class Lion(torch.optim.Optimizer):
    """smallest: of an update that is not zero, relative to its two terms, as
    rounding may change the sign of what is near zero."""

    smallest = 1.0

    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["m"] = torch.zeros_like(p)
                m = state["m"]
                old, new = beta1 * m, (1 - beta1) * p.grad
                update = old + new
                size = old.abs() + new.abs()
                if (size > 0).any():
                    share = (update.abs() / size)[size > 0].min().item()
                    self.smallest = min(self.smallest, share)
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * update.sign())
                m.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6,
                 weight_decay=0.01):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state.update(t=0, m=torch.zeros_like(p),
                                 v=torch.zeros_like(p))
                m, v = state["m"], state["v"]
                state["t"] += 1
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                u = m / (1 - beta1**state["t"])
                u /= (v / (1 - beta2**state["t"])).sqrt() + group["eps"]
                u += group["weight_decay"] * p
                norm, size = p.norm().item(), u.norm().item()
                ratio = norm / size if norm > 0 and size > 0 else 1
                p.sub_(u, alpha=group["lr"] * ratio)


class ScheduleFree(torch.optim.Optimizer):
    """As the authors' AdamWScheduleFree in training mode: the parameter is y,
    and x is not kept. Without its foreach, its r and its weight_lr_power."""

    def __init__(self, params, lr=2.5e-3, betas=(0.9, 0.999), eps=1e-8,
                 weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps,
                                  "weight_decay": weight_decay, "k": 0,
                                  "top": -1.0, "sum": 0.0})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr = group["lr"]
            group["k"] += 1
            group["top"] = max(lr, group["top"])
            group["sum"] += group["top"]**2
            c = group["top"]**2 / group["sum"] if group["sum"] > 0 else 0
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state.update(z=p.clone(), v=torch.zeros_like(p))
                z, v = state["z"], state["v"]
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                by = p.grad / ((v / (1 - beta2**group["k"])).sqrt() +
                               group["eps"])
                by += group["weight_decay"] * p
                p.lerp_(z, c)
                p.add_(by, alpha=lr * (beta1 * (1 - c) - 1))
                z.sub_(by, alpha=lr)
                state["x"] = p.lerp(z, 1 - 1 / beta1)

    @torch.no_grad()
    def average(self):
        """Returns the averages x by parameter."""
        return {p: state["x"] for p, state in self.state.items()}


def newton_schulz(grad, ns_coefficients, ns_steps, eps):
    """torch.optim._muon's iteration without the conversion to bf16."""
    a, b, c = ns_coefficients
    is_tall = grad.size(0) > grad.size(1)
    x = grad.T if is_tall else grad
    x = x / x.norm().clamp(min=eps)
    for _ in range(ns_steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x,
                        beta=a)
    return x.T if is_tall else x


class Muon(torch.optim.Muon):
    """PyTorch's Muon, whose update is made orthogonal in the dtype of the
    parameters."""

    def step(self, closure=None):
        own = _muon._zeropower_via_newtonschulz
        _muon._zeropower_via_newtonschulz = newton_schulz
        try:
            return super().step(closure)
        finally:
            _muon._zeropower_via_newtonschulz = own


MAKERS = {"sgd": torch.optim.SGD, "adamw": torch.optim.AdamW,
          "adam": torch.optim.Adam, "adamax": torch.optim.Adamax,
          "lion": Lion, "rmsprop": torch.optim.RMSprop,
          "adagrad": torch.optim.Adagrad, "adadelta": torch.optim.Adadelta,
          "lamb": Lamb, "muon": Muon,
          "adafactor": torch.optim.Adafactor, "schedulefree": ScheduleFree}


class Both:
    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def make(name, params, lr):
    """Makes the optimizer that penstock has without a rule: with muon, AdamW
    with its own defaults has the last matrix and what is no matrix. params are
    listed in the order of their use, and there is no embedding among them."""
    params = list(params)
    if name != "muon":
        return MAKERS[name](params, lr=lr)
    inside = [p for p in params if p.ndim == 2][:-1]
    others = [p for p in params if all(p is not q for q in inside)]
    return Both(Muon(inside, lr=lr), torch.optim.AdamW(others))
