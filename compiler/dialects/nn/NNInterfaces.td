// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The questions that passes and emitters ask of nn ops: the adjoint, the meaning
// in primitives, scalar code, fusion, where elements come from, linearity, views of
// memory, precision, library calls. An op answers in its .td entry (class `NN_Answers`)
// where one line says it, else in a .cpp file beside the dialect. No pass lists
// op classes, so a new op needs no change in any pass. After IREE's
// TiedOpInterface and AsyncAccessOpInterface.
#ifndef FSDPC_NN_INTERFACES
#define FSDPC_NN_INTERFACES

include "mlir/IR/OpBase.td"
include "compiler/dialects/nn/NNMemory.td"

def AdjointOpInterface : OpInterface<"AdjointOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    An op that can be differentiated in reverse mode. Every adjoint is checked
    against central differences in f64 (tests/compiler/dialects/nn).
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
      Floating operands and results are f32 or f64 (never bf16 or f16: the emitter
      widens before and rounds after).
    }], "::mlir::Value", "buildScalar",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::Location":$loc,
         "::mlir::ValueRange":$operands)>,
    InterfaceMethod<[{
      Returns the cost of one element, in simple operations (additions). Loops are
      cut and values kept by it; it changes no result.
    }], "int64_t", "getScalarCost", (ins), "", "return 1;">,
    InterfaceMethod<[{
      Returns true if the result is one of the operands, with another sign at most.
      Such a result needs no rounding to bf16 or f16.
    }], "bool", "isExact", (ins), "", "return false;">
  ];
}

def FusibleOpInterface : OpInterface<"FusibleOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    An op that can be part of an outlined kernel. `outline-kernels` groups ops of one
    domain; an op without this interface is a boundary between kernels.
  }];
  let methods = [
    InterfaceMethod<"Returns how the op becomes part of a kernel.",
      "::fsdpc::nn::FusionKind", "getFusionKind">,
    InterfaceMethod<[{
      Returns the iteration domain: its shape and the axes that the op reduces. By
      default it is that of a map over the first result.
    }], "::fsdpc::nn::Domain", "getDomain", (ins), "",
      "return ::fsdpc::nn::Domain::of($_op->getResult(0));">,
    InterfaceMethod<[{
      Returns true if an element of the result may need any element of the operand
      (along some axis). The operand then has to lie in memory: it cannot be computed
      in the same kernel.
    }], "bool", "readsAnyElement", (ins "unsigned":$operand), "", "return false;">,
    InterfaceMethod<[{
      Returns true if the op reads only as many elements of the operand as its result
      has: a slice, or rows of a table.
    }], "bool", "readsPart", (ins "unsigned":$operand), "", "return false;">
  ];
}

def ElementSourceOpInterface : OpInterface<"ElementSourceOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    An op that moves elements and computes nothing. It says with affine maps from the
    index of a result's element which operand's element that is.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns the sources of the result's element (d0, d1, …). The first one whose
      conditions hold gives the element; if there is none, it is 0.
    }], "::llvm::SmallVector<::fsdpc::nn::ElementSource, 1>", "getElementSources">
  ];
}

def PrecisionOpInterface : OpInterface<"PrecisionOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    Tells `mixed-precision` how to convert an op that computes in the type of its
    operands. By default it converts all floating operands and results.
  }];
  let methods = [
    InterfaceMethod<[{
      Returns true if the operand stays in its type: statistics, masks, class weights.
    }], "bool", "keepsType", (ins "::mlir::Value":$operand), "", "return false;">,
    InterfaceMethod<[{
      Returns true if the result stays f32: statistics and losses.
    }], "bool", "isStatistic", (ins "::mlir::OpResult":$result), "", "return false;">,
    InterfaceMethod<[{
      Returns true if the op computes in f32 whatever its operands are: a number drawn
      below 1 could round up to it in 16 bits.
    }], "bool", "computesInF32", (ins), "", "return false;">
  ];
}

def LinearityOpInterface : OpInterface<"LinearityOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    Says how the results of an op depend on its operands. Every op of the dialect answers,
    as the second argument of `NN_Op`; an answer is about all results together. The test
    `nn_linearity_test` compares the answers with the reference interpreter.
  }];
  let methods = [
    InterfaceMethod<"Returns how the results depend on the operand with this number.",
      "::fsdpc::nn::Linearity", "getLinearity", (ins "unsigned":$operand)>
  ];
}

