# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Exports modules with open dimensions, and trains their buckets: `pytest frontends/torch/tests` with torch, and the tool in $FSDPC or on PATH."""
import pytest

torch = pytest.importorskip("torch")
onnx = pytest.importorskip("onnx")
from torch import nn
from torch.nn import functional as F

import fsdpc
from fsdpc.shapes import sizes_of_dims


class Speech(nn.Module):
    """A stride of 2, so a sample has half as many labels as frames."""

    def __init__(self):
        super().__init__()
        self.convolution, self.head = nn.Conv1d(4, 8, 3, stride=2, padding=1), nn.Linear(8, 7)

    def forward(self, frames):
        return self.head(torch.relu(self.convolution(frames)).transpose(1, 2))


def loss(output, labels):
    return F.cross_entropy(output.flatten(0, 1), labels.flatten())


def samples(length):
    torch.manual_seed(length)
    return {"frames": torch.randn(4, 4, 2 * length), "labels": torch.randint(7, (4, length))}


def test_a_bucket_for_each_length(tmp_path):
    model, length = Speech(), torch.export.Dim("T", min=2, max=512)
    short, long = samples(5), samples(8)
    path = fsdpc.export(model, {name: value[:2] for name, value in short.items()}, tmp_path / "model.onnx", loss=loss, check=True,
                        dynamic_shapes={"frames": {2: 2 * length}, "labels": [None, length]})
    assert [[dim.dim_param or dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in onnx.load(path).graph.input] == [
        [2, 4, "2*T"], [2, "T"]]
    assert sizes_of_dims(path, long) == ["T=8"]
    fsdpc.compile(path, tmp_path / "train", optimizer="sgd", lr=0.0, dim={"T": [5, 8]})
    run = fsdpc.run(tmp_path / "train", 2, steps=2, data={name: [short[name], long[name]] for name in short})
    expected = [loss(model(part["frames"]), part["labels"]).item() for part in (short, long)]
    assert sorted(run.losses) == pytest.approx(sorted(expected), rel=1e-5)


def test_refusals(tmp_path):
    def export(dynamic_shapes):
        fsdpc.export(Speech(), samples(5), tmp_path / "model.onnx", loss=loss, check=False, dynamic_shapes=dynamic_shapes)

    with pytest.raises(fsdpc.ExportError, match="names the input 'frame', but the example inputs are frames, labels"):
        export({"frame": {2: "T"}})
    with pytest.raises(fsdpc.ExportError, match="has 'T' for the input 'labels'; it must be a dict of axes"):
        export({"labels": "T"})
    with pytest.raises(fsdpc.ExportError, match="'dynamic_shapes' cannot leave T open, since the module needs T = 5"):
        export({"labels": {1: "T"}})
