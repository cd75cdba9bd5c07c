# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Trains a graph network to tell how a random graph was made, by fsdpc and by torch.

usage: train.py [--small] [--build DIR] [--out DIR]
"""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lib"))
import numpy as np
from entry import Entry, main

NODES, EACH = 32, 2                           # nodes of a graph, and edges per node


def uniform(random):
    """Any two nodes (Erdős and Rényi)."""
    pairs = np.array([(a, b) for a in range(NODES) for b in range(a)])
    return pairs[random.choice(len(pairs), NODES * EACH, replace=False)]


def small_world(random):
    """A ring of near neighbours, of whose edges a third leads elsewhere (Watts and Strogatz)."""
    edges = np.array([(a, (a + step) % NODES) for a in range(NODES) for step in range(1, EACH + 1)])
    moved = random.random(len(edges)) < 1 / 3
    edges[moved, 1] = random.integers(NODES, size=moved.sum())
    return edges


def attached(random):
    """Each node joins those that have many edges (Barabási and Albert)."""
    ends, edges = [0, 1], []
    for node in range(NODES):
        for _ in range(EACH):
            edges.append((node, ends[random.integers(len(ends))]))
            ends += edges[-1]
    return np.array(edges)


KINDS = (uniform, small_world, attached)


def graphs(count, seed):
    random = np.random.default_rng(seed)
    kinds, edges = random.integers(len(KINDS), size=count), []
    for kind in kinds:
        found = random.permutation(NODES)[KINDS[kind](random)].T
        edges.append(np.concatenate([found, found[::-1]], 1))  # both directions
    return {"edges": np.stack(edges), "kinds": kinds}


def make_module(small):
    from model import GraphNetwork
    return GraphNetwork(NODES, 1, 8, len(KINDS)) if small else GraphNetwork(NODES, 3, 64, len(KINDS))


def make_samples(count, small):
    return graphs(count, seed=0)


def result(model, folder):
    import torch
    unseen = graphs(300, seed=1)
    with torch.no_grad():
        right = (model.logits(torch.from_numpy(unseen["edges"])).argmax(1).numpy() == unseen["kinds"]).sum()
    return f"{right} of 300 unseen graphs are right"


ENTRY = Entry("graph network, 3 layers", "random graphs of three kinds", make_module, make_samples, steps=200, batch=32,
              flags=dict(optimizer="adamw", lr=2e-3, weight_decay=0.01, clip_grad_norm=1.0), schedule="cosine", result=result)

if __name__ == "__main__":
    sys.exit(main(ENTRY))
