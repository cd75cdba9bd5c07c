// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The values of tensors: inline, typed, or in external files below the model's
// folder. Parameters are not copied; only their place is recorded.
#pragma once

#include "frontends/onnx/ElementTypes.h"
#include "frontends/onnx/ModelFile.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"

#include <set>

namespace fsdpc::frontend {

/// Reads tensors of one model. Not thread-safe: `problem` and the budgets
/// change with each read.
class Weights {
public:
  Weights(const ModelFile &model, Budgets &budgets, mlir::MLIRContext *context)
      : model(model), budgets(budgets), context(context) {}

  /// Checks every external file that the model names: it exists below the
  /// model's folder and is long enough, and no two tensors overlap. Emits an
  /// error.
  mlir::LogicalResult check();

  /// Returns the value of a tensor in its imported type. On failure, `problem`
  /// says why.
  mlir::FailureOr<mlir::DenseElementsAttr>
  value(const onnx::TensorProto &tensor);
  /// The same for a constant that a node reads, within its budget.
  mlir::FailureOr<mlir::DenseElementsAttr>
  constant(const onnx::TensorProto &tensor);

  /// Returns the bytes of a tensor of a storage type (isStorageType) as they
  /// are in the file, as a vector of ui8.
  mlir::FailureOr<mlir::DenseElementsAttr>
  packed(const onnx::TensorProto &tensor);

  /// Returns the place of initializer `index`, or null (not a failure) if it is
  /// stored in a form that only this reader understands. That of a tensor of a
  /// storage type is a place of bytes.
  mlir::FailureOr<fsdp::SourceAttr> source(int index);

  /// Why the last call failed.
  std::string problem;

  /// The files of external data that were opened, which no output may replace.
  const std::set<FileIdentity> &filesRead() const { return opened; }

private:
  /// The bytes of an external tensor, in a file that is open and has them.
  struct Place {
    InputFile file;
    std::string path;
    ByteRange range;
  };
  mlir::LogicalResult fail(const llvm::Twine &why);
  mlir::FailureOr<Place> externalPlace(const onnx::TensorProto &tensor);
  mlir::FailureOr<uint64_t> storedBytes(const onnx::TensorProto &tensor);
  /// Returns the elements as stored. `owned` holds them if they had to be
  /// collected from a list.
  mlir::FailureOr<llvm::ArrayRef<char>> stored(const onnx::TensorProto &tensor,
                                               std::vector<char> &owned);

  const ModelFile &model;
  Budgets &budgets;
  mlir::MLIRContext *context;
  std::set<FileIdentity> opened;
};

} // namespace fsdpc::frontend
