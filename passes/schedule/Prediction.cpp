// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Predicts a step. A microbatch is the schedule's own timeline, with the costs
// of so many ranks. An update moves the rank's parts of the layouts through
// memory and sends what is sent once per step. Only a GPU's copies of what is
// offloaded overlap there, and its gathers of updated parameters, which run
// beside the next forward.
#include "passes/schedule/Prediction.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/fsdp/Memory.h"
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/fsdp/SymbolEffects.h"
#include "compiler/options/Options.h"
#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/rounding.h"
#include "passes/schedule/ScheduledOps.h"
#include "runtime/abi/element_type.h"

#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <cmath>
#include <set>

using namespace mlir;

namespace fsdpc::passes {
namespace {

using analysis::CommunicationVolume;
using analysis::Level;

// The time of a term that is sent once per step.
double termUs(const CommunicationVolume::Term &term,
              const schedule::Machine &machine, bool reducesBlocks) {
  auto bytes = int64_t(term.bytes);
  switch (term.level) {
  case Level::Groups:
    return schedule::groupReduceUs(machine, 0, bytes);
  case Level::Group:
    return schedule::groupGatherUs(machine, bytes);
  case Level::Each: // all ranks gather what each sends
    return schedule::allGatherUs(machine, machine.ranks * bytes);
  case Level::Owners:
    return schedule::tradeUs(machine, term.bytes / machine.ranks);
  case Level::GroupOwners:
    return schedule::tradeUs(machine,
                             term.bytes / schedule::groupRanks(machine));
  case Level::Ranks:
    break;
  }
  // By the name of the term, since both directions move as many bytes.
  if (!StringRef(term.what).starts_with("reduce"))
    return schedule::allGatherUs(machine, bytes);
  // NCCL cannot add blocks, so the ranks trade them and add them themselves.
  return reducesBlocks ? schedule::allToAllUs(machine, bytes)
                       : schedule::reduceScatterUs(machine, bytes);
}

// The time of messages that ranks send once per step: gradients that are
// reduced there, sums of norms, and parameters that are gathered after the
// update.
struct SentOnce {
  double parametersUs = 0, othersUs = 0;
};

SentOnce sentOnce(const CommunicationVolume &volume,
                  const schedule::Machine &machine, bool reducesBlocks) {
  SentOnce sent;
  for (const CommunicationVolume::Term &term : volume.terms)
    if (!term.eachMicrobatch)
      (term.what == "gather_parameters" ? sent.parametersUs : sent.othersUs) +=
          termUs(term, machine, reducesBlocks);
  return sent;
}

// Elements of the layouts that @update gathers, by unit.
llvm::StringMap<double> gatheredElements(ModuleOp module) {
  llvm::StringMap<double> elements;
  auto update = module.lookupSymbol<func::FuncOp>(fsdp::FSDPDialect::kUpdate);
  SymbolTable symbols(module);
  if (update)
    update.walk([&](fsdp::GatherParametersOp gather) {
      for (auto name : gather.getLayouts().getAsRange<FlatSymbolRefAttr>()) {
        auto layout = symbols.lookup<fsdp::LayoutOp>(name.getAttr());
        elements[layout.getUnit()] += double(layout.getElements());
      }
    });
  return elements;
}

// Returns by how much gathers that take `us` in all lengthen a forward beside
// which they run: one per unit, in the order of the units, each of which waits
// for its own.
double exposedUs(const llvm::StringMap<double> &elements, double us,
                 const ScheduleIR &ir) {
  double all = 0, finishUs = 0, stalledUs = 0;
  for (const auto &unit : elements)
    all += unit.second;
  if (all == 0)
    return us;
  schedule::Timeline timeline = schedule::simulate(ir.problem, ir.schedule);
  llvm::StringSet<> gathered;
  for (const schedule::Segment &segment : ir.problem.segments) {
    if (segment.backward || !gathered.insert(segment.label).second)
      continue;
    finishUs += us * elements.lookup(segment.label) / all;
    double reachedUs = timeline.reachUs[segment.begin] + stalledUs;
    stalledUs += std::max(0.0, finishUs - reachedUs);
  }
  return stalledUs;
}

// The bytes of an element that lie in the file, or pinned for a GPU.
double storedGradient(const Layout &layout) {
  return layout.gradientOffloaded ? 4 : 0;
}
double storedStates(const Layout &layout) {
  return layout.statesOffloaded ? 4 * layout.states : 0;
}
double storedParameter(const Layout &layout) {
  return layout.parametersOffloaded ? layout.noMaster ? 2 : 4 : 0;
}

// The passes over layouts before their optimizers: the norm, and the sums and
// updates that some take of whole parameters. They are the ops of @update that
// read the memory of layouts and write none. Each rank reads what it answers
// for, also of what it keeps whole.
double passesUs(ModuleOp module, const Manifest &manifest,
                const schedule::Machine &machine) {
  auto update = module.lookupSymbol<func::FuncOp>(fsdp::FSDPDialect::kUpdate);
  if (!update)
    return 0;
  llvm::StringMap<const Layout *> layouts;
  for (const Layout &layout : manifest.layouts)
    layouts[layout.name] = &layout;
  double us = 0;
  update.walk([&](fsdp::LayoutUserOpInterface op) {
    auto effects = fsdp::effectsOf(op);
    auto ofLayouts = fsdp::symbolEffectsOf(op, *effects);
    if (llvm::any_of(*ofLayouts, [](auto &effect) { return effect.write; }))
      return;
    double bytes = 0, stored = 0;
    for (const fsdp::SymbolEffect &effect : *ofLayouts) {
      if (!effect.symbol)
        continue;
      const Layout &layout = *layouts.lookup(effect.symbol.getRootReference());
      double own = std::ceil(double(layout.elements) / machine.ranks);
      if (fsdp::isSame(effect.resource, fsdp::GradientMemory::get())) {
        bytes += own * 4;
        stored += own * storedGradient(layout);
      } else if (fsdp::isSame(effect.resource, fsdp::ParameterMemory::get())) {
        bytes += own * (layout.noMaster ? 2 : 4);
        stored += own * storedParameter(layout);
      } else if (fsdp::isSame(effect.resource, fsdp::OptimizerMemory::get())) {
        bytes += own * 4 * layout.states;
        stored += own * storedStates(layout);
      }
    }
    // Updates and gradients are f32, of which a rank writes its own part. Sums
    // are f64, and few.
    for (Value result : op->getResults())
      if (getElementTypeOrSelf(result).isF32())
        bytes += std::ceil(double(elementsOf(result)) / machine.ranks) * 4;
    us += schedule::offloadedOpUs(
        machine,
        schedule::opUs(machine, "optimizer", 0, bytes, ElementType::f32),
        stored, 0);
  });
  return us;
}

// The optimizer reads and writes the parameter and its states, and reads the
// gradient, all in f32. It writes the copy that the model computes in, if there
// is one. What is offloaded comes and goes, but the gradient only comes.
double optimizerUs(const Manifest &manifest, const schedule::Machine &machine) {
  double us = 0;
  for (const Layout &layout : manifest.layouts) {
    if (!layout.trainable)
      continue;
    double part = double(layout.elements);
    if (!layout.stateWhole)
      part = std::ceil(part / (layout.inGroups ? schedule::groupRanks(machine)
                                               : machine.ranks));
    double words = 3 + 2 * layout.states;
    std::string dtype = manifest.computeDtypeOf(layout);
    double copy = dtype == "f32" ? 0 : double(dtypeBytes(dtype));
    // Without a master two bytes are read and written instead of four each.
    if (layout.noMaster)
      copy = -4;
    double opUs = schedule::opUs(machine, "optimizer", 0,
                                 part * (4 * words + copy), ElementType::f32);
    double changed = part * (storedStates(layout) + storedParameter(layout));
    us += schedule::offloadedOpUs(
        machine, opUs, changed + part * storedGradient(layout), changed);
  }
  return us;
}

} // namespace

UpdatePredictor::UpdatePredictor(ModuleOp module)
    : module(module), manifest(fsdp::describeModule(module)),
      volume(analysis::communicatedBytes(module)) {}

double UpdatePredictor::predictUs(const ScheduleIR &ir,
                                  const schedule::Machine &machine) const {
  SentOnce sent = sentOnce(volume, machine,
                           fsdp::CompileOptions::of(module).reducesBlocks());
  if (machine.isGpu)
    sent.parametersUs =
        exposedUs(gatheredElements(module), sent.parametersUs, ir);
  return sent.parametersUs + sent.othersUs +
         passesUs(module, manifest, machine) + optimizerUs(manifest, machine);
}

void writePrediction(ModuleOp module, ScheduleIR &ir) {
  schedule::Machine machine = fsdp::machineOf(module);
  // Powers of two, which most jobs are, and --plan-ranks.
  std::set<int64_t> counts = {1, 2, 4, 8, 16, 32, 64, machine.ranks};
  UpdatePredictor update(module);
  SmallVector<double> microbatches, updates;
  for (int64_t ranks : counts) {
    machine.ranks = int(ranks);
    setDurations(ir, machine);
    microbatches.push_back(schedule::roundedUs(
        schedule::simulate(ir.problem, ir.schedule).stepUs));
    updates.push_back(schedule::roundedUs(update.predictUs(ir, machine)));
  }
  Builder builder(module.getContext());
  auto list = [&](StringRef name, Attribute values) {
    return builder.getNamedAttr(name, values);
  };
  module->setAttr(
      fsdp::FSDPDialect::kPredictedAttr,
      builder.getDictionaryAttr(
          {list("ranks", builder.getDenseI64ArrayAttr(SmallVector<int64_t>(
                             counts.begin(), counts.end()))),
           list("microbatch_us", builder.getDenseF64ArrayAttr(microbatches)),
           list("update_us", builder.getDenseF64ArrayAttr(updates))}));
}

} // namespace fsdpc::passes
