"""Optimizers with a ``step()`` of their own, as programs of users have them."""

import math

import torch


class Own(torch.optim.Optimizer):
    """Calls ``update`` for each parameter with a gradient."""

    def __init__(self, params, **defaults):
        super().__init__(params, {"lr": 1e-2, "betas": (0.9, 0.99), "eps": 1e-8,
                                  "weight_decay": 0.0, **defaults})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    self.update(p, p.grad, self.state[p], group)


class Lion(Own):
    def update(self, p, grad, state, group):
        if not state:
            state["exp_avg"] = torch.zeros_like(p)
        (beta1, beta2), average = group["betas"], state["exp_avg"]
        p.mul_(1 - group["lr"] * group["weight_decay"])
        p.add_(torch.sign(average * beta1 + grad * (1 - beta1)), alpha=-group["lr"])
        average.lerp_(grad, 1 - beta2)


class Tiger(Own):
    def update(self, p, grad, state, group):
        if "ema" not in state:
            state["ema"] = torch.zeros(p.shape, dtype=p.dtype)
        state["ema"].mul_(group["betas"][0]).add_(grad, alpha=1 - group["betas"][0])
        p.data.mul_(1 - group["lr"] * group["weight_decay"])
        p.data.add_(state["ema"].sign(), alpha=-group["lr"])


class Adan(Own):
    def __init__(self, params, **defaults):
        super().__init__(params, **{"betas": (0.98, 0.92, 0.99), **defaults})

    def step(self, closure=None):
        for group in self.param_groups:
            group["step"] = group.get("step", 0) + 1
        return super().step(closure)

    def update(self, p, grad, state, group):
        if not state:
            state.update({name: torch.zeros_like(p) for name in ("m", "v", "n")})
            state["before"] = grad.clone()
        beta1, beta2, beta3 = group["betas"]
        difference = grad - state["before"]
        state["m"].mul_(beta1).add_(grad, alpha=1 - beta1)
        state["v"].mul_(beta2).add_(difference, alpha=1 - beta2)
        whole = difference.mul(beta2).add_(grad)
        state["n"].mul_(beta3).addcmul_(whole, whole, value=1 - beta3)
        one, two, three = (1 - beta ** group["step"] for beta in group["betas"])
        root = (state["n"].sqrt() / math.sqrt(three)).add_(group["eps"])
        p.addcdiv_(state["m"], root, value=-group["lr"] / one)
        p.addcdiv_(state["v"], root, value=-group["lr"] * beta2 / two)
        p.div_(1 + group["lr"] * group["weight_decay"])
        state["before"].copy_(grad)


class AdaBelief(Own):
    def update(self, p, grad, state, group):
        if len(state) == 0:
            state["step"] = torch.tensor(0.0)  # as torch's own optimizers count
            state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
            state["exp_avg_var"] = torch.zeros_like(p, memory_format=torch.preserve_format)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        if group["weight_decay"] != 0:
            grad = grad.add(p, alpha=group["weight_decay"])
        state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        residual = grad - state["exp_avg"]
        state["exp_avg_var"].mul_(beta2).addcmul_(residual, residual, value=1 - beta2)
        state["exp_avg_var"].add_(group["eps"])
        step = state["step"].item()
        root = (state["exp_avg_var"].sqrt() / math.sqrt(1 - beta2 ** step)).add_(group["eps"])
        p.addcdiv_(state["exp_avg"], root, value=-group["lr"] / (1 - beta1 ** step))


