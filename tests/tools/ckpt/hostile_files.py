# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that `fsdpc ckpt convert` runs nothing of the files of torch that it reads, with a real torch.

usage: hostile_files.py --build DIR --python PYTHON

Every file is first read by torch's own readers, where its code runs. dcp_metadata_test.py tests the same gadgets without torch.
"""
import argparse
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parents[1] / "programs")]
import pickle_gadgets
from harness import Failure, main, run

# Writes folders of torch.distributed.checkpoint and files of torch.save with a value whose pickle calls os.system.
MAKE = """
import os, pickle, shutil, sys, torch, torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.metadata import MetadataIndex
folder, marker = sys.argv[1:]
class Hostile:
    def __reduce__(self):
        return os.system, (f"touch '{marker}'",)
weights = {"model": {"w": torch.arange(6.).view(2, 3)}, "step": 4}
dcp.save(weights, checkpoint_id=f"{folder}/good", no_dist=True)
dcp.save(weights | {"step": Hostile()}, checkpoint_id=f"{folder}/number", no_dist=True)
# The tensor's piece is the hostile value.
shutil.copytree(f"{folder}/number", f"{folder}/tensor")
with open(f"{folder}/tensor/.metadata", "r+b") as file:
    metadata = pickle.load(file)
    places = metadata.storage_data
    w, step = MetadataIndex("model.w", [0, 0]), MetadataIndex("step")
    places[w], places[step] = places[step], places[w]
    file.seek(0)
    pickle.dump(metadata, file)
torch.save(weights, f"{folder}/good.pt")
torch.save(weights | {"more": Hostile()}, f"{folder}/file.pt")
torch.save(weights | {"more": Hostile()}, f"{folder}/old.pt", _use_new_zipfile_serialization=False)
"""

# How each of these runs in torch's readers.
READ = {
    "number": "import torch.distributed.checkpoint as dcp; dcp.load({'step': 0}, checkpoint_id=sys.argv[1], no_dist=True)",
    "tensor": "import io, torch; from torch.distributed.checkpoint import FileSystemReader as R; m = R(sys.argv[1]).read_metadata()\n"
              "i = next(v for k, v in m.storage_data.items() if k.fqn == 'model.w')\n"
              "torch.load(io.BytesIO(open(sys.argv[1] + '/' + i.relative_path, 'rb').read()[i.offset:i.offset + i.length]), weights_only=False)",
    "metadata": "from torch.distributed.checkpoint import FileSystemReader as R; R(sys.argv[1]).read_metadata()",
    "file.pt": "import torch; torch.load(sys.argv[1], weights_only=False)",
    "old.pt": "import torch; torch.load(sys.argv[1], weights_only=False)",
}

# Reads each gadget as the pickle of a file of torch.save; prints the names of those that torch_files refuses.
READ_AS_TORCH_FILE = """
import os, sys, zipfile
sys.path.insert(0, sys.argv[1])
import plain_pickle, torch_files
for file in sys.argv[3:]:
    with zipfile.ZipFile(sys.argv[2]) as good, zipfile.ZipFile(file + ".pt", "w") as made:
        for name in good.namelist():
            made.writestr(name, open(file, "rb").read() if name.endswith("/data.pkl") else good.read(name))
    try:
        torch_files.load(file + ".pt")
    except plain_pickle.Refused:
        print(os.path.basename(file))
"""


def expect(condition: bool, what: str) -> None:
    if not condition:
        raise Failure(what)


def test(bench, options) -> None:
    marker, python = bench.path("ran"), options.python
    run([python, "-c", MAKE, bench.folder, marker])
    gadgets = pickle_gadgets.gadgets(marker)

    def convert(name: str, code: int, *words) -> str:
        form = "state-dict" if name.endswith(".pt") else "dcp"
        done = run([bench.build / "bin" / "fsdpc", "ckpt", "convert", bench.path(name), "--from", form, "-o", bench.path(f"from-{name}"),
                    "--python", python, *words], expected=code)
        return done.stdout + done.stderr

    def check(name: str, refusal: str) -> None:
        run([python, "-c", "import sys, warnings; warnings.simplefilter('ignore')\ntry:\n    " + READ[name.split("-")[0]].replace("\n", "\n    ")
             + "\nexcept Exception: pass", bench.path(name)])
        expect(marker.exists(), f"{name}: nothing runs in torch")
        marker.unlink()
        for words in ((), ("--to", "safetensors")):
            told = convert(name, 1, *words)
            expect(refusal in told and "nothing of it was run" in told, f"{name}: no '{refusal}' in\n{told}")
            expect(not marker.exists() and not bench.path(f"from-{name}").exists(), f"{name}: it was run or converted")

    for name in ("good", "good.pt"):
        convert(name, 0)
    run([python, "-c", "import sys\n" + READ["old.pt"], bench.path("old.pt")])
    expect(marker.exists(), "old.pt: nothing runs in torch")
    marker.unlink()
    convert("old.pt", 1)
    expect(not marker.exists(), "old.pt: it was run")
    for name in ("number", "tensor", "file.pt"):
        check(name, "posix.system")
    for gadget in gadgets:
        if gadget.needs_torch or gadget.name in ("getattr of an allowed class", "INST"):
            folder = bench.path(f"metadata-{gadget.name.replace(' ', '_')}")
            folder.mkdir()
            (folder / ".metadata").write_bytes(gadget.data)
            check(folder.name, gadget.refusal)
    alive = pickle_gadgets.run_by_pickle(gadgets, marker, "import torch.distributed.checkpoint", python)
    expect(alive == {gadget.name for gadget in gadgets}, f"not alive with torch: {({gadget.name for gadget in gadgets}) - alive}")
    files = [bench.path(f"gadget-{i}") for i in range(len(gadgets))]
    for file, gadget in zip(files, gadgets):
        file.write_bytes(gadget.data)
    refused = run([python, "-c", READ_AS_TORCH_FILE, bench.build / "lib" / "ckpt", bench.path("good.pt"), *files]).stdout.split()
    expect(refused == [file.name for file in files] and not marker.exists(),
           f"read as a file of torch: {[gadget.name for file, gadget in zip(files, gadgets) if file.name not in refused]}")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--python", metavar="PYTHON", required=True, help="a Python that has torch")


if __name__ == "__main__":
    sys.exit(main(__doc__, test, add_arguments))
