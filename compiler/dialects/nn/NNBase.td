// The nn dialect: tensor ops of neural networks on static shapes.
#ifndef FSDPC_NN_BASE
#define FSDPC_NN_BASE

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "compiler/dialects/nn/NNInterfaces.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::fsdpc::nn";
  let summary = "Tensor ops of neural networks, with adjoints";
  let description = [{
    Values are ranked tensors of static shape. Broadcasts are explicit. Ops are
    of two kinds: primitives (elementwise, shape, reduce), which outlined kernels
    are made of, and composites (attention, layer_norm, cross_entropy …), which
    keep the identity of a fused kernel until `outline-kernels` and then either
    become a library call or decompose into primitives.

    An op on bf16 computes in f32 and rounds each result once; statistics
    (log-sum-exp, mean, reciprocal deviation) and losses are always f32. Hence
    fusing ops never changes a bit.

    Every op may carry the module that it comes from: `nn.scope` and `nn.class`,
    arrays of strings of equal length, outermost first, as the exporter wrote
    them; its location is the ONNX node's name.
  }];
  let hasConstantMaterializer = 1;
  let extraClassDeclaration = [{
    static constexpr llvm::StringLiteral kScopeAttr = "nn.scope";
    static constexpr llvm::StringLiteral kClassAttr = "nn.class";
    static constexpr llvm::StringLiteral kKernelAttr = "nn.kernel";
    // On library calls of GPU programs: which library (choose-libraries).
    static constexpr llvm::StringLiteral kLibraryAttr = "nn.library";
  }];
}

class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NN_Dialect, mnemonic, traits>;

def NN_Float : AnyTypeOf<[F32, BF16, F64]>;
def NN_Integer : AnyTypeOf<[I64, I32, I1, I8, UI8]>;
def NN_Element : AnyTypeOf<[F32, BF16, F64, I64, I32, I1, I8, UI8]>;

def NN_Tensor : StaticShapeTensorOf<[NN_Element]>;
def NN_FloatTensor : StaticShapeTensorOf<[NN_Float]>;
def NN_IntTensor : StaticShapeTensorOf<[NN_Integer]>;
def NN_BoolTensor : StaticShapeTensorOf<[I1]>;
// Statistics and losses: f32, or f64 in tests of the adjoints.
def NN_StatTensor : StaticShapeTensorOf<[F32, F64]>;

#endif
