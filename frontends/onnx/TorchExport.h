// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads what a model says of its training beyond the graph. torch's exporter
// drops everything that only matters to gradients; some of it can be read from
// the metadata that it leaves, the rest is written by the Python package
// (frontends/torch). docs/onnx.md lists what is read.
#pragma once

#include "frontends/onnx/Metadata.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::frontend {

/// Refers to the model that it was made of.
class TorchExport {
public:
  explicit TorchExport(const onnx::ModelProto &model);

  /// True if the Python package has exported the model: what is not in its
  /// metadata was not in the module either.
  bool isComplete() const { return complete; }
  /// Returns what the file cannot say of the module, for a warning; "" if the
  /// model is not torch's, or is complete.
  std::string unknowns() const;
  /// Returns true if torch has traced the node in a block under
  /// torch.no_grad(), or perhaps under an autocast that casts nothing, and the
  /// file does not say which.
  bool mayLackGradient(const onnx::NodeProto &node) const;
  /// Returns true if the module normalises by its running statistics at this
  /// node although it was exported in training mode.
  bool fixesStatistics(const onnx::NodeProto &node) const;
  /// Returns the name of a buffer that forward updates and that the node reads
  /// for the sake of an output, or "". The graph does not have the update.
  llvm::StringRef staleBuffer(const onnx::NodeProto &node) const;

private:
  void findStaleBuffers(const onnx::GraphProto &graph);

  bool fromTorch = false, complete = false;
  bool hasTraces = false;   ///< stack traces, by which blocks are known
  bool hasTraining = false; ///< a batch norm that uses the batch's statistics
  llvm::StringSet<> blocks; ///< those that may lack gradients
  llvm::DenseMap<const onnx::NodeProto *, std::string> staleBuffers;
};

/// Returns true if the package says that the parameter has requires_grad=False.
bool isDeclaredFrozen(const onnx::ValueInfoProto &value);

/// Returns the call that a node was made of.
TracedCall tracedCall(const onnx::NodeProto &node);

} // namespace fsdpc::frontend
