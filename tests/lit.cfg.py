# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#
# lit configuration: every .mlir and .textproto below tests/ is a test.
import os
import lit.formats

config.name = "fsdpc"
config.test_format = lit.formats.ShTest(execute_external=False)
config.suffixes = [".mlir", ".textproto", ".test"]
config.excludes = ["models", "Inputs"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.build_root, "tests")
config.environment["PATH"] = os.pathsep.join(
    [os.path.join(config.build_root, "bin"), config.llvm_bin, os.environ["PATH"]])
config.environment["HOME"] = os.environ.get("HOME", "/")
config.substitutions.append(("%models", os.path.join(config.source_root, "tests/models")))
# Programs for real GPUs can be linked only with the CUDA runtime.
config.available_features.add("cuda-runtime" if config.cuda_runtime else "no-cuda-runtime")
# An ONNX model from its text.
config.substitutions.append(("%encode", "protoc --encode=onnx.ModelProto "
    "-I %source/frontends/onnx/proto %source/frontends/onnx/proto/onnx-ml.proto"))
config.substitutions.append(("%source", config.source_root))
