// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Collects what an import cannot take: nodes, and tensors and inputs of a form
// that is not supported. One run then reports all that is wrong with a model,
// as one error.
#pragma once

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringSet.h"

namespace fsdpc::frontend {

class Refusals {
public:
  Refusals(llvm::StringRef path, mlir::MLIRContext *context)
      : path(path), loc(mlir::UnknownLoc::get(context)) {}

  /// `kind` is "tensor" or "input", and `why` the end of a sentence about it.
  /// Nodes that read the tensor are skipped silently.
  void addTensor(llvm::StringRef kind, llvm::StringRef name,
                 const llvm::Twine &why);
  /// `text` says which node it is, and why it is refused.
  void addNode(mlir::Location loc, std::string text) {
    nodes.push_back({loc, std::move(text)});
  }

  size_t size() const { return tensors.size() + nodes.size(); }
  bool empty() const { return size() == 0; }
  bool hasTensor(llvm::StringRef name) const { return names.contains(name); }
  const llvm::StringSet<> &tensorNames() const { return names; }

  /// Fails after one error if anything was refused: a sentence about the only
  /// one, else with a note for each.
  mlir::LogicalResult report() const;
  /// Adds the notes to an error that ends the import earlier.
  void attachTo(mlir::InFlightDiagnostic &error) const;

private:
  struct Node {
    mlir::Location loc;
    std::string text;
  };
  struct Tensor {
    std::string name, why; ///< such as "input 'x'"
  };

  std::string path;
  mlir::Location loc; ///< of the file
  std::vector<Tensor> tensors;
  std::vector<Node> nodes;
  llvm::StringSet<> names; ///< of tensors
};

} // namespace fsdpc::frontend
