// An ONNX file in memory, and where in it the bytes of each initializer lie.
#pragma once

#include "mlir/IR/MLIRContext.h"
#include "mlir/Support/LLVM.h"
#include "onnx-ml.pb.h"
#include "llvm/Support/MemoryBuffer.h"

#include <memory>

namespace fsdpc::frontend {

struct ByteRange {
  uint64_t offset = 0, length = 0;
};

struct ModelFile {
  std::string path;
  std::unique_ptr<llvm::MemoryBuffer> buffer;
  onnx::ModelProto proto;
  // For each of the graph's initializers, the bytes of its elements in the
  // file; empty where they do not lie there in one piece.
  std::vector<ByteRange> initializers;

  // Emits an error that names the file where it is not a readable ONNX model of
  // a known version.
  static std::unique_ptr<ModelFile> read(llvm::StringRef path,
                                         mlir::MLIRContext *context);
  // Opset version of a domain, or 0.
  int64_t opset(llvm::StringRef domain) const;
};

} // namespace fsdpc::frontend
