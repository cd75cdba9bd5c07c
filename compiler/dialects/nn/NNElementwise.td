// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Elementwise primitives: each element of the result comes from the elements of
// the operands at the same index. Operands have equal shapes, so that a kernel
// can compute a whole chain of them per element; broadcasts are ops of their own.
#ifndef FSDPC_NN_ELEMENTWISE
#define FSDPC_NN_ELEMENTWISE

include "compiler/dialects/nn/NNBase.td"

// An elementwise op of one operand. `what` is its summary, `meaning` says what
// it computes and what its adjoint is.
class NN_Unary<string mnemonic, NN_Linearity linearity, string what, string meaning,
               Type type = NN_FloatTensor, list<Trait> traits = []>
    : NN_Op<mnemonic, linearity, !listconcat([Pure, SameOperandsAndResultType, ElementwiseScalar,
                                   HasAdjoint], traits)> {
  let summary = what;
  let description = meaning #
      "\n\n**Constraints**\n- Operand and result have the same type" #
      !if(!eq(type, NN_FloatTensor), ", a float tensor", "") #
      ".\n\nExample:\n```mlir\n%y = nn." # mnemonic # " %x : tensor<8x48xf32>\n```\n";
  let arguments = (ins type:$input);
  let results = (outs type:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

// An elementwise op of two operands, on floats or integers.
class NN_Binary<string mnemonic, NN_Linearity linearity, string what, string meaning,
                list<Trait> traits = []>
    : NN_Op<mnemonic, linearity, !listconcat([Pure, SameOperandsAndResultType, ElementwiseScalar,
                                   HasAdjoint], traits)> {
  let summary = what;
  let description = meaning #
      "\n\n**Constraints**\n- Operands and result have the same type.\n\n"
      "Example:\n```mlir\n%z = nn." # mnemonic # " %x, %y : tensor<8x48xf32>\n```\n";
  let arguments = (ins NN_Tensor:$lhs, NN_Tensor:$rhs);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}

def NN_NegOp : NN_Unary<"neg", Linear, "Negation",
    "Computes -x; integers wrap. The adjoint negates the cotangent.", NN_Tensor, traits = [IsExact]>;
def NN_AbsOp : NN_Unary<"abs", NotLinear, "Absolute value",
    "Computes |x|. The adjoint multiplies by the sign of x, which is 0 at 0 as in PyTorch.", NN_Tensor, traits = [IsExact]>;
def NN_ExpOp : NN_Unary<"exp", NotLinear, "Exponential",
    "Computes e to the power x, or 0 where that is below 1.8e-38. The adjoint multiplies by the result.", traits = [Costs<12>]>;
def NN_LogOp : NN_Unary<"log", NotLinear, "Natural logarithm",
    "Computes log x: -∞ at 0, NaN below. The adjoint divides by x.", traits = [Costs<12>]>;
def NN_Expm1Op : NN_Unary<"expm1", NotLinear, "Exponential less one",
    "Computes exp(x) - 1, also where x is so small that exp(x) rounds to 1. The adjoint multiplies by exp(x).", traits = [Costs<14>]>;
def NN_Log1pOp : NN_Unary<"log1p", NotLinear, "Logarithm of one more",
    "Computes log(1 + x), also where x is so small that 1 + x rounds to 1: -∞ at -1, NaN below. The adjoint divides by 1 + x.", traits = [Costs<16>]>;
def NN_SqrtOp : NN_Unary<"sqrt", NotLinear, "Square root",
    "Computes √x, NaN below 0. The adjoint divides half the cotangent by the result.">;
def NN_RsqrtOp : NN_Unary<"rsqrt", NotLinear, "Reciprocal square root",
    "Computes 1 / √x, by a square root and a division: the processors' approximations have 12 bits. "
    "The adjoint multiplies by -½ times the cube of the result.">;
def NN_TanhOp : NN_Unary<"tanh", NotLinear, "Hyperbolic tangent",
    "Computes tanh x. The adjoint multiplies by 1 - y², where y is the result.", traits = [Costs<12>]>;
def NN_ErfOp : NN_Unary<"erf", NotLinear, "Error function",
    "Computes erf x = 2/√π times the integral of exp(-t²) from 0 to x. The adjoint multiplies by 2/√π · exp(-x²).", traits = [Costs<12>]>;
def NN_SigmoidOp : NN_Unary<"sigmoid", NotLinear, "Logistic function",
    "Computes 1 / (1 + exp(-x)). The adjoint multiplies by y · (1 - y), where y is the result.", traits = [Costs<12>]>;
def NN_SoftplusOp : NN_Unary<"softplus", NotLinear, "Softened rectifier",
    "Computes log(1 + exp(x)) as max(x, 0) + log1p(exp(-|x|)), which neither overflows nor loses a small result. "
    "log(sigmoid(x)) is -softplus(-x). The adjoint multiplies by sigmoid(x).", traits = [Costs<28>]>;
def NN_ReluOp : NN_Unary<"relu", NotLinear, "Rectified linear unit",
    "Computes max(x, 0); NaN stays NaN, so that it is found. The adjoint passes the cotangent where x > 0, and 0 elsewhere.", traits = [IsExact]>;
def NN_SinOp : NN_Unary<"sin", NotLinear, "Sine",
    "Computes sin x, of x in radians. The adjoint multiplies by cos x.", traits = [Costs<100>]>;
def NN_CosOp : NN_Unary<"cos", NotLinear, "Cosine",
    "Computes cos x, of x in radians. The adjoint multiplies by -sin x.", traits = [Costs<100>]>;
def NN_AtanOp : NN_Unary<"atan", NotLinear, "Arc tangent",
    "Computes the angle in [-π/2, π/2] whose tangent is x. The adjoint divides by 1 + x².", traits = [Costs<30>]>;
def NN_FloorOp : NN_Unary<"floor", NotLinear, "Rounds down",
    "Computes the largest integer not above x. The adjoint is zero.">;
def NN_RoundOp : NN_Unary<"round", NotLinear, "Rounds to the nearest integer",
    "Computes the integer nearest to x, and the even one of two that are equally near. The adjoint is zero.">;

def NN_StopGradientOp : NN_Unary<"stop_gradient", KeepsValue, "Value without a gradient",
    "Returns x as it is. No gradient passes: a parameter that affects the loss only through such ops is not trained. "
    "It is PyTorch's `detach`. The pass `grad` removes it.", traits = [IsExact]>;

def NN_NotOp : NN_Op<"not", NotLinear, [Pure, SameOperandsAndResultType, ElementwiseScalar]> {
  let summary = "Logical not";
  let description = [{
    True where the input is false.

    **Constraints**
    - Operand and result have the same type, a tensor of i1.

    Example:
    ```mlir
    %hidden = nn.not %keep : tensor<8x48xi1>
    ```
  }];
  let arguments = (ins NN_BoolTensor:$input);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

def NN_AddOp : NN_Binary<"add", Linear, "Sum",
    "Computes x + y; integers wrap. The adjoint passes the cotangent to both operands.", [Commutative]> {
  let hasFolder = 1;
}
def NN_SubOp : NN_Binary<"sub", Linear, "Difference",
    "Computes x - y; integers wrap. The adjoint passes the cotangent to x and negates it for y."> {
  let hasFolder = 1;
}
def NN_MulOp : NN_Binary<"mul", Multilinear, "Product of elements",
    "Computes x · y; integers wrap. The adjoint multiplies by the other operand.", [Commutative]> {
  let hasFolder = 1;
}
def NN_DivOp : NN_Binary<"div", HasLinearity, "Quotient",
    "Computes x / y. Integers round towards zero and wrap: the smallest one divided by -1 is itself. An integer divided by 0 gives 0. "
    "The adjoint divides by y, and for y multiplies that by minus the result."> {
  let hasFolder = 1;
}
def NN_ModOp : NN_Binary<"mod", NotLinear, "Remainder with the sign of the divisor",
    "Computes x - y · floor(x / y), as Python's % does. An integer modulo 0 gives 0. "
    "The adjoint passes the cotangent to x, and multiplies it by -floor(x / y) for y.">;
def NN_PowOp : NN_Binary<"pow", NotLinear, "Power",
    "Computes x to the power y. The adjoint multiplies by y · x^(y - 1), and for y by the result times log x, "
    "which counts as 0 where x is 0 and y is not negative.", [Costs<100>]>;
def NN_MaximumOp : NN_Binary<"maximum", NotLinear, "Larger element",
    "Computes max(x, y), NaN where either is. The adjoint goes to the larger operand, half of it to each of equals.",
    [Commutative, IsExact]>;
def NN_MinimumOp : NN_Binary<"minimum", NotLinear, "Smaller element",
    "Computes min(x, y), NaN where either is. The adjoint goes to the smaller operand, half of it to each of equals.",
    [Commutative, IsExact]>;

// An elementwise op on truth values; gradients do not pass it.
class NN_Logical<string mnemonic, string what, string meaning>
    : NN_Op<mnemonic, NotLinear, [Pure, SameOperandsAndResultType, ElementwiseScalar, Commutative]> {
  let summary = what;
  let description = meaning #
      "\n\n**Constraints**\n- Operands and result have the same type, a tensor of i1.\n\n"
      "Example:\n```mlir\n%z = nn." # mnemonic # " %x, %y : tensor<8x48xi1>\n```\n";
  let arguments = (ins NN_BoolTensor:$lhs, NN_BoolTensor:$rhs);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$lhs `,` $rhs attr-dict `:` type($result)";
}
def NN_AndOp : NN_Logical<"and", "Logical and", "True where both operands are.">;
def NN_OrOp : NN_Logical<"or", "Logical or", "True where at least one operand is.">;
def NN_XorOp : NN_Logical<"xor", "Logical exclusive or", "True where exactly one operand is.">;

def NN_Predicate : I32EnumAttr<"Predicate", "comparison", [
    I32EnumAttrCase<"eq", 0>, I32EnumAttrCase<"ne", 1>, I32EnumAttrCase<"lt", 2>,
    I32EnumAttrCase<"le", 3>, I32EnumAttrCase<"gt", 4>, I32EnumAttrCase<"ge", 5>]> {
  let cppNamespace = "::fsdpc::nn";
}

def NN_CmpOp : NN_Op<"cmp", NotLinear, [Pure, ElementwiseScalar, SameOperandsAndResultShape,
    SameTypeOperands, DeclareOpInterfaceMethods<PrecisionOpInterface, ["computesInF32"]>]> {
  let summary = "Compares elements";
  let description = [{
    Compares the elements of two tensors by `predicate`: eq, ne, lt, le, gt or ge.
    Where an operand is NaN, ne is true and all others are false. Integers compare as
    signed, i1 and ui8 as unsigned. There is no adjoint: gradients do not pass. A
    comparison with a draw (`nn.uniform`) is in f32 under `--param-dtype` too.

    **Constraints**
    - The operands have the same type, the result the same shape and elements of i1.

    Example:
    ```mlir
    %positive = nn.cmp gt %x, %zero : tensor<8x48xf32> -> tensor<8x48xi1>
    ```
  }];
  let arguments = (ins NN_Predicate:$predicate, NN_Tensor:$lhs, NN_Tensor:$rhs);
  let results = (outs NN_BoolTensor:$result);
  let assemblyFormat = "$predicate $lhs `,` $rhs attr-dict `:` type($lhs) `->` type($result)";
}

def NN_SelectOp : NN_Op<"select", LinearIn<["OnTrue", "OnFalse"]>, [Pure, ElementwiseScalar, HasAdjoint, IsExact,
    AllTypesMatch<["onTrue", "onFalse", "result"]>]> {
  let summary = "Chooses between elements";
  let description = [{
    The element of `onTrue` where the condition is true, else that of `onFalse`. The
    adjoint sends the cotangent to the operand that was chosen, and zero to the other.

    **Constraints**
    - `onTrue`, `onFalse` and the result have the same type.
    - `condition` is a tensor of i1 of the result's shape.

    Example:
    ```mlir
    %y = nn.select %keep, %x, %zero : tensor<8x48xi1>, tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_BoolTensor:$condition, NN_Tensor:$onTrue, NN_Tensor:$onFalse);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$condition `,` $onTrue `,` $onFalse attr-dict `:` type($condition) `,` type($result)";
  let hasVerifier = 1; // condition has the result's shape
}

def NN_CastOp : NN_Op<"cast", HasLinearity, [Pure, ElementwiseScalar, HasAdjoint, SameValue,
    SameOperandsAndResultShape]> {
  let summary = "Converts the element type";
  let description = [{
    Floats round to nearest, ties to even; floats to integers truncate towards zero,
    with the nearest integer for a number that the type cannot hold, and the smallest
    for NaN; anything to i1 tests for not being zero; integers wrap to a narrower
    width. The adjoint casts the cotangent back, and is zero to and from integers.

    **Constraints**
    - Operand and result have the same shape.

    Example:
    ```mlir
    %narrow = nn.cast %x : tensor<8x48xf32> -> tensor<8x48xbf16>
    ```
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

def NN_GeluOp : NN_Op<"gelu", NotLinear, [Pure, SameOperandsAndResultType, ElementwiseScalar, HasAdjoint,
    Costs<20>]> {
  let summary = "Gaussian error linear unit";
  let description = [{
    `erf`: x · (1 + erf(x / √2)) / 2.
    `tanh`: x · (1 + tanh(√(2/π) · (x + 0.044715 · x³))) / 2.
    The adjoint is `nn.gelu_grad` (Hendrycks and Gimpel, Gaussian Error Linear Units,
    2016).

    **Constraints**
    - Operand and result have the same type, a float tensor.

    Example:
    ```mlir
    %y = nn.gelu erf %x : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_GeluForm:$form);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$form $input attr-dict `:` type($result)";
}

def NN_GeluGradOp : NN_Op<"gelu_grad", LinearIn<["Grad"]>, [Pure, SameOperandsAndResultType, ElementwiseScalar,
                                        Costs<20>]> {
  let summary = "Cotangent of GELU's input";
  let description = [{
    `grad` times the derivative of `nn.gelu` of the same form at `input`, computed from
    the input alone, so that the forward keeps nothing else.

    **Constraints**
    - Operands and result have the same type, a float tensor.

    Example:
    ```mlir
    %dx = nn.gelu_grad erf %x, %dy : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$grad, NN_GeluForm:$form);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$form $input `,` $grad attr-dict `:` type($result)";
}

def NN_SiluOp : NN_Unary<"silu", NotLinear, "Sigmoid linear unit",
    "Computes x · sigmoid(x). The adjoint is `nn.silu_grad`.", traits = [Costs<12>]>;

def NN_SiluGradOp : NN_Op<"silu_grad", LinearIn<["Grad"]>, [Pure, SameOperandsAndResultType, ElementwiseScalar,
                                        Costs<12>]> {
  let summary = "Cotangent of SiLU's input";
  let description = [{
    `grad` · σ · (1 + x · (1 - σ)) with σ = sigmoid(x) of the input x.

    **Constraints**
    - Operands and result have the same type, a float tensor.

    Example:
    ```mlir
    %dx = nn.silu_grad %x, %dy : tensor<8x48xf32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, NN_FloatTensor:$grad);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $grad attr-dict `:` type($result)";
}

def NN_DropoutOp : NN_Op<"dropout", LinearIn<["Input"]>, [Pure, HasAdjoint, Fuses<"Map">, CheapToRepeat,
    DrawsRandom, AllTypesMatch<["input", "result"]>]> {
  let summary = "Zeroes elements at random and scales the others";
  let description = [{
    An element is zeroed with probability `ratio`, else multiplied by 1 / (1 - ratio).
    The mask is a pure function of seed, step, microbatch, op and element: Philox4x32-10
    (Salmon et al., Parallel Random Numbers: As Easy as 1, 2, 3, 2011) with the key
    (seed low, seed high) and the counter (element / 4, `op`, microbatch, step) gives
    four words, of which element % 4 selects one. With u = (word >> 8) · 2⁻²⁴ the
    element stays where u ≥ ratio. Hence no mask is kept: the adjoint is the same op on
    the cotangent. `random` holds seed low, seed high, microbatch and step
    (`fsdp.random`); `op` numbers the dropouts of a model.

    **Constraints**
    - 0 ≤ `ratio` < 1.
    - `random` is `tensor<4xi32>`.
    - Operand and result have the same type, a float tensor.

    Example:
    ```mlir
    %y = nn.dropout %x, %random {op = 7 : i64, ratio = 0.1 : f64} : tensor<8x48xf32>, tensor<4xi32>
    ```
  }];
  let arguments = (ins NN_FloatTensor:$input, StaticShapeTensorOf<[I32]>:$random,
                       F64Attr:$ratio, I64Attr:$op);
  let results = (outs NN_FloatTensor:$result);
  let assemblyFormat = "$input `,` $random attr-dict `:` type($result) `,` type($random)";
  let hasVerifier = 1; // 0 <= ratio < 1, random is tensor<4xi32>
}

def NN_UniformOp : NN_Op<"uniform", NotLinear, [Pure, Fuses<"Map">, CheapToRepeat, DrawsRandom]> {
  let summary = "Random numbers between 0 and 1";
  let description = [{
    An element is (2 · (word >> 9) + 1) · 2⁻²⁴, where `word` is the one that `nn.dropout`
    draws for this element and `op`. It is exact in f32 and neither 0 nor 1, so that its
    logarithm and that of 1 minus it are finite. No gradient flows back to it. `op`
    numbers the dropouts and draws of a model together.

    **Constraints**
    - `random` is `tensor<4xi32>`.
    - The result is a tensor of f32, whatever the model computes in.

    Example:
    ```mlir
    %u = nn.uniform %random {op = 3 : i64} : tensor<4xi32> -> tensor<8x48xf32>
    ```
  }];
  let arguments = (ins StaticShapeTensorOf<[I32]>:$random, I64Attr:$op);
  let results = (outs StaticShapeTensorOf<[F32]>:$result);
  let assemblyFormat = "$random attr-dict `:` type($random) `->` type($result)";
  let hasVerifier = 1; // random is tensor<4xi32>
}

def NN_F32Like : TypeOrValueSemanticsContainer<F32, "f32">;
def NN_WordLike : TypeOrValueSemanticsContainer<I32, "i32">;

def NN_RoundStochasticOp : NN_Op<"round_stochastic", NotLinear, [Pure, ElementwiseScalar,
    SameOperandsAndResultShape, AllTypesMatch<["input", "result"]>]> {
  let summary = "Rounds to bf16, up or down at random";
  let description = [{
    The result is one of the two numbers of bf16 next to x, in f32, and x itself where
    bf16 has it: that further from 0 where the part of the distance to it from the other,
    in 65536ths, and the upper 16 bits of `word` together reach 65536. With random words
    the mean of the results is hence x (Gupta et al., Deep Learning with Limited Numerical
    Precision, 2015), and updates that are too small for bf16 are made with the probability
    that is their part of a step. Infinities stay, NaN is NaN, and beyond the largest number
    the next one is infinite. There is no adjoint.

    `fsdp.optimizer` has the op in its scalar program, so its operands may also be scalars.

    **Constraints**
    - The operands and the result have one shape, or are scalars.
    - `input` and the result are of f32, `word` is of i32.

    Example:
    ```mlir
    %y = nn.round_stochastic %x, %word : tensor<8x48xf32>, tensor<8x48xi32>
    ```
  }];
  let arguments = (ins NN_F32Like:$input, NN_WordLike:$word);
  let results = (outs NN_F32Like:$result);
  let assemblyFormat = "$input `,` $word attr-dict `:` type($result) `,` type($word)";
}

def NN_CopyOp : NN_Op<"copy", KeepsValue, [Pure, SameOperandsAndResultType, ElementwiseScalar]> {
  let summary = "The same elements in memory of their own";
  let description = [{
    Stands where a value must be in two places: a gradient that is another parameter's
    too, or an activation that is read after the gradients' buffer is gone. Further
    copies of one value copy the copy before, so that CSE sees no two equal ops.

    **Constraints**
    - Operand and result have the same type.

    Example:
    ```mlir
    %copy = nn.copy %dw : tensor<8x4xf32>
    ```
  }];
  let arguments = (ins NN_Tensor:$input);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$input attr-dict `:` type($result)";
}

#endif
