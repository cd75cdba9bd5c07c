// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The verifiers of matrix products, convolution, pooling and kernel launches. A
// program that passes them can be lowered without further checks of shapes: the
// runtime's libraries trust their plans.
#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/LibraryOps.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/dialects/nn/Products.h"

#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;
using namespace fsdpc::nn;

// Checks the shapes of a product. Batch dimensions broadcast.
template <typename ProductOp> static LogicalResult verifyProduct(ProductOp op) {
  Value lhs = op.getLhs(), rhs = op.getRhs(), result = op.getResult();
  ArrayRef<int64_t> a = shapeOf(lhs), b = shapeOf(rhs), c = shapeOf(result);
  if (a.size() < 2 || b.size() < 2 || c.size() < 2)
    return op.emitOpError("operands and result must be matrices");
  if (tensorType(lhs).getElementType() != tensorType(rhs).getElementType())
    return op.emitOpError("operands differ in element type: ")
           << lhs.getType() << " and " << rhs.getType();
  // The rows and columns after the transpose.
  auto matrix = [](ArrayRef<int64_t> shape, bool transposed) {
    int64_t rows = shape[shape.size() - 2], columns = shape.back();
    return transposed ? std::pair(columns, rows) : std::pair(rows, columns);
  };
  auto [m, k] = matrix(a, op.getTransposeA());
  auto [k2, n] = matrix(b, op.getTransposeB());
  if (k != k2)
    return op.emitOpError("inner dimensions differ: ") << k << " and " << k2;
  if (matrix(c, false) != std::pair(m, n))
    return op.emitOpError("result must end in ")
           << m << "x" << n << ", but has type " << result.getType();
  ArrayRef<int64_t> batchA = a.drop_back(2), batchB = b.drop_back(2),
                    batch = c.drop_back(2);
  if (!broadcastsTo(batchA, batch) || !broadcastsTo(batchB, batch))
    return op.emitOpError("batch dimensions of ")
           << lhs.getType() << " and " << rhs.getType()
           << " do not broadcast to those of " << result.getType();
  auto dimension = [&](ArrayRef<int64_t> shape, size_t fromRight) {
    return fromRight < shape.size() ? shape[shape.size() - 1 - fromRight] : 1;
  };
  // Both sides broadcast to the result; this refuses a result that is larger
  // than either in some dimension, which would repeat products.
  for (size_t i = 0; i < batch.size(); ++i)
    if (dimension(batch, i) !=
        std::max(dimension(batchA, i), dimension(batchB, i)))
      return op.emitOpError("a batch dimension of the result, ")
             << dimension(batch, i)
             << ", is not a batch dimension of either operand";
  return success();
}

// Returns the type of one row of a result.
static RankedTensorType rowType(Value result) {
  return tensorType(result).clone({shapeOf(result).back()});
}

// The accumulator has the result's type, or is one row that is added to each.
LogicalResult MatmulOp::verify() {
  if (failed(verifyProduct(*this)))
    return failure();
  // A bias has the result's element type, not that of the operands.
  auto row = rowType(getResult());
  if (getAccumulator() && getAccumulator().getType() != getResult().getType() &&
      getAccumulator().getType() != row)
    return emitOpError("accumulator ")
           << getAccumulator().getType() << " must have the result's type "
           << getResult().getType() << ", or be a row of it, " << row;
  return success();
}

static bool addsRows(Epilogue epilogue) {
  return epilogue == Epilogue::sum_lhs || epilogue == Epilogue::sum_rhs;
}

// Checks the operands beside A and B, by the epilogue.
static LogicalResult verifyOperands(FusedMatmulOp op) {
  Type type = op.getResult().getType(), row = rowType(op.getResult());
  bool isGradient = op.getEpilogue() == Epilogue::gelu_grad;
  bool adds = op.getBias() || op.getAddend();
  if (op.getBias() && op.getBias().getType() != row)
    return op.emitOpError("bias ")
           << op.getBias().getType() << " must be a row of the result, " << row;
  for (Value whole : {op.getAddend(), op.getInput()})
    if (whole && whole.getType() != type)
      return op.emitOpError("operand ")
             << whole.getType() << " must have the result's type " << type;
  if (bool(op.getInput()) != isGradient)
    return op.emitOpError("has an input with 'gelu_grad', and only there");
  if (adds && (isGradient || addsRows(op.getEpilogue())))
    return op.emitOpError("has a bias or an addend, which '")
           << stringifyEpilogue(op.getEpilogue()) << "' does not take";
  if (!adds && op.getEpilogue() == Epilogue::none)
    return op.emitOpError("has no epilogue, bias or addend; use nn.matmul");
  return success();
}