class SwitchingToSGD(Own):
    """SWATS with the update of the switch given."""

    def __init__(self, params, switch=4, **defaults):
        super().__init__(params, phase="ADAM", switch=switch, **defaults)

    def update(self, p, grad, state, group):
        if not state:
            state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p))
        state["step"] += 1
        beta1, beta2 = group["betas"]
        if group["phase"] == "SGD":
            if "buffer" not in state:
                state["buffer"] = torch.clone(grad).detach()
            else:
                state["buffer"].mul_(beta1).add_(grad)
                grad = state["buffer"]
            p.add_(grad, alpha=-group["lr"] * (1 - beta1))
            return
        state["m"].mul_(beta1).add_(grad, alpha=1 - beta1)
        state["v"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        rate = group["lr"] * math.sqrt(1 - beta2 ** state["step"]) / (1 - beta1 ** state["step"])
        p.addcdiv_(state["m"], state["v"].sqrt().add_(group["eps"]), value=-rate)
        if state["step"] >= group["switch"] and p is group["params"][-1]:
            group["phase"] = "SGD"


class Yogi(Own):
    def update(self, p, grad, state, group):
        if not state:
            state["step"] = 0
            state["m"], state["v"] = torch.zeros_like(p), torch.full_like(p, 1e-6)
        state["step"] += 1
        beta1, beta2 = group["betas"]
        square = grad * grad
        state["m"] = beta1 * state["m"] + (1 - beta1) * grad  # a new tensor each time
        state["v"] = state["v"] - (1 - beta2) * torch.sign(state["v"] - square) * square
        rate = group["lr"] / (1 - beta1 ** state["step"])
        p -= rate * state["m"] / (state["v"].sqrt() + group["eps"])


class NovoGrad(Own):
    def update(self, p, grad, state, group):
        norm = torch.sum(grad ** 2)
        beta1, beta2 = group["betas"]
        if not state:
            state["norm"], state["moment"] = norm, torch.zeros_like(p)
        else:
            state["norm"] = state["norm"] * beta2 + norm * (1 - beta2)
        part = grad / (torch.sqrt(state["norm"]) + group["eps"])
        state["moment"].mul_(beta1).add_(part + group["weight_decay"] * p)
        p.add_(state["moment"], alpha=-group["lr"])


class SGDW(Own):
    def __init__(self, params, momentum=0.9, nesterov=True, **defaults):
        super().__init__(params, momentum=momentum, nesterov=nesterov, **defaults)

    def update(self, p, grad, state, group):
        buffer = state.get("momentum_buffer")
        if buffer is None:
            buffer = state["momentum_buffer"] = torch.clone(grad).detach()
        else:
            buffer.mul_(group["momentum"]).add_(grad, alpha=1 - 0.1)
        grad = grad.add(buffer, alpha=group["momentum"]) if group["nesterov"] else buffer
        p.data = p.data - group["lr"] * group["weight_decay"] * p.data
        p.add_(grad, alpha=-group["lr"])


class QHAdam(Own):
    def __init__(self, params, nus=(0.7, 1.0), **defaults):
        super().__init__(params, nus=nus, **defaults)

    def update(self, p, grad, state, group):
        if not state:
            state["weights"] = [0.0, 0.0]
            state["moments"] = [torch.zeros_like(p), torch.zeros_like(p)]
        moments = []
        for place, (beta, value) in enumerate(zip(group["betas"], (grad, grad * grad))):
            state["weights"][place] = 1 + beta * state["weights"][place]
            part = 1 / state["weights"][place]
            state["moments"][place].mul_(1 - part).add_(value, alpha=part)
            moments.append(state["moments"][place])
        nu1, nu2 = group["nus"]
        first = moments[0].mul(nu1).add_(grad, alpha=1 - nu1)
        second = moments[1].mul(nu2).addcmul_(grad, grad, value=1 - nu2)
        p.addcdiv_(first, second.sqrt_().add_(group["eps"]), value=-group["lr"])


class MADGRAD(Own):
    def __init__(self, params, momentum=0.9, **defaults):
        super().__init__(params, momentum=momentum, **defaults)
        self.state["k"] = torch.tensor([0], dtype=torch.long)
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["squares"] = torch.zeros_like(p).detach()
                self.state[p]["sum"] = torch.zeros_like(p).detach()
                self.state[p]["x0"] = torch.clone(p).detach()

    def step(self, closure=None):
        super().step(closure)
        self.state["k"] += 1

    def update(self, p, grad, state, group):
        rate = group["lr"] * math.sqrt(self.state["k"].item() + 1)
        state["squares"].addcmul_(grad, grad, value=rate)
        state["sum"].add_(grad, alpha=rate)
        root = state["squares"].pow(1 / 3).add_(group["eps"])
        z = state["x0"].addcdiv(state["sum"], root, value=-1)
        p.data.mul_(group["momentum"]).add_(z, alpha=1 - group["momentum"])


class Adai(Own):
    """All parameters together have one mean of the second moments."""

    @torch.no_grad()
    def step(self, closure=None):
        total, count = 0.0, 0
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, beta2 = self.state[p], group["betas"][1]
                if not state:
                    state.update(step=0, m=torch.zeros_like(p), v=torch.zeros_like(p),
                                 product=torch.ones_like(p))
                state["step"] += 1
                state["v"].mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                total += state["v"].sum() / (1 - beta2 ** state["step"])
                count += p.numel()
        mean = total / count
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                state, (beta0, beta2) = self.state[p], group["betas"]
                second = state["v"] / (1 - beta2 ** state["step"])
                beta1 = (1.0 - (second / mean).mul(beta0)).clamp(0.0, 1 - 1e-3)
                state["product"].mul_(beta1)
                state["m"].mul_(beta1).addcmul_(1 - beta1, p.grad)
                p.add_(state["m"] / (1 - state["product"]), alpha=-group["lr"])


class Trusting(Own):
    """LAMB as users write it, with the norm of all gradients."""

    @torch.no_grad()
    def step(self, closure=None):
        grads = [p.grad for group in self.param_groups for p in group["params"]
                 if p.grad is not None]
        norm = torch.sqrt(sum(torch.linalg.vector_norm(grad) ** 2 for grad in grads))
        self.factor = torch.clamp(1.0 / (norm + 1e-6), max=1.0)
        return super().step(closure)

    def update(self, p, grad, state, group):
        grad = grad * self.factor
        if not state:
            state.update(m=torch.zeros_like(p), v=torch.zeros_like(p))
        beta1, beta2 = group["betas"]
        torch._foreach_mul_([state["m"], state["v"]], [beta1, beta2])
        state["m"].add_(grad, alpha=1 - beta1)
        state["v"].addcmul_(grad, grad, value=1 - beta2)
        update = state["m"] / (state["v"].sqrt() + group["eps"]) + group["weight_decay"] * p
        weight, length = p.norm(2).clamp(0, 10), update.norm(2)
        ratio = torch.where((weight > 0) & (length > 0), weight / length, torch.ones_like(weight))
        p.sub_(update * (group["lr"] * ratio))


class Lookahead(torch.optim.Optimizer):
    """Around another optimizer: every k updates the weights go back towards the slow ones."""

    def __init__(self, optimizer, k=5, alpha=0.5):
        super().__init__(optimizer.param_groups, {})
        self.optimizer, self.k, self.alpha, self.counter = optimizer, k, alpha, 0
        self.param_groups, self.state = optimizer.param_groups, optimizer.state
        self.slow = [[p.clone().detach() for p in group["params"]]
                     for group in self.param_groups]

    def step(self, closure=None):
        loss = self.optimizer.step(closure)
        self.counter += 1
        if self.counter % self.k == 0:
            with torch.no_grad():
                for group, slow in zip(self.param_groups, self.slow):
                    for p, q in zip(group["params"], slow):
                        q.add_(p - q, alpha=self.alpha)
                        p.copy_(q)
        return loss


def ranger(params, **defaults):
    """Lookahead around RAdam."""
    return Lookahead(torch.optim.RAdam(params, lr=defaults.get("lr", 1e-2)), k=4)


def lookahead(params, **defaults):
    return Lookahead(torch.optim.SGD(params, lr=defaults.get("lr", 1e-2), momentum=0.9))


ALL = {"Lion": Lion, "Tiger": Tiger, "Adan": Adan, "AdaBelief": AdaBelief,
       "SWATS": SwitchingToSGD, "Yogi": Yogi, "NovoGrad": NovoGrad, "SGDW": SGDW,
       "QHAdam": QHAdam, "MADGRAD": MADGRAD, "Adai": Adai, "Trusting": Trusting,
       "Lookahead": lookahead, "Ranger": ranger}
