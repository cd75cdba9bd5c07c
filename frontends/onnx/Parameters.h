// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Decides which tensors of a model are parameters or buffers, by which names,
// and where their values come from: the model's files, the initialization of
// its own training, a rule, or --init of the program.
#pragma once

#include "compiler/options/NamePatterns.h"
#include "frontends/onnx/Import.h"
#include "frontends/onnx/Metadata.h"
#include "frontends/onnx/Refusals.h"
#include "frontends/onnx/Training.h"
#include "frontends/onnx/Weights.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <limits>

namespace fsdpc::frontend {

/// A constant is built into the graph; a stored one (StoredConstants.h) becomes
/// an fsdp.parameter that keeps its type; a parameter becomes one that is
/// frozen or trainable; a buffer (running statistics) becomes an fsdp.buffer,
/// which the program updates.
enum class TensorRole { constant, stored, parameter, buffer };

/// An initializer or input of the graph that is not data of the user.
struct NamedTensor {
  std::string name; ///< in the graph
  /// The symbol's name: the name in the model's state_dict.
  std::string fqn;
  TensorRole role;
  mlir::RankedTensorType type; ///< as nodes see it
  /// The symbol's type. Elements of less than a byte, and narrow floats, are
  /// stored as the bytes of the file, and unpacked where they are loaded.
  mlir::RankedTensorType symbolType;
  int initializer = -1; ///< -1: a graph input, without a value
  /// Other names of a tied weight in the state_dict.
  std::vector<std::string> aliases;
  /// The module has requires_grad=False for it.
  bool isDeclaredFrozen = false;
};

/// Returns what is wrong with a tensor's type or shape, as the end of an error,
/// or "". A dimension of kDynamicSize is symbolic.
constexpr int64_t kDynamicSize = std::numeric_limits<int64_t>::min();
std::string tensorFault(int64_t onnxType, llvm::ArrayRef<int64_t> shape,
                        mlir::MLIRContext *context);

/// The values and rules that the initialization graph of a model gives to
/// tensors.
struct InitialValues {
  /// Random numbers of a shape, as --init-rule has them.
  struct Random {
    std::string rule;
    llvm::SmallVector<int64_t> shape;
  };
  llvm::StringMap<mlir::DenseElementsAttr> values;
  llvm::StringMap<Random> rules;
};

/// The named tensors of a model. `build` comes first; `find` and `counterOf`
/// are valid after it, and `emit` comes once the used symbols are known.
class ParameterTable {
public:
  ParameterTable(const ModelFile &model, const Training &training,
                 Weights &weights, const fsdp::CompileOptions &options,
                 Refusals &refusals, mlir::MLIRContext *context)
      : model(model), training(training), weights(weights), options(options),
        refusals(refusals), context(context) {}

  /// Classifies initializers and inputs, and finds aliases. Adds each tensor of
  /// an unsupported type or shape to `refusals`. Fails after an error if a
  /// tensor is defined twice.
  mlir::LogicalResult build();

  /// Returns a tensor by its name in the graph, or null for the user's inputs.
  const NamedTensor *find(llvm::StringRef name) const;
  /// Returns the buffer with this symbol, or null.
  const NamedTensor *findBuffer(llvm::StringRef fqn) const;

  /// Returns true if `name` is a parameter of the graph that is to be trained,
  /// by --trainable, --frozen and what the module says.
  bool mayTrain(llvm::StringRef name);

  /// Replaces the values of tensors, except where an --init-rule matches. Emits
  /// an error if one has another type than its tensor.
  mlir::LogicalResult setInitial(const InitialValues &values);

  /// Defines the symbols of the tensors in `used`, and warns of the others.
  /// Emits an error if a value cannot be read.
  mlir::LogicalResult emit(mlir::OpBuilder &builder,
                           const llvm::StringSet<> &used,
                           ImportSummary &summary);
  /// Returns the name of the num_batches_tracked that belongs to a running
  /// mean, if the model has one.
  std::optional<std::string> counterOf(llvm::StringRef runningMean) const;

private:
  /// Reads what metadata says: returns the kinds of values by name
  /// ("PARAMETER", "BUFFER" and so on; empty without any metadata), and fills
  /// `signature`, `buffers` and `declaredFrozen`.
  llvm::StringMap<std::string> readKinds();
  mlir::LogicalResult add(llvm::StringRef name, TensorRole role,
                          int64_t onnxType, llvm::ArrayRef<int64_t> shape,
                          int initializer);
  void findAliases();
  /// Defines one symbol, with its source, its value or its initial rule.
  mlir::LogicalResult emitTensor(mlir::OpBuilder &builder,
                                 const NamedTensor &tensor, bool isTrainable);
  mlir::LogicalResult compilePatterns();
  /// Asks the patterns, which remember that they matched.
  bool isTrainable(const NamedTensor &tensor);
  /// Returns the first --init-rule that matches one of the tensor's names.
  std::optional<std::string> rule(const NamedTensor &tensor) const;

  const ModelFile &model;
  const Training &training;
  Weights &weights;
  const fsdp::CompileOptions &options;
  Refusals &refusals;
  mlir::MLIRContext *context;
  InitialValues initial;
  fsdp::NamePatterns frozen, trainable;
  std::vector<SignatureEntry> signature;
  llvm::StringSet<> buffers;        ///< those that the signature names
  llvm::StringSet<> declaredFrozen; ///< requires_grad=False in the module
  std::vector<NamedTensor> tensors; ///< in the order of the graph
  llvm::StringMap<size_t> byName;
};

} // namespace fsdpc::frontend