// Checks the second result, by the epilogue.
static LogicalResult verifyExtra(FusedMatmulOp op) {
  auto result = tensorType(op.getResult());
  Type wanted;
  switch (op.getEpilogue()) {
  case Epilogue::gelu:
    wanted = op.getExtra() ? Type(result) : Type();
    break;
  case Epilogue::sum_lhs:
    wanted = result.clone({result.getShape()[0]});
    break;
  case Epilogue::sum_rhs:
    wanted = rowType(op.getResult());
    break;
  default:
    break;
  }
  Type type = op.getExtra() ? op.getExtra().getType() : Type();
  if (type == wanted)
    return success();
  auto diagnostic = op.emitOpError("with the epilogue '")
                    << stringifyEpilogue(op.getEpilogue()) << "' has ";
  return wanted ? diagnostic << "a second result of type " << wanted
                : diagnostic << "one result";
}

LogicalResult FusedMatmulOp::verify() {
  if (failed(verifyProduct(*this)))
    return failure();
  auto result = tensorType(getResult());
  if (result.getElementType() != tensorType(getLhs()).getElementType())
    return emitOpError("operands and result differ in element type: ")
           << getLhs().getType() << " and " << result;
  Epilogue epilogue = getEpilogue();
  if (!isOneProduct(getLhs(), getRhs(), getTransposeA()))
    return emitOpError("needs one matrix as the right operand, and as the left "
                       "if it is transposed");
  if (addsRows(epilogue) && !getTransposeA())
    return emitOpError("sums the rows of a transposed left operand only");
  bool isGelu = epilogue == Epilogue::gelu || epilogue == Epilogue::gelu_grad;
  if (isGelu && result.getShape().back() % kGeluRowMultiple)
    return emitOpError("has rows of ")
           << result.getShape().back() << " elements, but '"
           << stringifyEpilogue(epilogue) << "' needs a multiple of "
           << kGeluRowMultiple;
  return failure(failed(verifyOperands(*this)) || failed(verifyExtra(*this)));
}

namespace {
/// The window of a convolution or a pooling. Absent dilations are 1.
struct Window {
  ArrayRef<int64_t> kernel, strides, pads, dilations;

  LogicalResult verify(Operation *op) const {
    if (kernel.size() != 2 || strides.size() != 2 || pads.size() != 4 ||
        (!dilations.empty() && dilations.size() != 2))
      return op->emitOpError("needs two kernel sizes, strides and dilations, "
                             "and four pads");
    for (ArrayRef<int64_t> positive : {kernel, strides, dilations})
      for (int64_t value : positive)
        if (value < 1)
          return op->emitOpError("kernel sizes, strides and dilations must be "
                                 "positive, not ")
                 << value;
    for (int64_t pad : pads)
      if (pad < 0)
        return op->emitOpError("pads must not be negative, but one is ") << pad;
    return success();
  }

  // The number of windows that fit along an axis of size `input`.
  int64_t outputSize(int64_t input, int axis) const {
    int64_t dilation = dilations.empty() ? 1 : dilations[axis];
    // (input + pads - dilation · (kernel - 1) - 1) / stride + 1, rounded down,
    // as in ONNX. A window that does not fit at all gives an empty output.
    int64_t space =
        input + pads[axis] + pads[axis + 2] - dilation * (kernel[axis] - 1) - 1;
    return space < 0 ? 0 : space / strides[axis] + 1;
  }
};
} // namespace

/// Checks that `output` is N × `channels` × the windows that fit into `input`.
static LogicalResult verifyOutput(Operation *op, const Window &window,
                                  Value input, Value output, int64_t channels) {
  ArrayRef<int64_t> shape = shapeOf(input);
  SmallVector<int64_t> expected = {shape[0], channels,
                                   window.outputSize(shape[2], 0),
                                   window.outputSize(shape[3], 1)};
  if (shapeOf(output) != ArrayRef<int64_t>(expected))
    return op->emitOpError("windows over ")
           << input.getType() << " produce "
           << tensorType(output).clone(expected) << ", not "
           << output.getType();
  return success();
}

static LogicalResult verifyImage(Operation *op, Value image) {
  if (shapeOf(image).size() != 4)
    return op->emitOpError("needs images of rank 4 (NCHW), not ")
           << image.getType();
  return success();
}

