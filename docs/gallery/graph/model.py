# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""A graph isomorphism network (Xu et al., 2019): each node adds up what its neighbours know, and the graph what its nodes know."""
import torch
import torch.nn.functional as F
from torch import nn


class Layer(nn.Module):
    def __init__(self, width: int):
        super().__init__()
        self.own = nn.Parameter(torch.zeros(1))
        self.network = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width))
        self.norm = nn.LayerNorm(width)

    def forward(self, nodes, edges):
        source, target = (edges[:, end, :, None].expand(-1, -1, nodes.shape[-1]) for end in (0, 1))
        heard = torch.zeros_like(nodes).scatter_add(1, target, torch.gather(nodes, 1, source))
        # A norm before the network would hide how many neighbours there are.
        return nodes + self.norm(self.network((1 + self.own) * nodes + heard))


class GraphNetwork(nn.Module):
    def __init__(self, nodes: int, layers: int, width: int, kinds: int):
        super().__init__()
        self.nodes, self.first = nodes, nn.Parameter(torch.randn(width))
        self.layers = nn.ModuleList(Layer(width) for _ in range(layers))
        self.head = nn.Linear(width, kinds)

    def logits(self, edges):
        """Returns [batch, kinds] for edges [batch, 2, count], whose nodes all begin equal."""
        x = self.first.expand(edges.shape[0], self.nodes, -1)
        for layer in self.layers:
            x = layer(x, edges)
        return self.head(x.mean(1))

    def forward(self, edges, kinds):
        return F.cross_entropy(self.logits(edges), kinds)
