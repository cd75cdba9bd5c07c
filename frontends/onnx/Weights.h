// Values of tensors: inline, typed, or in external files beneath the model's
// folder. Parameters are not copied; only their place and hash are taken.
#pragma once

#include "frontends/onnx/ModelFile.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"

namespace fsdpc::frontend {

// nn's element type for an ONNX one (all floats are f32), or null.
mlir::Type importedType(int64_t onnxType, mlir::MLIRContext *context);

class Weights {
public:
  Weights(const ModelFile &model, mlir::MLIRContext *context)
      : model(model), context(context) {}

  // Checks every external file that the model names: present, beneath its
  // folder, long enough, no two tensors overlapping. Emits an error.
  mlir::LogicalResult check();

  // A tensor's value in its imported type; `problem` says why there is none.
  mlir::FailureOr<mlir::DenseElementsAttr>
  constant(const onnx::TensorProto &tensor);

  // Where initializer `index` lies; null (not an error) where it is stored in a
  // form that only this reader understands.
  mlir::FailureOr<fsdp::SourceAttr> source(int index);

  std::string problem;

private:
  struct Place {
    std::string file;
    ByteRange range;
  };
  mlir::LogicalResult fail(const llvm::Twine &why);
  mlir::FailureOr<Place> externalPlace(const onnx::TensorProto &tensor);
  mlir::FailureOr<llvm::ArrayRef<char>> read(const Place &place);
  mlir::FailureOr<uint64_t> storedBytes(const onnx::TensorProto &tensor);
  // The elements as stored; `owned` holds them where they had to be gathered.
  mlir::FailureOr<llvm::ArrayRef<char>> stored(const onnx::TensorProto &tensor,
                                               std::vector<char> &owned);

  const ModelFile &model;
  mlir::MLIRContext *context;
  std::map<std::string, std::unique_ptr<llvm::MemoryBuffer>> files;
};

} // namespace fsdpc::frontend