/// The three convolution ops relate an input, a filter and an output.
template <typename ConvOp>
static LogicalResult verifyConv(ConvOp op, Value input, Value filter,
                                Value output) {
  for (Value image : {input, filter, output})
    if (failed(verifyImage(op, image)))
      return failure();
  ArrayRef<int64_t> in = shapeOf(input), weights = shapeOf(filter);
  Window window{weights.drop_front(2), op.getStrides(), op.getPads(),
                op.getDilations()};
  if (failed(window.verify(op)))
    return failure();
  // A filter sees the channels of one group only: its second dimension is the
  // input's channels / groups.
  int64_t groups = op.getGroups();
  if (groups < 1 || weights[1] * groups != in[1] || weights[0] % groups)
    return op.emitOpError("filter ")
           << filter.getType() << " in " << groups << " groups does not match "
           << in[1] << " input channels";
  return verifyOutput(op, window, input, output, weights[0]);
}

LogicalResult Conv2dOp::verify() {
  return verifyConv(*this, getInput(), getFilter(), getResult());
}

// The gradient ops are checked as the convolution that they belong to, with
// their result in the place of the operand that it is the gradient of.
LogicalResult Conv2dGradInputOp::verify() {
  return verifyConv(*this, getResult(), getFilter(), getGrad());
}

LogicalResult Conv2dGradFilterOp::verify() {
  return verifyConv(*this, getInput(), getResult(), getGrad());
}

// A pad as large as the kernel would allow windows without any element.
template <typename PoolOp>
static LogicalResult verifyPool(PoolOp op, Value input, Value output) {
  if (failed(verifyImage(op, input)) || failed(verifyImage(op, output)))
    return failure();
  Window window{op.getKernel(), op.getStrides(), op.getPads(), {}};
  if (failed(window.verify(op)))
    return failure();
  for (int axis : {0, 1, 2, 3})
    if (window.pads[axis] >= window.kernel[axis % 2])
      return op.emitOpError("pad ")
             << window.pads[axis] << " must be smaller than the kernel size "
             << window.kernel[axis % 2];
  return verifyOutput(op, window, input, output, shapeOf(input)[1]);
}

static LogicalResult verifyIndex(Operation *op, Value index, Value output) {
  if (shapeOf(index) != shapeOf(output))
    return op->emitOpError("index ")
           << index.getType() << " must have the shape of " << output.getType();
  return success();
}

LogicalResult MaxPool2dOp::verify() {
  if (failed(verifyIndex(*this, getIndex(), getResult())))
    return failure();
  return verifyPool(*this, getInput(), getResult());
}

LogicalResult MaxPool2dGradOp::verify() {
  if (failed(verifyIndex(*this, getIndex(), getGrad())))
    return failure();
  return verifyPool(*this, getResult(), getGrad());
}

LogicalResult AvgPool2dOp::verify() {
  return verifyPool(*this, getInput(), getResult());
}

LogicalResult AvgPool2dGradOp::verify() {
  return verifyPool(*this, getResult(), getGrad());
}

// Checks that the launch fits its kernel, and that each result is tied to an
// operand of the op (or -1: to none) that no other result overwrites.
LogicalResult LaunchOp::verifySymbolUses(SymbolTableCollection &symbols) {
  auto kernel = symbols.lookupNearestSymbolFrom<FunctionOpInterface>(
      *this, getKernelAttr());
  if (!kernel || !kernel->hasAttr(NNDialect::kKernelAttr))
    return emitOpError("'@") << getKernel() << "' is not a function marked '"
                             << NNDialect::kKernelAttr << "'";
  if (TypeRange(kernel.getArgumentTypes()) != getOperandTypes() ||
      TypeRange(kernel.getResultTypes()) != getResultTypes()) {
    InFlightDiagnostic diag = emitOpError("operands and results do not match "
                                          "the type of kernel '@")
                              << getKernel() << "'";
    diag.attachNote(kernel.getLoc())
        << "the kernel has type " << kernel.getFunctionType();
    return diag;
  }
  // tie-operands adds the attribute late; until then every result has its own
  // memory.
  if (!getTied())
    return success();
  ArrayRef<int64_t> tied = *getTied();
  if (tied.size() != getNumResults())
    return emitOpError("tied has ")
           << tied.size() << " entries for " << getNumResults() << " results";
  for (auto [i, operand] : llvm::enumerate(tied)) {
    if (operand < -1 || operand >= static_cast<int64_t>(getNumOperands()))
      return emitOpError("result ")
             << i << " is tied to operand " << operand << ", but the op has "
             << getNumOperands() << " operands";
    // Two results in the memory of one operand would overwrite each other.
    if (operand >= 0 && llvm::is_contained(tied.drop_front(i + 1), operand))
      return emitOpError("operand ") << operand << " is tied twice";
  }
  return success();
}