def LibraryCallOpInterface : OpInterface<"LibraryCallOpInterface"> {
  let cppNamespace = "::fsdpc::nn";
  let description = [{
    An op that becomes one call of a library. The rt dialect says which call, and with
    which plan (`rt.RuntimeCallOpInterface`).
  }];
  let methods = [
    InterfaceMethod<"Returns the multiplications and additions of the call.",
      "int64_t", "getFlops", (ins), "", "return 0;">,
    InterfaceMethod<[{
      Returns the library that computes the op on a GPU. `attention` is the value of
      the option `--attention`. Emits an error if the library that it asks for cannot.
    }], "::llvm::FailureOr<::llvm::StringRef>", "chooseLibrary",
      (ins "::llvm::StringRef":$attention)>,
    InterfaceMethod<[{
      Returns the axis along which a slice of each result follows from the operand's
      slice at the same place along `axis`, and from no other slice of this operand.
      Nothing is always a right answer. Every op answers, by the first argument of
      `CallsLibrary`.
    }], "::std::optional<int64_t>", "getResultAxis",
      (ins "unsigned":$operand, "int64_t":$axis), "", "return ::std::nullopt;">,
    InterfaceMethod<[{
      Returns the operand whose memory the result takes and whose value ends there: an
      accumulator. Null if there is none.
    }], "::mlir::Value", "getOverwritten", (ins), "", "return {};">,
    InterfaceMethod<[{
      Returns true if the call adds a row to all rows of its result, can still take
      one, and its rows are those of one matrix.
    }], "bool", "canAddBias", (ins), "", "return false;">,
    InterfaceMethod<"Makes the call add a row: only if `canAddBias`.",
      "void", "addBias", (ins "::mlir::Value":$row), "",
      [{ (void)row; ::llvm::report_fatal_error("the call adds no bias"); }]>,
    InterfaceMethod<[{
      Returns true if the call takes strides of the operand, whose rows must be dense.
    }], "bool", "takesStrides", (ins "unsigned":$operand), "", "return false;">,
    InterfaceMethod<"Returns true if the call takes strides of its results.",
      "bool", "writesStrides", (ins), "", "return false;">,
    InterfaceMethod<[{
      Returns true if the call may write its result into a piece of a larger buffer,
      such as the result of a concat.
    }], "bool", "writesPieces", (ins), "", "return false;">,
    InterfaceMethod<[{
      Returns true if a kernel may overwrite a result of the call that ends there.
    }], "bool", "lendsResults", (ins), "", "return true;">
  ];
}

// ---- answers, as traits of ops ----

// An op that fuses as `kind`; `more` overrides other methods.
class Fuses<string kind, string more = "">
    : NN_Answers<"FusibleOpInterface", [{
  ::fsdpc::nn::FusionKind getFusionKind() { return ::fsdpc::nn::FusionKind::}] # kind # [{; }
}] # more>;

// An op that reduces rows of a tensor, which the C++ expression gives.
class FusesOverRows<string tensor, string more = "">
    : Fuses<"Reduction", "  ::fsdpc::nn::Domain getDomain() { return ::fsdpc::nn::Domain::rowsOf("
                         # tensor # "); }\n" # more>;
class FusesOver<string domain>
    : Fuses<"Reduction", "  ::fsdpc::nn::Domain getDomain() { return ::fsdpc::nn::Domain::"
                         # domain # "; }\n">;

// Any element of operand 0 may be needed.
defvar ReadsAnyElement = "  bool readsAnyElement(unsigned operand) { return operand == 0; }\n";
// The op reads only as many elements of operand 0 as the result has.
defvar ReadsPart = "  bool readsPart(unsigned operand) { return operand == 0; }\n";

// Cost of an elementwise op whose function takes a polynomial or more.
class Costs<int simpleOps> : NN_Answers<"ElementwiseOpInterface",
  "  int64_t getScalarCost() { return " # simpleOps # "; }\n">;
// An elementwise op that gives one of its operands, with another sign at most.
def IsExact : NN_Answers<"ElementwiseOpInterface", "  bool isExact() { return true; }\n">;

// Operands and results that mixed-precision leaves as they are, by their names
// with a capital.
class Keeps<list<string> operands> : NN_Answers<"PrecisionOpInterface",
  "  bool keepsType(::mlir::Value operand) { return "
  # !interleave(!foreach(n, operands, "operand == get" # n # "()"), " || ") # "; }\n">;
class Statistics<list<string> results> : NN_Answers<"PrecisionOpInterface",
  "  bool isStatistic(::mlir::OpResult result) { return "
  # !interleave(!foreach(n, results, "result == get" # n # "()"), " || ") # "; }\n">;

