// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Finds the tensors of a graph that the program reports: the loss, and those of
// --keep-output. The loss of --loss may be a sum of several, and
// --loss-reduction makes one number of a tensor with an element per sample.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/GraphImporter.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

void GraphImporter::listOutputs(InFlightDiagnostic &error) const {
  for (const auto &output : model.proto.graph().output())
    error << " '" << output.name() << "'";
}

// Looks up a tensor that a flag names.
Value GraphImporter::findNamed(StringRef name, StringRef flag) {
  Value value = lookup(name);
  if (!value) {
    InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
    error << "no tensor '" << name << "' (" << flag << ") in '" << model.path
          << "'; outputs:";
    listOutputs(error);
  }
  return value;
}

Value GraphImporter::findOutput(StringRef name) {
  Value value = findNamed(name, "--keep-output");
  if (!value)
    return nullptr;
  const char *what = isa<BlockArgument>(value) ? "an input"
                     : find(name)->loaded      ? "a parameter or buffer"
                                               : nullptr;
  if (!what)
    return value;
  emitError(b.builder.getUnknownLoc())
      << "--keep-output '" << name << "' is " << what << " of '" << model.path
      << "', but it must be computed by a node";
  return nullptr;
}

// ---- the loss ----

namespace {
// A tensor of --loss and what multiplies it.
struct Term {
  double factor;
  StringRef name;
};
} // namespace

// Reads "a+0.1*b". A name may contain '*', so only a number before it counts as
// a factor.
static SmallVector<Term> termsOf(StringRef text) {
  SmallVector<StringRef> parts;
  text.split(parts, '+');
  SmallVector<Term> terms;
  for (StringRef part : parts) {
    auto [first, rest] = part.split('*');
    double factor = 1;
    bool hasFactor = !rest.empty() && !first.trim().getAsDouble(factor);
    terms.push_back(hasFactor ? Term{factor, rest.trim()}
                              : Term{1, part.trim()});
  }
  return terms;
}

// Returns true if the value has one element, or more that --loss-reduction
// makes one of.
static bool mayBeLoss(Value value, fsdp::LossReduction reduction) {
  if (!value || !isa<FloatType>(elementOf(value)))
    return false;
  int64_t count = tensorType(value).getNumElements();
  return count == 1 || (count > 1 && reduction != fsdp::LossReduction::None);
}

// Half floats have too few digits to add up many elements.
static Value reduceLoss(Emitter &b, Value value,
                        fsdp::LossReduction reduction) {
  int64_t count = tensorType(value).getNumElements();
  if (count == 1)
    return value;
  Value all = b.reshape(b.cast(value, b.builder.getF32Type()), {count});
  return reduction == fsdp::LossReduction::Mean
             ? b.mean(all, {0})
             : b.reduce(nn::ReduceKind::sum, all, {0});
}

// Returns one tensor of --loss as a single element.
Value GraphImporter::findTerm(StringRef name) {
  Value value = findNamed(name, "--loss");
  if (!value)
    return nullptr;
  if (mayBeLoss(value, options.lossReduction))
    return reduceLoss(b, value, options.lossReduction);
  InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
  error << "loss '" << name << "' of '" << model.path << "' has type "
        << value.getType() << ", but the loss must be a float with one element";
  if (mayBeLoss(value, fsdp::LossReduction::Mean))
    error << "; take its mean or sum with --loss-reduction";
  return nullptr;
}

// A tensor whose own name has a '+' is taken as such.
Value GraphImporter::findChosenLoss() {
  if (lookup(options.loss))
    return findTerm(options.loss);
  SmallVector<Term> terms = termsOf(options.loss);
  if (terms.size() == 1 && terms[0].factor == 1)
    return findTerm(terms[0].name);
  Value total;
  for (auto [factor, name] : terms) {
    Value value = findTerm(name);
    if (!value)
      return nullptr;
    value = b.cast(b.reshape(value, {}), b.builder.getF32Type());
    if (factor != 1)
      value = b.binary<nn::MulOp>(value, factor);
    total = total ? b.binary<nn::AddOp>(total, value) : value;
  }
  return total;
}

Value GraphImporter::findLoss() {
  if (!options.loss.empty())
    return findChosenLoss();
  bool reduces = options.lossReduction != fsdp::LossReduction::None;
  SmallVector<std::pair<StringRef, Value>> candidates;
  for (const auto &output : model.proto.graph().output())
    if (Value value = lookup(output.name());
        mayBeLoss(value, options.lossReduction) &&
        !llvm::is_contained(options.keptOutputs, output.name()))
      candidates.push_back({output.name(), value});
  if (candidates.size() == 1)
    return reduceLoss(b, candidates[0].second, options.lossReduction);
  InFlightDiagnostic error = emitError(b.builder.getUnknownLoc());
  if (candidates.empty()) {
    error << "no output of '" << model.path << "' is a float"
          << (reduces ? "" : " scalar")
          << "; export a model that returns its loss, or choose a tensor with "
             "--loss=NAME"
          << (reduces ? "" : ", or the mean of one with --loss-reduction")
          << "; outputs:";
    listOutputs(error);
    return nullptr;
  }
  error << "'" << model.path << "' has " << candidates.size()
        << (reduces ? " float" : " scalar")
        << " outputs; choose the loss with --loss=NAME:";
  for (auto &[name, value] : candidates)
    error << " '" << name << "'";
  return nullptr;
}
