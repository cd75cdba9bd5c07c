// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The training that a model carries itself, in `training_info`: how its tensors
// are initialised, which tensor is the loss, which tensors are trained, and
// what one step makes of them. The algorithm's nodes up to the loss join the
// model's graph, as ONNX says. Those behind the Gradient nodes are the update,
// which ModelOptimizer.h turns into the compile's optimizer. The training
// models of onnxruntime-training are read to the same end (RuntimeTraining.h).
#pragma once

#include "frontends/onnx/ModelFile.h"

#include "llvm/ADT/StringSet.h"

#include <map>
#include <string>
#include <vector>

namespace fsdpc::frontend {

/// Holds how a model is trained; empty if it does not say so.
struct Training {
  /// A tensor of which a Gradient node takes the derivative, with the name of
  /// that derivative, and which a binding updates.
  struct Trained {
    std::string parameter, gradient;
  };

  std::string loss; ///< empty: the algorithm has no Gradient node
  std::vector<Trained> trained;
  llvm::StringSet<> parameters; ///< those of `trained`
  /// Maps a tensor that changes to the tensor that holds its new value.
  std::map<std::string, std::string> updates, initial;
  /// The nodes behind the Gradient nodes, with the algorithm's tensors.
  onnx::GraphProto update;
  onnx::GraphProto initialization;
  /// Initializers of the algorithm that the loss reads.
  llvm::StringSet<> constants;

  /// The model is one of onnxruntime-training's, whose optimizer, if there is
  /// one, is in this file.
  bool isOfRuntime = false;
  std::string optimizerFile;

  bool updatesParameters() const { return !trained.empty(); }
  /// Returns true if the tensor is one that a step updates by its gradient.
  bool trains(llvm::StringRef parameter) const {
    return parameters.contains(parameter);
  }

  /// Takes the training out of the model and adds the nodes of its loss to the
  /// graph. `withUpdate` is false if the user has given another optimizer.
  /// Fails after an error that names the node or the binding.
  static mlir::FailureOr<Training> take(ModelFile &model, bool withUpdate,
                                        mlir::MLIRContext *context);
};

/// The domain of Gradient and of the optimizers.
constexpr llvm::StringLiteral kTrainingDomain = "ai.onnx.preview.training";

} // namespace fsdpc::frontend
