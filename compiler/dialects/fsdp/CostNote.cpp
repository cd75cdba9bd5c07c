// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints and parses estimates, and folds those of an op into notes and back.
// Numbers keep all of their digits, since a dump is compiled further: a rounded
// cost would give another schedule.
#include "compiler/dialects/fsdp/CostNote.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "runtime/support/concat.h"

#include "mlir/IR/BuiltinAttributes.h"

#include <charconv>
#include <cmath>

using namespace mlir;

namespace fsdpc::fsdp {

// Takes a number and its unit from the front of a text. The first number of a
// text has no comma before it.
template <typename Number>
static bool take(StringRef &text, StringRef unit, Number &value) {
  auto [end, error] = std::from_chars(text.begin(), text.end(), value);
  if (error != std::errc())
    return false;
  text = text.drop_front(end - text.begin());
  return text.consume_front(unit);
}

static bool isTime(double us) { return std::isfinite(us) && us >= 0; }

std::optional<CostNote> CostNote::parse(StringRef text) {
  CostNote note;
  if (!take(text, " us", note.us) || !text.consume_front(", ") ||
      !take(text, " bytes", note.bytes))
    return std::nullopt;
  if (text.consume_front(", ") && !take(text, " flops", note.flops.emplace()))
    return std::nullopt;
  bool isEstimate =
      isTime(note.us) && note.bytes >= 0 && note.flops.value_or(0) >= 0;
  return text.empty() && isEstimate ? std::optional(note) : std::nullopt;
}

std::string printTime(double us) {
  // A double has up to 309 digits before its point, or 1074 behind it.
  char digits[1100];
  auto [end, error] = std::to_chars(digits, digits + sizeof(digits), us,
                                    std::chars_format::fixed);
  assert(error == std::errc() && "the time is not a number");
  return std::string(digits, end) + " us";
}

std::optional<double> parseTime(StringRef text) {
  double us = 0;
  bool isWhole = take(text, " us", us) && text.empty() && isTime(us);
  return isWhole ? std::optional(us) : std::nullopt;
}

std::string CostNote::print() const {
  std::string text = concat(printTime(us), ", ", bytes, " bytes");
  return flops ? concat(text, ", ", *flops, " flops") : text;
}

static void foldExposed(Operation *op) {
  auto us = op->getAttrOfType<FloatAttr>(FSDPDialect::kExposedAttr);
  if (!us || !isTime(us.getValueAsDouble()))
    return;
  op->removeDiscardableAttr(FSDPDialect::kExposedAttr);
  op->setDiscardableAttr(
      kExposedNoteAttr,
      StringAttr::get(op->getContext(), printTime(us.getValueAsDouble())));
}

static void unfoldExposed(Operation *op) {
  auto text = op->getAttrOfType<StringAttr>(kExposedNoteAttr);
  if (!text)
    return;
  std::optional<double> us = parseTime(text);
  assert(us && "the dialect verifies notes");
  op->removeDiscardableAttr(kExposedNoteAttr);
  op->setDiscardableAttr(FSDPDialect::kExposedAttr,
                         Builder(op->getContext()).getF64FloatAttr(*us));
}

void foldCost(Operation *op) {
  foldExposed(op);
  auto us = op->getAttrOfType<FloatAttr>(FSDPDialect::kCostAttr);
  auto bytes = op->getAttrOfType<IntegerAttr>(FSDPDialect::kBytesAttr);
  auto flops = op->getAttrOfType<IntegerAttr>(FSDPDialect::kFlopsAttr);
  if (!us || !bytes || !isTime(us.getValueAsDouble()))
    return;
  CostNote note = {us.getValueAsDouble(), bytes.getInt(), std::nullopt};
  if (flops)
    note.flops = flops.getInt();
  for (StringRef name : {FSDPDialect::kCostAttr, FSDPDialect::kBytesAttr,
                         FSDPDialect::kFlopsAttr})
    op->removeDiscardableAttr(name);
  op->setDiscardableAttr(kCostNoteAttr,
                         StringAttr::get(op->getContext(), note.print()));
}

void unfoldCost(Operation *op) {
  unfoldExposed(op);
  auto text = op->getAttrOfType<StringAttr>(kCostNoteAttr);
  if (!text)
    return;
  std::optional<CostNote> note = CostNote::parse(text);
  assert(note && "the dialect verifies notes");
  op->removeDiscardableAttr(kCostNoteAttr);
  Builder builder(op->getContext());
  op->setDiscardableAttr(FSDPDialect::kCostAttr,
                         builder.getF64FloatAttr(note->us));
  op->setDiscardableAttr(FSDPDialect::kBytesAttr,
                         builder.getI64IntegerAttr(note->bytes));
  if (note->flops)
    op->setDiscardableAttr(FSDPDialect::kFlopsAttr,
                           builder.getI64IntegerAttr(*note->flops));
}

} // namespace fsdpc::fsdp
