# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The package of this folder, installed or not."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