// Interfaces that an op implements in a .cpp file.
defvar HasAdjoint = DeclareOpInterfaceMethods<AdjointOpInterface>;
defvar Decomposes = DeclareOpInterfaceMethods<DecomposeOpInterface>;
defvar ElementwiseScalar = TraitList<[DeclareOpInterfaceMethods<ElementwiseOpInterface>,
                                       Fuses<"Map">]>;

// ---- linearity: the second argument of NN_Op ----

// The result is the operand, in another type at most.
def SameValue : NativeOpTrait<"SameValue"> { let cppNamespace = "::fsdpc::nn"; }
class NN_Linearity<string members, list<Trait> others = []> {
  list<Trait> traits = !listconcat([NN_Answers<"LinearityOpInterface", members>], others);
}
// The C++ expression may read the number of the operand, `operand`.
class NN_LinearityIs<string expression, list<Trait> others = []> : NN_Linearity<
  "  ::fsdpc::nn::Linearity getLinearity(unsigned operand) { return "
  # expression # "; }\n", others>;

class NN_IsAmong<list<string> operands> {
  string cpp = !interleave(!foreach(n, operands,
    "::fsdpc::nn::isAmong(operand, get" # n # "Mutable())"), " || ");
}

def NotLinear : NN_LinearityIs<"::fsdpc::nn::Linearity::None">;
// Linear in all operands together: sums.
def Linear : NN_LinearityIs<"::fsdpc::nn::Linearity::Term">;
class LinearIf<string condition>
    : NN_LinearityIs<"::fsdpc::nn::termIf(" # condition # ")">;
// Linear in these operands together while the others are fixed. Names have a capital.
class LinearIn<list<string> operands> : LinearIf<NN_IsAmong<operands>.cpp>;
// Linear in each operand while the others are fixed: products.
def Multilinear : NN_LinearityIs<"::fsdpc::nn::Linearity::Factor">;
// Linear in each of these operands while all others are fixed.
class MultilinearIn<list<string> operands> : NN_LinearityIs<
  NN_IsAmong<operands>.cpp # " ? ::fsdpc::nn::Linearity::Factor : ::fsdpc::nn::Linearity::None">;
// Gives its operand.
def KeepsValue : NN_LinearityIs<"::fsdpc::nn::Linearity::Term", [SameValue]>;
// Linear in what it moves, and not in indices that it reads.
def MovesElements : NN_LinearityIs<"::fsdpc::nn::linearityIn(getElementSources(), operand)",
    [DeclareOpInterfaceMethods<ElementSourceOpInterface>]>;
// `getLinearity` is in Linearity.cpp.
def HasLinearity : NN_Linearity<"  ::fsdpc::nn::Linearity getLinearity(unsigned operand);\n">;

// ---- library calls: the axes of operands that become axes of the results ----

class NN_Axes<string body> {
  Trait answer = NN_Answers<"LibraryCallOpInterface",
    "  ::std::optional<int64_t> getResultAxis(unsigned operand, "
    # "int64_t axis)" # body # "\n">;
}
def NoAxes : NN_Axes<" { return ::std::nullopt; }">;
// The first axes of every operand are those of the results. Sizes of 1 are repeated.
class FirstAxes<int count> : NN_Axes<
  " { return axis < " # count # " ? ::std::optional(axis) : ::std::nullopt; }">;
// Axis `from` of an operand, whose name has a capital, becomes axis `to`.
class Axis<string operand, int from, int to> {
  string test = "    if (axis == " # from # " && ::fsdpc::nn::isAmong(operand, get"
                # operand # "Mutable()))\n      return " # to # ";\n";
}
class Axes<list<Axis> axes> : NN_Axes<" {\n"
  # !interleave(!foreach(a, axes, a.test), "") # "    return ::std::nullopt;\n  }">;
// `getResultAxis` is in Linearity.cpp.
def HasResultAxis : NN_Axes<";">;

class CallsLibrary<NN_Axes axes, list<string> answers>
    : TraitList<[DeclareOpInterfaceMethods<LibraryCallOpInterface, answers>, axes.answer]>;

// Primitives that stay f32 where they lead from the last product to the loss alone.
def InLossTail : NativeOpTrait<"InLossTail"> { let cppNamespace = "::fsdpc::nn"; }
// One pass over memory with the same bits each time: the backward may repeat it.
def CheapToRepeat : NativeOpTrait<"CheapToRepeat"> { let cppNamespace = "::fsdpc::nn"; }
// An element takes a random word, which Philox draws for four elements at a time.
def DrawsRandom : NativeOpTrait<"DrawsRandom"> { let cppNamespace = "::fsdpc::nn"; }
#endif
