// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The interface of plan attributes: their plain data in the manifest, and
// their names in a trace. Plans are attributes so that equal calls share one,
// and so that a dump shows what is passed to the library.
#include "compiler/dialects/rt/Plans.h"

#include "compiler/dialects/fsdp/ModuleManifest.h"

#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::rt;
using fsdp::dtypeName;

static std::vector<int64_t> values(DenseI64ArrayAttr array) {
  return array.asArrayRef().vec();
}

// A program of the host has no libraries to choose from.
static std::string libraryName(StringAttr library) {
  return library ? library.str() : "";
}

MatmulPlan rt::describe(MatmulPlanAttr attribute) {
  MatmulPlan plan;
  plan.batch = values(attribute.getBatch());
  plan.strideA = values(attribute.getStrideA());
  plan.strideB = values(attribute.getStrideB());
  plan.strideC = values(attribute.getStrideC());
  plan.m = attribute.getM();
  plan.n = attribute.getN();
  plan.k = attribute.getK();
  plan.transposeA = attribute.getTransposeA();
  plan.transposeB = attribute.getTransposeB();
  // Operands are dense and row-major as they lie in memory, so the distance of
  // two rows is the number of columns before the transpose.
  plan.lda = plan.transposeA ? plan.m : plan.k;
  plan.ldb = plan.transposeB ? plan.k : plan.n;
  plan.ldc = plan.n;
  plan.dtypeA = dtypeName(attribute.getA());
  plan.dtypeB = dtypeName(attribute.getB());
  plan.dtypeC = dtypeName(attribute.getC());
  plan.accumulate = attribute.getAccumulate();
  plan.bias = attribute.getBias();
  plan.addend = attribute.getAddend();
  if (StringAttr epilogue = attribute.getEpilogue())
    plan.epilogue = epilogue.str();
  plan.library = libraryName(attribute.getLibrary());
  return plan;
}

// Fills in the fields that convolution and pooling share: the images, and how
// the window moves over them.
template <typename Plan, typename PlanAttr>
static Plan describeWindow(PlanAttr attribute) {
  Plan plan;
  plan.kind = attribute.getKind();
  plan.dtype = dtypeName(attribute.getElement());
  plan.library = libraryName(attribute.getLibrary());
  ArrayRef<int64_t> input = attribute.getInput().asArrayRef();
  ArrayRef<int64_t> output = attribute.getOutput().asArrayRef();
  ArrayRef<int64_t> pads = attribute.getPads().asArrayRef();
  plan.batch = input[0];
  plan.channels = input[1];
  plan.height = input[2];
  plan.width = input[3];
  plan.outHeight = output[2];
  plan.outWidth = output[3];
  plan.strides = values(attribute.getStrides());
  // ONNX has top, left, bottom, right.
  plan.padsBegin = {pads[0], pads[1]};
  plan.padsEnd = {pads[2], pads[3]};
  return plan;
}

ConvolutionPlan rt::describe(ConvolutionPlanAttr attribute) {
  auto plan = describeWindow<ConvolutionPlan>(attribute);
  ArrayRef<int64_t> filter = attribute.getFilter().asArrayRef();
  plan.filters = filter[0];
  // The filter is O×I×H×W. I follows from the channels and groups.
  plan.kernelHeight = filter[2];
  plan.kernelWidth = filter[3];
  plan.groups = attribute.getGroups();
  plan.dilations = values(attribute.getDilations());
  return plan;
}

PoolingPlan rt::describe(PoolingPlanAttr attribute) {
  auto plan = describeWindow<PoolingPlan>(attribute);
  plan.kernel = values(attribute.getKernel());
  plan.countPadding = attribute.getCountPadding();
  return plan;
}

