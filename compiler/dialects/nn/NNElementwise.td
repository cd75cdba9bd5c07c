// Elementwise primitives.
#ifndef FSDPC_NN_ELEMENTWISE
#define FSDPC_NN_ELEMENTWISE

include "compiler/dialects/nn/NNBase.td"

defvar ElementwiseScalar = DeclareOpInterfaceMethods<ElementwiseOpInterface>;
defvar HasAdjoint = DeclareOpInterfaceMethods<AdjointOpInterface>;
defvar Decomposes = DeclareOpInterfaceMethods<DecomposeOpInterface>;

class NN_Unary<string mnemonic, string what, Type type = NN_FloatTensor>
    : NN_Op<mnemonic, [Pure, SameOperandsAndResultType, ElementwiseScalar, HasAdjoint]> {
  let summary = what;
  let arguments = (ins type:$input);
  let results = (outs type:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

class NN_Binary<string mnemonic, string what, list<Trait> traits = []>
    : NN_Op<mnemonic, !listconcat([Pure, SameOperandsAndResultType, ElementwiseScalar,
                                   HasAdjoint], traits)> {
  let summary = what;
  let arguments = (ins NN_Tensor:$lhs, NN_Tensor:$rhs);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def NN_NegOp : NN_Unary<"neg", "-x", NN_Tensor>;
def NN_AbsOp : NN_Unary<"abs", "absolute value", NN_Tensor>;
def NN_ExpOp : NN_Unary<"exp", "e to the x">;
def NN_LogOp : NN_Unary<"log", "natural logarithm">;
def NN_SqrtOp : NN_Unary<"sqrt", "square root">;
def NN_RsqrtOp : NN_Unary<"rsqrt", "1 / sqrt(x)">;
def NN_TanhOp : NN_Unary<"tanh", "hyperbolic tangent">;
def NN_ErfOp : NN_Unary<"erf", "error function">;
def NN_SigmoidOp : NN_Unary<"sigmoid", "1 / (1 + e^-x)">;
def NN_ReluOp : NN_Unary<"relu", "max(x, 0); its adjoint at 0 is 0">;
def NN_SinOp : NN_Unary<"sin", "sine">;
def NN_CosOp : NN_Unary<"cos", "cosine">;
def NN_FloorOp : NN_Unary<"floor", "largest integer not above x; its adjoint is 0">;

def NN_NotOp : NN_Op<"not", [Pure, SameOperandsAndResultType, ElementwiseScalar]> {
  let summary = "logical not";
  let arguments = (ins NN_BoolTensor:$input);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_AddOp : NN_Binary<"add", "x + y", [Commutative]> { let hasFolder = 1; }
def NN_SubOp : NN_Binary<"sub", "x - y"> { let hasFolder = 1; }
def NN_MulOp : NN_Binary<"mul", "x · y", [Commutative]> { let hasFolder = 1; }
def NN_DivOp : NN_Binary<"div", "x / y; integers round towards zero"> { let hasFolder = 1; }
def NN_ModOp : NN_Binary<"mod", "x mod y with the sign of y, as in Python">;
def NN_PowOp : NN_Binary<"pow", "x to the y; differentiable in x">;
def NN_MaximumOp : NN_Binary<"maximum", "max(x, y)", [Commutative]>;
def NN_MinimumOp : NN_Binary<"minimum", "min(x, y)", [Commutative]>;

class NN_Logical<string mnemonic, string what>
    : NN_Op<mnemonic, [Pure, SameOperandsAndResultType, ElementwiseScalar, Commutative]> {
  let summary = what;
  let arguments = (ins NN_BoolTensor:$lhs, NN_BoolTensor:$rhs);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}
def NN_AndOp : NN_Logical<"and", "logical and">;
def NN_OrOp : NN_Logical<"or", "logical or">;
def NN_XorOp : NN_Logical<"xor", "logical exclusive or">;

def NN_Predicate : I32EnumAttr<"Predicate", "comparison", [
    I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>,
    I32EnumAttrCase<"le", 3>, I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_CmpOp : NN_Op<"cmp", [Pure, ElementwiseScalar, SameOperandsAndResultShape,
                             SameTypeOperands]> {
  let summary = "comparison; unordered operands compare as not equal";
  let arguments = (ins NN_Predicate:$predicate, NN_Tensor:$lhs, NN_Tensor:$rhs);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$predicate $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
}

def NN_SelectOp : NN_Op<"select", [Pure, ElementwiseScalar, HasAdjoint,
    AllTypesMatch<["onTrue", "onFalse", "result"]>]> {
  let summary = "condition ? onTrue : onFalse";
  let arguments = (ins NN_BoolTensor:$condition, NN_Tensor:$onTrue, NN_Tensor:$onFalse);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$condition `,` $onTrue `,` $onFalse attr-dict `:` type($condition) `,` type($result)";
  let hasVerifier = 1; // condition has the result's shape
}

def NN_CastOp : NN_Op<"cast", [Pure, ElementwiseScalar, HasAdjoint, SameOperandsAndResultShape]> {
  let summary = "conversion of element type";
  let description = [{
    Floats to integers truncate towards zero, anything to i1 compares with zero.
    The adjoint casts back, and is zero through integers.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($input) `->` type($result)";
  let hasFolder = 1;
}

def NN_GeluForm : I32EnumAttr<"GeluForm", "form of GELU", [
    I32EnumAttrCase<"erf", 0>, I32EnumAttrCase<"tanh", 1>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_GeluOp : NN_Op<"gelu", [Pure, SameOperandsAndResultType, ElementwiseScalar, HasAdjoint]> {
  let summary = "Gaussian error linear unit";
  let description = [{
    `erf`: x · (1 + erf(x / √2)) / 2; `tanh`: x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2.
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_GeluForm:$form);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$form $input attr-dict `:` type($result)";
}

def NN_GeluGradOp : NN_Op<"gelu_grad", [Pure, SameOperandsAndResultType, ElementwiseScalar]> {
  let summary = "cotangent of GELU's input";
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$grad, NN_GeluForm:$form);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$form $input `,` $grad attr-dict `:` type($result)";
}

def NN_SiluOp : NN_Unary<"silu", "x · sigmoid(x)">;

def NN_SiluGradOp : NN_Op<"silu_grad", [Pure, SameOperandsAndResultType, ElementwiseScalar]> {
  let summary = "cotangent of SiLU's input";
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$grad);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $grad attr-dict `:` type($result)";
}

def NN_DropoutOp : NN_Op<"dropout", [Pure, HasAdjoint,
    AllTypesMatch<["input", "result"]>]> {
  let summary = "zeroes elements at random and scales the others by 1 / (1 - ratio)";
  let description = [{
    The mask is a pure function of (seed, step, microbatch, op, element):
    philox4x32-10 with key (seed low, seed high) and counter (element / 4, `op`,
    microbatch, step); element % 4 selects the word; with u = (word >> 8) · 2⁻²⁴
    an element stays where u ≥ ratio. Hence the adjoint is the same op on the
    cotangent, and no mask is saved. `random` is tensor<4xi32>: seed low, seed
    high, microbatch, step.
  }];
  let arguments = (ins NN_FloatTensor:$input, StaticShapeTensorOf<[I32]>:$random,
                       F64Attr:$ratio, I64Attr:$op);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $random attr-dict `:` type($result) `,` type($random)";
  let hasVerifier = 1; // 0 <= ratio < 1, random is tensor<4xi32>
}

def NN_CopyOp : NN_Op<"copy", [Pure, SameOperandsAndResultType, ElementwiseScalar]> {
  let summary = "the same elements in memory of their own";
  let description = [{
    Where a value must stand in two places: a gradient that is another
    parameter's too, or an activation that is read after the gradients' buffer
    is gone. Copies of one value are chained, so that no two are equal.
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

#endif
