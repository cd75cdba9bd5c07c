// Registration of the nn dialect; ops are defined in NNOpsShard*.cpp.
#include "compiler/dialects/nn/NNDialect.h"

#include "compiler/dialects/nn/NNDialect.cpp.inc"
#include "compiler/dialects/nn/NNEnums.cpp.inc"
#include "compiler/dialects/nn/NNInterfaces.cpp.inc"

using namespace fsdpc::nn;

void NNDialect::initialize() {
  registerNNDialectOperations(this);
  registerAttributes();
}

mlir::Operation *NNDialect::materializeConstant(mlir::OpBuilder &builder,
                                                mlir::Attribute value,
                                                mlir::Type type,
                                                mlir::Location loc) {
  auto elements = llvm::dyn_cast<mlir::ElementsAttr>(value);
  if (!elements || elements.getShapedType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, type, elements);
}
