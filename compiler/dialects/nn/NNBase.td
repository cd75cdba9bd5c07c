// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The nn dialect's own definitions: tensor ops of neural networks on static shapes,
// and the tensor types that their operands and results have.
#ifndef FSDPC_NN_BASE
#define FSDPC_NN_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "compiler/dialects/nn/NNInterfaces.td"
include "compiler/dialects/nn/NNTypes.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::fsdpc::nn";
  let summary = "Tensor ops of neural networks, with adjoints";
  let description = [{
    Values are ranked tensors of static shape. A float tensor has elements of f32,
    bf16, f16 or f64, an integer tensor of i64, i32, i1, i8 or ui8. Broadcasts are
    explicit ops.

    Ops are of two kinds. Primitives (elementwise ops, shape ops, reductions) are what
    outlined kernels are made of. Composites (attention, layer_norm, cross_entropy, …)
    keep the identity of a fused kernel until `outline-kernels`, where they become a
    library call or decompose into primitives.

    An op on bf16 or f16 computes in f32 and rounds each result once. Statistics (log-sum-exp,
    mean, reciprocal deviation) and losses are f32, or f64 where the input is. Hence
    fusing ops never changes a bit.

    Every op may carry the modules of the model that it comes from, as the exporter
    wrote them (`nn.modules`). Its location is the name of the ONNX node.

    The dialect refuses discardable attributes of its own prefix that are not in this
    table, or stand on another op, or have another form:

    | attribute | on | meaning |
    |---|---|---|
    | `nn.modules` | ops | the modules that the op comes from |
    | `nn.type` | ops, parameters | the float type of the result in the model's file, with `--param-dtype=graph` |
    | `nn.strided` | ops that move elements | the op has no memory: its result is read where the operand lies, or its operands are written where the result lies |
    | `nn.library` | library calls | the library of a GPU that computes the call |
    | `nn.kernel` | functions | the function is a kernel |
    | `nn.optimizer` | kernels | the kernel is the scalar program of an optimizer |
    | `nn.rows` | kernels | the kernel computes rows of an attention |
    | `nn.compute` | kernels | the type of a copy of the parameters that an optimizer writes |
    | `nn.gradient` | kernels | the type in which an optimizer reads the gradient, where that is not f32 |
    | `nn.plan` | kernels | how the kernel computes |
    | `nn.kept` | ops | the value is kept in memory from one loop over a row to the next |
    | `nn.grid` | kernels | how a GPU runs the kernel |
    | `nn.alignments` | kernels | bytes to which the address of each buffer is aligned |
  }];
  let hasConstantMaterializer = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let useDefaultAttributePrinterParser = 1;
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral kModulesAttr = "nn.modules";
    // Written by the import for --param-dtype=graph, until mixed-precision.
    static constexpr llvm::StringLiteral kTypeAttr = "nn.type";
    // The attributes that an op takes over from the op that it replaces or
    // differentiates.
    static llvm::ArrayRef<llvm::StringRef> originAttributes();
    static constexpr llvm::StringLiteral kKernelAttr = "nn.kernel";
    // On kernels that the runtime calls by itself, without a plan: the scalar
    // program of an optimizer, and the rows of attention.
    static constexpr llvm::StringLiteral kOptimizerAttr = "nn.optimizer";
    static constexpr llvm::StringLiteral kRowsAttr = "nn.rows";
    // On kernels: how they compute (plan-kernels), and on ops in them: the value
    // is kept in memory from one loop over a row to the next.
    static constexpr llvm::StringLiteral kPlanAttr = "nn.plan";
    static constexpr llvm::StringLiteral kKeptAttr = "nn.kept";
    // On library calls of GPU programs: which library (choose-libraries).
    static constexpr llvm::StringLiteral kLibraryAttr = "nn.library";

  private:
    void registerAttributes(); // NNAttributes.cpp
  }];
}

// Each op says how its results depend on its operands, and there is no default.
class NN_Op<string mnemonic, NN_Linearity linearity, list<Trait> traits>
    : Op<NN_Dialect, mnemonic, !listconcat(linearity.traits, traits)>;

#endif
