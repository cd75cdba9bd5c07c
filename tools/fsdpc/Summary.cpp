// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Prints the summary of a compile: the model, its units, groups and kernels,
// and the communication per step. All of it is read from the module, so a dump
// gives the same summary as the model.
#include "tools/fsdpc/Summary.h"

#include "compiler/analysis/CommunicationVolume.h"
#include "compiler/dialects/fsdp/Buckets.h"
#include "compiler/dialects/fsdp/F32Islands.h"
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Offloads.h"
#include "compiler/dialects/fsdp/ParameterGroups.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/Options.h"
#include "runtime/support/spelling.h"
#include "tools/fsdpc/TextStreams.h"

#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::driver;
using namespace fsdpc::analysis;

using runtime::printable;

// Counts of zero are left out.
void fsdpc::driver::printImportSummary(const frontend::ImportSummary &summary) {
  textOut() << "model: " << summary.nodes << " nodes";
  auto add = [](int64_t count, const char *what) {
    if (count > 0)
      textOut() << ", " << count << " " << what;
  };
  add(summary.folded, "folded");
  textOut() << ", " << summary.parameters << " parameters of "
            << summary.parameterElements << " elements";
  if (summary.trainableElements != summary.parameterElements)
    textOut() << " (" << summary.trainableElements << " trainable)";
  add(summary.aliases, "tied");
  add(summary.buffers, "buffers");
  add(summary.storedBytes, "bytes of stored constants");
  add(summary.detached, "detached values");
  textOut() << "\n";
  if (!summary.optimizer.empty())
    textOut() << "optimizer: " << summary.optimizer << "\n";
}

// Lists the groups of --group with what they contain, since an expression
// easily matches more or fewer parameters than was meant. Prints nothing
// without --group.
static void printGroups(ModuleOp module) {
  FailureOr<fsdp::ParameterGroups> groups = fsdp::ParameterGroups::of(module);
  if (failed(groups))
    return;
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  for (const auto &[number, group] : llvm::enumerate(groups->groups())) {
    int64_t elements = 0;
    for (fsdp::ParameterOp member : group.members)
      elements += cast<ShapedType>(member.getType()).getNumElements();
    textOut() << "group '" << printable(group.pattern)
              << "': " << group.members.size() << " parameters of " << elements
              << " elements";
    if (options.groups[number].find("optimizer"))
      textOut() << ", "
                << options.ofGroup(options.groups[number]).optimizer.name();
    textOut() << "\n";
  }
}

// Says how much of the forward stays f32, which mixed-precision has counted.
static void printF32Islands(ModuleOp module) {
  auto counts = module->getAttrOfType<DictionaryAttr>(fsdp::kF32IslandsAttr);
  if (!counts)
    return;
  auto count = [&](StringRef name) {
    return counts.getAs<IntegerAttr>(name).getInt();
  };
  textOut() << "in f32 before a product with a weight: " << count("data")
            << " ops on inputs and positions, " << count("parameters")
            << " on parameters\n";
}

// Lists what the backward computes again for --memory-limit, which the pass
// `recompute` has recorded on the units, and what that costs.
static void printRecomputed(ModuleOp module) {
  std::string list;
  int64_t us = 0;
  for (auto unit : module.getOps<fsdp::UnitOp>()) {
    std::optional<fsdp::Recomputed> again = fsdp::recomputedOf(unit);
    if (!again)
      continue;
    us += again->us;
    list += (list.empty() ? "" : ", ") + printable(unit.getSymName());
    if (again->ops != again->of)
      list += llvm::formatv(" ({0} of {1} ops)", again->ops, again->of);
  }
  if (!list.empty())
    textOut() << llvm::formatv(
        "computed again in the backward, for --memory-limit, at {0:F3} ms per "
        "microbatch: {1}\n",
        double(us) / 1e3, list);
}

// Says which activations leave the memory, out of those that could: all,
// or as many as --memory-limit requires.
static void printOffloaded(ModuleOp module) {
  auto offloaded = module->getAttrOfType<DictionaryAttr>(fsdp::kOffloadedAttr);
  if (!offloaded)
    return;
  auto count = [&](StringRef name) {
    return offloaded.getAs<IntegerAttr>(name).getInt();
  };
  auto time = [&](StringRef name) {
    return offloaded.getAs<FloatAttr>(name).getValueAsDouble() / 1e3;
  };
  bool isLimited = fsdp::CompileOptions::of(module).memoryLimit.bytes > 0;
  textOut() << llvm::formatv(
      "activations offloaded{0}: {1:F1} of {2:F1} MiB per microbatch, {3} of "
      "{4} pieces",
      isLimited ? ", for --memory-limit" : "", mebibytes(count("bytes")),
      mebibytes(count("of_bytes")), count("pieces"), count("of_pieces"));
  if (count("pieces") > 0) {
    auto units = offloaded.getAs<ArrayAttr>("units");
    textOut() << llvm::formatv(
        ", in {0:F3} ms of copies, {1:F3} ms exposed; read last in ",
        time("copy_us"), time("exposed_us"));
    llvm::interleaveComma(units.getAsRange<FlatSymbolRefAttr>(), textOut(),
                          [](FlatSymbolRefAttr unit) {
                            textOut() << printable(unit.getValue());
                          });
  }
  textOut() << "\n";
}

