// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The float types that a model's file gives its tensors, for
// --param-dtype=graph. All floats are imported as f32; what differs is noted as
// `nn.type`, by which mixed-precision decides.
#pragma once

#include "compiler/options/Options.h"

#include "mlir/IR/Operation.h"
#include "onnx-ml.pb.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::frontend {

/// Refers to the model, which must outlive it.
class GraphTypes {
public:
  /// Reads the types of all initializers and casts, functions included.
  explicit GraphTypes(const onnx::ModelProto &model);

  /// Replaces --param-dtype=graph by the 16-bit type of the file: that of its
  /// weights, or else the one that it casts to. Without any, the model is f32.
  /// Emits an error if there are two.
  mlir::LogicalResult resolve(llvm::StringRef path, fsdp::ParamType &type,
                              mlir::MLIRContext *context) const;

  /// Returns true if a tensor of the graph is in f32: it is stored as f32, and
  /// not all nodes that read it are casts to 16 bits.
  bool isF32(llvm::StringRef tensor) const;

private:
  void
  addNodes(const google::protobuf::RepeatedPtrField<onnx::NodeProto> &nodes);

  llvm::StringMap<int64_t> stored; ///< ONNX types of initializers and inputs
  llvm::StringSet<> readInF32;     ///< tensors that a node reads as they are
  bool storesBf16 = false, storesF16 = false;
  bool castsToBf16 = false, castsToF16 = false;
};

/// Notes the type of a node's first float result, an ONNX type or 0 for f32, on
/// the ops behind `before` (null: all of the block) that compute floats and
/// have no type yet.
void noteType(mlir::Block &block, mlir::Operation *before, int64_t onnxType);

} // namespace fsdpc::frontend
