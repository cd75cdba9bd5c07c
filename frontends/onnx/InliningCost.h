// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Computes how large the graph of a model becomes when its functions are
// inlined, before anything is imported and in time linear in the file.
#pragma once

#include "frontends/onnx/Budgets.h"

#include "onnx-ml.pb.h"
#include "llvm/ADT/DenseMap.h"

#include <map>

namespace fsdpc::frontend {

/// The functions of a model, by domain and name.
using FunctionTable =
    std::map<std::pair<std::string, std::string>, const onnx::FunctionProto *>;

/// Computes the cost of one graph. `functions` must outlive it.
class InliningCost {
public:
  explicit InliningCost(const FunctionTable &functions)
      : functions(functions) {}

  /// All are bounded by their budgets plus one, so that sums do not overflow.
  struct Size {
    int64_t nodes = 0, bytes = 0, depth = 0;
  };

  /// Adds the graph to the budgets. Returns an empty string, or why the graph
  /// is refused.
  std::string spend(const onnx::GraphProto &graph, Budgets &budgets);
  /// Returns the cost of the body of a loop, once.
  Size of(const onnx::GraphProto &body) { return sizeOf(body.node(), 1); }

private:
  using Nodes = google::protobuf::RepeatedPtrField<onnx::NodeProto>;
  Size sizeOf(const Nodes &nodes, int64_t level);
  Size sizeOf(const onnx::NodeProto &node, int64_t level);
  Size sizeOf(const onnx::FunctionProto &function, int64_t level);

  const FunctionTable &functions;
  llvm::DenseMap<const onnx::FunctionProto *, Size> known;
};

} // namespace fsdpc::frontend
