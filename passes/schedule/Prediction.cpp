// Predicts a step. A microbatch is the schedule's own timeline, with the costs
// of so many ranks. An update moves the rank's parts of the layouts through
// memory and sends what is sent once per step. Only a GPU's copies of what is
// offloaded overlap there.
#include "passes/schedule/Prediction.h"

#include "compiler/analysis/CommunicationVolume.h"
#include "compiler/dialects/fsdp/Machine.h"
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/schedule/cost_model.h"
#include "compiler/schedule/rounding.h"

#include <cmath>
#include <set>

using namespace mlir;

namespace fsdpc::passes {
namespace {

using analysis::CommunicationVolume;
using analysis::Level;

// The time of what is sent once per step: gradients that are reduced there,
// sums of norms, and parameters that are gathered after the update.
double sentUs(const CommunicationVolume &volume,
              const schedule::Machine &machine, bool reducesBlocks) {
  double us = 0;
  // NCCL cannot add blocks, so the ranks trade them and add them themselves.
  auto reduceUs =
      reducesBlocks ? schedule::allToAllUs : schedule::reduceScatterUs;
  for (const CommunicationVolume::Term &term : volume.terms) {
    if (term.eachMicrobatch)
      continue;
    // By the name of the term, since both directions move as many bytes.
    bool reduces = StringRef(term.what).starts_with("reduce");
    int64_t bytes = int64_t(term.bytes);
    if (term.level == Level::Groups)
      us += schedule::groupReduceUs(machine, 0, bytes);
    else if (term.level == Level::Group)
      us += schedule::groupGatherUs(machine, bytes);
    else if (term.level == Level::Each) // all ranks gather what each sends
      us += schedule::allGatherUs(machine, machine.ranks * bytes);
    else if (term.level == Level::Owners)
      us += schedule::tradeUs(machine, term.bytes / machine.ranks);
    else if (term.level == Level::GroupOwners)
      us += schedule::tradeUs(machine,
                              term.bytes / schedule::groupRanks(machine));
    else
      us += reduces ? reduceUs(machine, bytes)
                    : schedule::allGatherUs(machine, bytes);
  }
  return us;
}

// Adds the copies of what is offloaded of a layout to its update. The norm has
// read the gradients before, of which it makes no copy back.
double offloadedUpdateUs(const Layout &layout, double part, double opUs,
                         const schedule::Machine &machine) {
  double gradient = layout.gradientOffloaded ? 4 * part : 0;
  double changed =
      part * ((layout.statesOffloaded ? 4 * layout.states : 0) +
              (layout.parametersOffloaded ? layout.noMaster ? 2 : 4 : 0));
  return schedule::offloadUs(machine, gradient, 0) +
         schedule::offloadedOpUs(machine, opUs, changed + gradient, changed);
}

// The optimizer reads and writes the parameter and its states, and reads the
// gradient, all in f32; the norm has read the gradient before. It writes the
// copy that the model computes in, if there is one.
double optimizerUs(const Manifest &manifest, const schedule::Machine &machine) {
  double us = 0;
  for (const Layout &layout : manifest.layouts) {
    if (!layout.trainable)
      continue;
    double part = double(layout.elements);
    if (!layout.stateWhole)
      part = std::ceil(part / (layout.hybrid ? schedule::groupRanks(machine)
                                             : machine.ranks));
    // Reads: gradient twice, parameter and states; writes: parameter and
    // states.
    double words = 4 + 2 * layout.states;
    double copy = manifest.computeDtypeOf(layout) == "f32" ? 0 : 2;
    // Without a master two bytes are read and written instead of four each.
    if (layout.noMaster)
      copy = -4;
    double opUs =
        schedule::opUs(machine, "optimizer", 0, part * (4 * words + copy),
                       schedule::ElementType::F32);
    us += offloadedUpdateUs(layout, part, opUs, machine);
  }
  return us;
}

} // namespace

double predictUpdateUs(ModuleOp module, const schedule::Machine &machine) {
  return sentUs(analysis::communicatedBytes(module), machine,
                fsdp::CompileOptions::of(module).reducesBlocks()) +
         optimizerUs(fsdp::describeModule(module), machine);
}

void writePrediction(ModuleOp module, ScheduleIR &ir) {
  schedule::Machine machine = fsdp::machineOf(module);
  Manifest manifest = fsdp::describeModule(module);
  CommunicationVolume volume = analysis::communicatedBytes(module);
  bool reducesBlocks = fsdp::CompileOptions::of(module).reducesBlocks();
  // Powers of two, which most jobs are, and --plan-ranks.
  std::set<int64_t> counts = {1, 2, 4, 8, 16, 32, 64, machine.ranks};
  SmallVector<double> microbatches, updates;
  for (int64_t ranks : counts) {
    machine.ranks = int(ranks);
    setDurations(ir, machine);
    microbatches.push_back(schedule::roundedUs(
        schedule::simulate(ir.problem, ir.schedule).stepUs));
    updates.push_back(
        schedule::roundedUs(sentUs(volume, machine, reducesBlocks) +
                            optimizerUs(manifest, machine)));
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