AttentionPlan rt::describe(AttentionPlanAttr attribute) {
  // Query is B×H×T×d and key B×G×S×d. Sizes come from these two, the width of
  // the values from an attribute of its own.
  AttentionPlan plan;
  ArrayRef<int64_t> query = attribute.getQuery().asArrayRef();
  ArrayRef<int64_t> key = attribute.getKey().asArrayRef();
  plan.batch = query[0];
  plan.heads = query[1];
  // Key heads. Each is shared by heads / groups query heads.
  plan.groups = key[1];
  plan.queries = query[2];
  plan.keys = key[2];
  plan.width = query[3];
  plan.valueWidth = attribute.getValueWidth();
  plan.scale = attribute.getScale().getValueAsDouble();
  plan.causal = attribute.getCausal();
  plan.dtype = dtypeName(attribute.getElement());
  plan.library = libraryName(attribute.getLibrary());
  plan.strideQuery = values(attribute.getStrideQuery());
  plan.strideKey = values(attribute.getStrideKey());
  plan.strideValue = values(attribute.getStrideValue());
  plan.strideOutput = values(attribute.getStrideOutput());
  // Absent attributes are null. A plan without a mask leaves its fields empty.
  if (attribute.getMask()) {
    plan.dtypeMask = dtypeName(attribute.getMask());
    plan.strideMask = values(attribute.getStrideMask());
  }
  // Only the backward has a gradient of the output, so its strides tell the two
  // directions apart.
  if (attribute.getStrideGrad()) {
    plan.backward = true;
    plan.strideGrad = values(attribute.getStrideGrad());
    plan.strideDQuery = values(attribute.getStrideDQuery());
    plan.strideDKey = values(attribute.getStrideDKey());
    plan.strideDValue = values(attribute.getStrideDValue());
  }
  return plan;
}

// ---- matrix products ----

void MatmulPlanAttr::addTo(Manifest &manifest) const {
  manifest.matmuls.push_back(describe(*this));
}

// "8x512x768x3072 nt + bias gelu": batch, then M x N x K, then the transposes
// of A and B, what is added, and the epilogue, if there are any.
std::string MatmulPlanAttr::getTitle() const {
  std::string text;
  llvm::raw_string_ostream stream(text);
  for (int64_t extent : getBatch().asArrayRef())
    stream << extent << 'x';
  stream << getM() << 'x' << getN() << 'x' << getK();
  if (getTransposeA() || getTransposeB())
    stream << (getTransposeA() ? " t" : " n") << (getTransposeB() ? 't' : 'n');
  if (getBias())
    stream << " + bias";
  if (getAddend())
    stream << " + addend";
  if (getEpilogue())
    stream << ' ' << getEpilogue().getValue();
  return text;
}

// ---- convolution and pooling ----

void ConvolutionPlanAttr::addTo(Manifest &manifest) const {
  manifest.convolutions.push_back(describe(*this));
}

// The kind alone: "forward", "input" or "weight".
std::string ConvolutionPlanAttr::getTitle() const { return getKind().str(); }

void PoolingPlanAttr::addTo(Manifest &manifest) const {
  manifest.poolings.push_back(describe(*this));
}

std::string PoolingPlanAttr::getTitle() const { return getKind().str(); }

// ---- outputs ----

Output rt::describe(OutputPlanAttr plan) {
  return {plan.getName().str(), plan.getType().getShape().vec(),
          dtypeName(plan.getType().getElementType())};
}

void OutputPlanAttr::addTo(Manifest &manifest) const {
  manifest.outputs.push_back(describe(*this));
}

std::string OutputPlanAttr::getTitle() const { return getName().str(); }

// ---- attention ----

void AttentionPlanAttr::addTo(Manifest &manifest) const {
  manifest.attentions.push_back(describe(*this));
}

// "batch x heads x queries x keys x width".
std::string AttentionPlanAttr::getTitle() const {
  ArrayRef<int64_t> query = getQuery().asArrayRef();
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << query[0] << 'x' << query[1] << 'x' << query[2] << 'x'
         << getKey().asArrayRef()[2] << 'x' << query[3];
  if (getCausal())
    stream << " causal";
  return text;
}

// The softmax takes one exp per pair of a query and a key. The flops cover the
// pair in two products (forward) or five (backward), of two flops per element
// of the inner dimension, which gives the number of pairs back.
int64_t AttentionPlanAttr::countExps(int64_t flops) const {
  int64_t width = getQuery().asArrayRef()[3];
  int64_t pair = getStrideGrad() ? 3 * width + 2 * getValueWidth()
                                 : width + getValueWidth();
  return flops / (2 * pair);
}
