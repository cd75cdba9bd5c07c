#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# Creates a virtual environment with the PyTorch that bench.sh compares with
# (about 1 GB).
#
# usage: setup-peer.sh FOLDER        then: tools/bench.sh --python FOLDER/bin/python
set -euo pipefail
folder=$(realpath -m "${1:?usage: setup-peer.sh FOLDER}")
python3 -m venv "$folder"
pip=("$folder/bin/pip" -q --disable-pip-version-check install)
# The wheel loads CUDA's libraries even where there is no GPU.
if [[ -d /usr/local/cuda/lib64 ]]; then
  "${pip[@]}" --no-deps torch==2.14.1 nvidia-cufile nvidia-cusparselt-cu13==0.8.1 \
    nvidia-nvshmem-cu13==3.4.5 nvidia-nccl-cu13==2.30.7
else
  "${pip[@]}" torch==2.14.1
fi
"${pip[@]}" numpy filelock sympy networkx jinja2 fsspec typing_extensions setuptools \
  onnx==1.22.0 onnxscript==0.7.2 onnx-ir ml_dtypes safetensors
"$folder/bin/python" -c 'import torch; print("torch", torch.__version__, "with gloo" if torch.distributed.is_gloo_available() else "WITHOUT gloo")'
