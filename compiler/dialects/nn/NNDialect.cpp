// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Registration of the nn dialect. Ops are defined in NNOpsShard*.cpp, which the
// build generates so that they compile side by side.
#include "compiler/dialects/nn/NNDialect.h"

#include "compiler/dialects/nn/NNAttributes.h"
#include "compiler/dialects/nn/NNOps.h"
#include "compiler/dialects/nn/Origins.h"

#include "compiler/dialects/nn/NNDialect.cpp.inc"
#include "compiler/dialects/nn/NNEnums.cpp.inc"
#include "compiler/dialects/nn/NNInterfaces.cpp.inc"
#include "compiler/dialects/nn/NNMemory.cpp.inc"

using namespace fsdpc::nn;

void NNDialect::initialize() {
  registerNNDialectOperations(this);
  registerAttributes();
  addInterfaces<OriginNames>();
}

// Lets folders return an attribute. A value whose type differs from the
// result's is refused, since nn.constant has the type of its attribute.
mlir::Operation *NNDialect::materializeConstant(mlir::OpBuilder &builder,
                                                mlir::Attribute value,
                                                mlir::Type type,
                                                mlir::Location loc) {
  auto elements = llvm::dyn_cast<mlir::ElementsAttr>(value);
  if (!elements || elements.getShapedType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, type, elements);
}
