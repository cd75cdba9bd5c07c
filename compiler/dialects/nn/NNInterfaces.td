// What an nn op can do for the passes: its adjoint, its meaning in primitives,
// its scalar code.
#ifndef FSDPC_NN_INTERFACES
#define FSDPC_NN_INTERFACES

include "mlir/IR/OpBase.td"

def AdjointOpInterface : OpInterface<"AdjointOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    An op that can be differentiated in reverse mode. Every adjoint is checked
    against central differences in f64 (tests/numeric).
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the cotangents of the operands from those of the results.
      `resultGrads` has one entry a result, null where no gradient reaches it
      (at least one is not null). `needed` says for each operand whether its
      gradient is wanted; the method sets the wanted entries of `operandGrads`
      (sized and null on entry; an entry left null means zero). An op that may
      not be differentiated with respect to a wanted operand emits an error.
    }], "::llvm::LogicalResult", "buildAdjoint",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::ValueRange":$resultGrads,
         "::llvm::ArrayRef<bool>":$needed,
         "::llvm::SmallVectorImpl<::mlir::Value> &":$operandGrads)>
  ];
}

def DecomposeOpInterface : OpInterface<"DecomposeOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    A composite that can be written with primitives (elementwise, shape and
    reduce ops), computing in f32 from cast operands to cast results.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds the primitives at the builder's insertion point and returns one
      value for each result.
    }], "::llvm::SmallVector<::mlir::Value>", "decompose",
    (ins "::mlir::OpBuilder &":$builder)>
  ];
}

def ElementwiseOpInterface : OpInterface<"ElementwiseOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    A primitive that computes each element of its only result from the elements
    of its operands at the same index.
  }];
  let methods = [
    InterfaceMethod<[{
      Builds arith and math ops on scalars, or on vectors of one length.
      Floating operands and results are f32 or f64 (never bf16: the emitter
      widens before and rounds after).
    }], "::mlir::Value", "buildScalar",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc,
         "::mlir::ValueRange":$operands)>
  ];
}

#endif
