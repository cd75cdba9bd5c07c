# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Optimizers that torch.optim does not have, from the formulas of their papers, and torch's Adafactor, in f64 and on whole tensors.

tests/programs/updates/optimizers.py compares programs with them. Each class has the hyperparameters' defaults and `step`, which returns the
new parameters: a dict of arrays, as the gradients are. `clip_grad_norm` and `clip_grad_value` are done before a step, as torch's
functions of that name do.
"""
import numpy as np


def norm(x: np.ndarray) -> float:
    return float(np.sqrt(np.sum(x * x)))


def ratio(x: float, y: float, *norms: float) -> float:
    """Returns x / y, or 1 where one of the norms is 0."""
    return x / y if all(norms) else 1.0


class LAMB:
    """You et al., Large Batch Optimization for Deep Learning: Training BERT in 76 minutes, 2020."""
    defaults = {"lr": 1e-3, "betas": (0.9, 0.999), "eps": 1e-6, "weight_decay": 0.01}

    def step(self, o: dict, number: int, p: np.ndarray, g: np.ndarray, state: dict) -> np.ndarray:
        beta1, beta2 = o["betas"]
        m = state["m"] = beta1 * state.get("m", 0) + (1 - beta1) * g
        v = state["v"] = beta2 * state.get("v", 0) + (1 - beta2) * g * g
        u = m / (1 - beta1 ** number) / (np.sqrt(v / (1 - beta2 ** number)) + o["eps"]) + o["weight_decay"] * p
        return p - o["lr"] * ratio(norm(p), norm(u), norm(p), norm(u)) * u


class LARS:
    """You et al., Large Batch Training of Convolutional Networks, 2017."""
    defaults = {"lr": 1e-2, "momentum": 0.9, "trust": 1e-3, "eps": 1e-8, "weight_decay": 1e-4}

    def step(self, o: dict, number: int, p: np.ndarray, g: np.ndarray, state: dict) -> np.ndarray:
        decay = o["weight_decay"]
        r = ratio(o["trust"] * norm(p), norm(g) + decay * norm(p) + o["eps"], norm(p), norm(g))
        m = state["m"] = o["momentum"] * state.get("m", 0) + r * (g + decay * p)
        return p - o["lr"] * m


class Adafactor:
    """torch.optim.Adafactor. Its `eps` is the pair (eps1, eps) here, and None for eps1 is the epsilon of f32."""
    defaults = {"lr": 1e-2, "beta2_decay": -0.8, "eps": 1e-3, "eps1": 2.0 ** -23, "d": 1.0, "weight_decay": 0.0}

    def step(self, o: dict, number: int, p: np.ndarray, g: np.ndarray, state: dict) -> np.ndarray:
        def average(name: str, value: np.ndarray) -> np.ndarray:
            old = state.get(name, np.zeros_like(value))
            state[name] = old + number ** o["beta2_decay"] * (value - old)
            return state[name]

        def mean_square(x: np.ndarray) -> float:
            return norm(x) / np.sqrt(x.size)
        if g.ndim > 1:
            rows, columns = (average(name, (g * g).mean(axis=axis, keepdims=True)) for name, axis in (("row", -1), ("column", -2)))
            variance = rows * columns / np.maximum(rows.mean(axis=-2, keepdims=True), o["eps1"])
        else:
            variance = average("variance", g * g)
        u = g / np.sqrt(np.maximum(variance, o["eps1"] ** 2))
        rate = max(o["eps"], mean_square(p)) * min(o["lr"], number ** -0.5)
        return p * (1 - o["lr"] * o["weight_decay"]) - rate / max(1, mean_square(u) / o["d"]) * u


class Muon:
    """torch.optim.Muon, with Newton and Schulz's steps in f64."""
    defaults = {"lr": 1e-3, "weight_decay": 0.1, "momentum": 0.95, "nesterov": True, "ns_coefficients": (3.4445, -4.775, 2.0315),
                "eps": 1e-7, "ns_steps": 5, "adjust_lr_fn": "original"}

    def step(self, o: dict, number: int, p: np.ndarray, g: np.ndarray, state: dict) -> np.ndarray:
        m = state["m"] = state.get("m", 0) * o["momentum"] + g * (1 - o["momentum"])
        x = g * (1 - o["momentum"]) + m * o["momentum"] if o["nesterov"] else m
        rows, columns = x.shape
        x = x.T if rows > columns else x
        x = x / max(norm(x), o["eps"])
        a, b, c = o["ns_coefficients"]
        for _ in range(o["ns_steps"]):
            gram = x @ x.T
            x = a * x + (b * gram + c * gram @ gram) @ x
        x = x.T if rows > columns else x
        adjusted = np.sqrt(max(1, rows / columns)) if o["adjust_lr_fn"] == "original" else 0.2 * np.sqrt(max(rows, columns))
        return p * (1 - o["lr"] * o["weight_decay"]) - o["lr"] * adjusted * x


# As in tests/models/optimizers.py: the first variant of each optimizer has all defaults, and a further one changes every number.
VARIANTS = {
    "lamb": [(LAMB, {}), {"lr": 0.05, "clip_grad_norm": 1.5, "weight_decay": 0.0},
             {"lr": 0.05, "betas": (0.6, 0.7), "eps": 1e-2, "weight_decay": 0.3, "clip_grad_value": 0.25, "maximize": True}],
    "lars": [(LARS, {}), {"lr": 0.5, "trust": 0.1, "momentum": 0.0, "clip_grad_norm": 1.5},
             {"lr": 0.5, "momentum": 0.7, "trust": 0.2, "eps": 0.5, "weight_decay": 0.3, "clip_grad_value": 0.25, "maximize": True}],
    # The rate is that of --lr in some steps, and in others the root's. An eps1 of this size limits some elements.
    "adafactor": [(Adafactor, {}), {"lr": 2.0, "clip_grad_norm": 1.5, "weight_decay": 0.1},
                  {"lr": 0.4, "beta2_decay": -0.5, "eps": 0.07, "eps1": 0.1, "d": 1.1, "weight_decay": 0.3, "clip_grad_value": 0.25,
                   "maximize": True}],
}


def clipped(gradients: dict[str, np.ndarray], o: dict) -> dict[str, np.ndarray]:
    """Clips by the norm of all gradients, then their elements, then turns them round."""
    if "clip_grad_norm" in o:
        total = np.sqrt(sum(np.sum(g * g) for g in gradients.values()))
        gradients = {name: g * min(1, o["clip_grad_norm"] / (total + 1e-6)) for name, g in gradients.items()}
    limit = o.get("clip_grad_value", np.inf)
    sign = -1 if o.get("maximize") else 1
    return {name: sign * np.clip(g, -limit, limit) for name, g in gradients.items()}


def train(kind, arguments: dict, parameters: dict[str, np.ndarray], gradients: list[dict[str, np.ndarray]]) -> list[dict[str, np.ndarray]]:
    """Returns the parameters after each step."""
    optimizer, o = kind(), kind.defaults | arguments
    parameters = {name: value.astype(np.float64) for name, value in parameters.items()}
    states, found = {name: {} for name in parameters}, []
    for number, ofStep in enumerate(gradients, 1):
        ofStep = clipped({name: value.astype(np.float64) for name, value in ofStep.items()}, o)
        parameters = {name: optimizer.step(o, number, value, ofStep[name], states[name]) for name, value in parameters.items()}
        found.append(parameters)
    return found