// Says what the loss's means are means of, which decides what is learnt.
static void printLossMean(ModuleOp module) {
  llvm::SetVector<StringRef> inputs;
  for (auto weight : module.getOps<fsdp::LossWeightOp>())
    for (StringRef name : weight.getInputs().getAsValueRange<StringAttr>())
      inputs.insert(name);
  if (module.getOps<fsdp::LossWeightOp>().empty())
    return;
  bool ofStep =
      fsdp::CompileOptions::of(module).lossMean == fsdp::LossMean::Step;
  textOut() << (ofStep ? "loss: mean over all targets of a step"
                       : "loss: mean of the microbatches' means")
            << ", counted in ";
  llvm::interleaveComma(inputs, textOut(),
                        [](StringRef name) { textOut() << printable(name); });
  textOut() << " (--loss-mean)\n";
}

void fsdpc::driver::printModelSummary(ModuleOp module) {
  printLossMean(module);
  // An attribute holds the counts of recognised composites, since the ops
  // themselves are kernels by now. Sorted by name, as every dictionary.
  auto counts = module->getAttrOfType<DictionaryAttr>("fsdp.recognised");
  if (counts && !counts.empty()) {
    textOut() << "recognised:";
    for (NamedAttribute entry : counts)
      if (auto count = dyn_cast<IntegerAttr>(entry.getValue()))
        textOut() << " " << count.getInt() << " " << entry.getName().getValue();
    textOut() << "\n";
  }
  if (auto buckets = module->getAttrOfType<ArrayAttr>(fsdp::kBucketsAttr)) {
    textOut() << "buckets:";
    for (auto name : buckets.getAsValueRange<StringAttr>())
      textOut() << " " << printable(name);
    textOut() << " (--dim); the step is predicted of that with the largest "
                 "activations\n";
  }
  unsigned units = 0, kernels = 0;
  for (Operation &op : *module.getBody()) {
    kernels += op.hasAttr("nn.kernel");
    units += isa<fsdp::UnitOp>(op);
  }
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  textOut() << "strategy: " << fsdp::describeStrategies(module) << ", " << units
            << " units, " << kernels << " kernels\n";
  printRecomputed(module);
  printOffloaded(module);
  if (options.paramType == ElementType::f16)
    textOut() << "f16: products convert their operands to f32, which is "
                 "slower than f32 or bf16\n";
  printGroups(module);
}

void fsdpc::driver::printDetails(ModuleOp module) {
  fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
  if (options.maxAccumulate > 0)
    textOut() << "microbatches per rank and step: at most "
              << options.maxAccumulate << " (--max-accumulate)\n";
  printF32Islands(module);
  // Written by the phase `schedule`; the collectives themselves are gone.
  if (std::optional<CommunicationVolume> volume = readCommunication(module))
    textOut() << volume->describe();
  auto persist = module->getAttrOfType<DictionaryAttr>("fsdp.persist");
  if (persist)
    textOut() << llvm::formatv(
        "exposed communication per microbatch: {0:F1} us, and {1:F1} us "
        "without --persist (estimates)\n",
        persist.getAs<FloatAttr>("exposed_us").getValueAsDouble(),
        persist.getAs<FloatAttr>("gathered_us").getValueAsDouble());
}

void fsdpc::driver::printUnits(ModuleOp module) {
  struct Content {
    int64_t parameters = 0, elements = 0, trainable = 0;
  };
  llvm::MapVector<StringRef, Content> units;
  for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
    FlatSymbolRefAttr unit = parameter.getUnitAttr();
    // Units in the order of their first parameter.
    Content &content = units[unit ? unit.getValue() : StringRef("(none)")];
    int64_t elements = cast<ShapedType>(parameter.getType()).getNumElements();
    ++content.parameters;
    content.elements += elements;
    content.trainable += parameter.getTrainable() ? elements : 0;
  }
  textOut() << "units:\n";
  for (auto &[name, content] : units)
    textOut() << "  " << llvm::left_justify(printable(name), 30) << " "
              << content.parameters << " parameters of " << content.elements
              << " elements (" << content.trainable << " trainable)\n";
}
