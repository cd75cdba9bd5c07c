#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks that no script of the project, and no example of its pages, reads a file in a way that can run what the file says.

usage: plain_readers.py

Pickles, and formats that hold them, are read with torch.load(…, weights_only=True) or by tools/ckpt/plain_pickle.py alone. The readers of
torch.distributed.checkpoint unpickle, whatever they are asked for.
"""
import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ME = Path(__file__).resolve()
DCP = "torch.distributed.checkpoint"
REFUSED = {
    **dict.fromkeys(("pickle.load", "pickle.loads", "pickle.Unpickler", "_pickle.load", "_pickle.loads", "marshal.load", "marshal.loads",
                     "shelve.open", "torch.jit.load", "torch.hub.load", "torch.package.PackageImporter"), "runs what it reads"),
    **dict.fromkeys((f"{DCP}.load", f"{DCP}.load_state_dict", f"{DCP}.FileSystemReader", f"{DCP}.filesystem.FileSystemReader",
                     f"{DCP}.format_utils.dcp_to_torch_save"), "unpickles; dcp_metadata.py reads such folders"),
    **dict.fromkeys(("yaml.load", "yaml.unsafe_load", "yaml.full_load"), "makes objects of any class; use yaml.safe_load"),
}
MODULES = {"dill", "cloudpickle", "joblib", "jsonpickle", "pandas.read_pickle"}


def imports(tree: ast.AST) -> dict[str, str]:
    """Returns what the imported names of a file stand for."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                first = name.name.split(".")[0]
                found[name.asname or first] = name.name if name.asname else first
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.update({name.asname or name.name: f"{node.module}.{name.name}" for name in node.names})
    return found


def dotted(node: ast.expr, known: dict[str, str]) -> str:
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value, known)}.{node.attr}"
    return known.get(node.id, node.id) if isinstance(node, ast.Name) else ""


def is_literal(call: ast.Call, keyword: str, value: bool) -> bool:
    return any(given.arg == keyword and isinstance(given.value, ast.Constant) and given.value.value is value for given in call.keywords)


def faults(source: str) -> list[tuple[int, str]]:
    """Returns line and reason of each reader that can run what it reads. A reader counts even if it is only named."""
    tree = ast.parse(source)
    known = imports(tree)
    found = [(node.lineno, f"'{name}' can run what it reads") for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))
             for name in ([part.name for part in node.names] if isinstance(node, ast.Import) else [node.module or ""])
             if name.split(".")[0] in MODULES]
    checked = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            name = dotted(node.func, known)
            if name in ("eval", "exec"):
                found.append((node.lineno, f"'{name}' runs what it gets"))
            if name == "torch.load" and not is_literal(node, "weights_only", True):
                found.append((node.lineno, "torch.load needs weights_only=True"))
            allows = any(given.arg == "allow_pickle" for given in node.keywords) and not is_literal(node, "allow_pickle", False)
            if name == "numpy.load" and allows:
                found.append((node.lineno, "numpy.load with allow_pickle unpickles"))
        if isinstance(node, (ast.Name, ast.Attribute)) and (why := REFUSED.get(name := dotted(node, known))) and node.lineno not in checked:
            checked.add(node.lineno)
            found.append((node.lineno, f"'{name}' {why}"))
    return sorted(found)


def faults_of_page(text: str) -> list[tuple[int, str]]:
    return [(number, "torch.load needs weights_only=True") for number, line in enumerate(text.splitlines(), 1)
            if re.search(r"torch\.load\((?!.*weights_only=True)", line)]


def scripts() -> list[Path]:
    return [path for path in sorted(ROOT.rglob("*")) if path.is_file() and path != ME
            and not re.match(r"build|\.", str(path.relative_to(ROOT)))
            and (path.suffix == ".py" or not path.suffix and path.read_bytes()[:30].startswith(b"#!/usr/bin/env python3"))]


# Each must be found, or the check proves nothing.
EXAMPLES = ("import pickle\npickle.load(f)", "from pickle import loads as read\nread(b)", "import pickle as p\nclass U(p.Unpickler): pass",
            "import torch\ntorch.load(f)", "import torch\ntorch.load(f, weights_only=False)", "from torch import load\nload(f, weights_only=flag)",
            "import numpy as np\nnp.load(f, allow_pickle=True)", "import joblib", "from dill import load", "import yaml\nyaml.load(f, yaml.Loader)",
            "eval(text)", "exec(text)", "import marshal\nmarshal.loads(b)", "def f():\n    import torch.distributed.checkpoint as dcp\n    dcp.load(s)",
            "from torch.distributed.checkpoint import FileSystemReader\nFileSystemReader(p).read_metadata()",
            "import torch.distributed.checkpoint.format_utils as u\nread = u.dcp_to_torch_save", "import torch\ntorch.jit.load(f)")
PLAIN = ("import torch\ntorch.load(f, weights_only=True)", "import numpy as np\nnp.load(f)", "import numpy as np\nnp.load(f, allow_pickle=False)",
         "import pickle\ntry: pass\nexcept pickle.UnpicklingError: pass", "model.eval()", "import torch.distributed.checkpoint as dcp\ndcp.save(s)",
         "import json\njson.load(f)", "def run(eval=None):\n    return dict(eval)")


def main() -> int:
    missed = [example for example in EXAMPLES if not faults(example)] + [example for example in PLAIN if faults(example)]
    for example in missed:
        print(f"error: the check is wrong about {example!r}")
    found = [(path, fault) for path in scripts() for fault in faults(path.read_text())]
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    found += [(path, fault) for path in pages for fault in faults_of_page(path.read_text())]
    for path, (line, why) in found:
        print(f"error: {path.relative_to(ROOT)}:{line}: {why}")
    return 1 if missed or found else 0


if __name__ == "__main__":
    sys.exit(main())
