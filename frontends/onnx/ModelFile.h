// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// An ONNX file in memory, and the position of each initializer's bytes in it.
#pragma once

#include "frontends/onnx/Budgets.h"

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"
#include "runtime/support/input_file.h"

#include "onnx-ml.pb.h"

#include <memory>

namespace fsdpc::frontend {

struct ByteRange {
  uint64_t offset = 0, length = 0;
};

/// Large: `bytes` and `proto` both hold the inline weights until the import
/// ends.
struct ModelFile {
  std::string path;
  /// The whole file. ByteRanges of `initializers` are positions in it.
  std::string bytes;
  /// Device and inode, so that no output overwrites the model under another
  /// name.
  FileIdentity identity;
  onnx::ModelProto proto;
  /// For each initializer of the graph, the bytes of its elements in the file;
  /// empty if they are not contiguous there.
  std::vector<ByteRange> initializers;

  /// Reads a file. Returns null after an error that names the file if it is not
  /// a readable ONNX model of a known version, or if it exceeds a budget.
  static std::unique_ptr<ModelFile> read(llvm::StringRef path, Budgets &budgets,
                                         mlir::MLIRContext *context);
  /// Returns the opset version of a domain, or 0 if the model does not import
  /// it.
  int64_t opset(llvm::StringRef domain) const;
};

} // namespace fsdpc::frontend
