// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks what later code relies on in a manifest without looking, such as
// indices, members' ranges, and sizes whose products fit 64 bits. A damaged
// program is refused here, before it allocates anything.
#include "runtime/abi/manifest_checks.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/compressions.h"
#include "runtime/abi/member_sums.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/support/concat.h"

#include <cmath>
#include <initializer_list>
#include <utility>

namespace fsdpc {
namespace {

// Checks the sizes from which the memory plan is computed. The bounds are
// generous: they only keep the arithmetic of the memory plan from overflowing.
Status checkSizes(const Manifest &manifest) {
  for (auto &[name, size] :
       std::initializer_list<std::pair<const char *, int64_t>>{
           {"maxRanks", manifest.maxRanks},
           {"shardAlignment", manifest.shardAlignment},
           {"planRanks", manifest.planRanks},
           {"planThreads", manifest.planThreads}})
    // Shard sizes are divided by ranks and rounded up to the alignment, so
    // neither may be 0.
    if (size < 1 || size > int64_t(1) << 20)
      return inputError(concat("'", name, "' is ", size));
  for (auto &[name, size] :
       std::initializer_list<std::pair<const char *, int64_t>>{
           {"planRanksPerNode", manifest.planRanksPerNode},
           {"reshardTo", manifest.reshardTo},
           {"maxAccumulate", manifest.maxAccumulate},
           {"memoryLimit", manifest.memoryLimit},
           {"arenaBytes", manifest.arenaBytes},
           {"arenaGathered", manifest.arenaGathered},
           {"arenaGradients", manifest.arenaGradients},
           {"arenaActivations", manifest.arenaActivations},
           {"activationFileBytes", manifest.activationFileBytes},
           {"constantBytes", manifest.constantBytes},
           {"events", manifest.events},
           {"stackBytes", manifest.stackBytes}})
    if (size < 0 || size > mostElements)
      return inputError(concat("'", name, "' is ", size));
  for (const Output &output : manifest.outputs)
    if (elementsOf(output.shape, 1) < 0)
      return inputError("output '" + output.name +
                        "' has a shape that overflows");
  if (manifest.reshardTo > manifest.maxRanks)
    return inputError(
        concat("'reshardTo' is ", manifest.reshardTo, ", above 'maxRanks'"));
  for (const Buffer &buffer : manifest.buffers)
    if (elementsOf(buffer.shape, 0) < 0)
      return inputError("buffer '" + buffer.name +
                        "' has a shape that overflows");
  return {};
}

// Names the first plan of a table that has an impossible shape.
template <class Plan>
Status checkShapes(const char *table, const std::vector<Plan> &plans) {
  for (size_t i = 0; i < plans.size(); ++i)
    if (Status checked = checkShape(plans[i]); !checked)
      return checked.error().reworded(
          concat("'", table, "[", i, "]': ", checked.error().message));
  return {};
}

// Checks the plans of library calls.
Status checkPlans(const Manifest &manifest) {
  FSDPC_TRY(checkShapes("matmuls", manifest.matmuls));
  FSDPC_TRY(checkShapes("convolutions", manifest.convolutions));
  FSDPC_TRY(checkShapes("poolings", manifest.poolings));
  return checkShapes("attentions", manifest.attentions);
}

// FSDPC_STREAMS of the C ABI, which the compiler does not include.
constexpr int32_t streams = 3;

// Checks the indices of the trace's tables, which are used only at the end of a
// run.
Status checkCalls(const Manifest &manifest) {
  auto within = [](int64_t index, size_t count) {
    return index >= 0 && index < int64_t(count);
  };
  for (const CommandInfo &command : manifest.commands)
    for (int32_t layout : command.layouts)
      if (!within(layout, manifest.layouts.size()))
        return inputError(concat("command '", command.name, "' names layout ",
                                 layout, ", which does not exist"));
  for (const CallSequence &sequence : manifest.sequences) {
    if (!within(sequence.stream, size_t(streams)))
      return inputError(concat("'", sequence.entry, "' names stream ",
                               sequence.stream, ", but there are ", streams));
    for (const Call &call : sequence.calls)
      if (!within(call.command, manifest.commands.size()))
        return inputError(concat("'", sequence.entry, "' calls command ",
                                 call.command, ", which does not exist"));
  }
  return {};
}

// Later code compares with only one of the names, so it would silently take any
// other type for f32.
Status checkTypes(const Manifest &manifest) {
  bool reducesBlocks = blockTypeOf(manifest.reduceDtype) != BlockType::None;
  auto isFloat = [](const std::string &dtype) {
    return dtype == "f32" || dtype == "bf16" || dtype == "f16";
  };
  bool computes = isFloat(manifest.computeDtype);
  if (!computes || !(isFloat(manifest.reduceDtype) || reducesBlocks))
    return inputError(
        "'" + (computes ? manifest.reduceDtype : manifest.computeDtype) +
        "' is not a supported compute or reduce type; expected 'f32', "
        "'bf16' or 'f16', or to reduce in 'i8', 'f8e4m3' or 'i4'");
  return {};
}

// A gather in blocks leaves masters as they are, and rounds anew what lies
// elsewhere. A reduction in blocks is over all ranks, and owners exchange
// values in their types.
Status checkBlocks(const Manifest &manifest) {
  bool reduces = blockTypeOf(manifest.reduceDtype) != BlockType::None;
  bool sends = reduces;
  for (const Layout &layout : manifest.layouts) {
    bool gathers = !layout.wire.empty();
    sends |= gathers;
    BlockType wire = blockTypeOf(layout.wire);
    if (gathers && (wire == BlockType::None || wire == BlockType::I4 ||
                    layout.masterWhole || layout.noMaster || layout.owned))
      return inputError("layout '" + layout.name + "' cannot be gathered as '" +
                        layout.wire + "'");
    if (reduces && (layout.inGroups || layout.owned))
      return inputError("layout '" + layout.name + "' cannot be reduced as '" +
                        manifest.reduceDtype + "'");
  }
  // A block has elements of one rank only.
  if (sends && manifest.shardAlignment % blockElements != 0)
    return inputError(concat("'shardAlignment' is ", manifest.shardAlignment,
                             ", but ranks send blocks of ", blockElements,
                             " elements"));
  return {};
}

// Values travel in f32, and all ranks send together. An optimizer with
// replicated state reads the whole sum where the reduction leaves it.
Status checkResiduals(const Manifest &manifest) {
  for (const Layout &layout : manifest.layouts) {
    const Compression &compression = layout.compression;
    if (!compression)
      continue;
    const CompressionInfo *info = findCompression(compression.kind);
    bool fits =
        info && info->faultOf(compression.amount, layout.elements).empty();
    bool sums = layout.trainable && !layout.inGroups && !layout.owned &&
                manifest.reduceDtype == "f32" &&
                (!layout.stateWhole || layout.gradientWhole);
    if (!fits || !sums)
      return inputError(concat("layout '", layout.name,
                               "' cannot be reduced by '", compression.kind,
                               "' of ", compression.amount));
  }
  return {};
}

// Scratch memory is planned by what the optimizer takes of whole parameters.
Status checkOptimizer(const Layout &layout) {
  bool isNamed = !layout.stateNames.empty();
  if (isNamed && int32_t(layout.stateNames.size()) !=
                     layout.states - int32_t(layout.average))
    return inputError(concat("layout '", layout.name, "' has ", layout.states,
                             " states, but names ", layout.stateNames.size()));
  bool takes = layout.sums != 0 || layout.factored || layout.orthogonal;
  if (layout.sums < 0 || layout.sums > mostSums ||
      (layout.factored && layout.orthogonal) || (takes && !layout.trainable))
    return inputError("layout '" + layout.name +
                      "' has an optimizer that takes what none does");
  return {};
}

// Checks that what a layout keeps fits together.
Status checkLayout(const Manifest &manifest, const Layout &layout) {
  if (layout.states < int32_t(layout.average) || layout.states > mostStates)
    return inputError(
        concat("layout '", layout.name, "' has ", layout.states, " states"));
  if (layout.average && !layout.trainable)
    return inputError("layout '" + layout.name + "' is frozen with an average");
  if (layout.statesOffloaded && (!layout.trainable || layout.states == 0))
    return inputError("layout '" + layout.name +
                      "' has its states offloaded, but has none");
  if (layout.gradientOffloaded && !hasOwnGradient(manifest, layout))
    return inputError("layout '" + layout.name +
                      "' has its gradient offloaded, but no shard of it");
  bool isOnly = manifest.maxRanks == 1 && manifest.maxAccumulate == 1;
  if (layout.unsummed && (!isOnly || layout.gradientOffloaded ||
                          !hasOwnGradient(manifest, layout)))
    return inputError("layout '" + layout.name +
                      "' does not sum its gradients, but there may be several");
  if (layout.parametersOffloaded && !hasOwnParameters(manifest, layout))
    return inputError("layout '" + layout.name +
                      "' has its parameters offloaded, but no shard of them");
  if (layout.ofBytes && (layout.trainable || layout.noMaster || layout.owned ||
                         layout.keptF32 || !layout.wire.empty()))
    return inputError("layout '" + layout.name +
                      "' holds bytes, but is not gathered as they are");
  if (layout.noMaster && manifest.computeDtypeOf(layout) != "bf16")
    return inputError("layout '" + layout.name +
                      "' has no master, but does not compute in bf16");
  // An optimizer with replicated state updates replicated masters from
  // replicated gradients, or from one that is gathered for it in each step.
  bool operandsWhole = layout.masterWhole &&
                       (layout.gradientWhole || manifest.maxAccumulate == 1);
  if (layout.trainable && layout.stateWhole && !operandsWhole)
    return inputError(
        "layout '" + layout.name +
        "' keeps its state replicated, but not its master and gradient");
  if (layout.secondary && (layout.inGroups || layout.computeWhole))
    return inputError("layout '" + layout.name +
                      "' has a secondary shard, but is not cut over all ranks");
  // All ranks compute with an owned layout, and its owner alone updates it.
  if (layout.owned && (!layout.trainable || layout.inGroups ||
                       !layout.computeWhole || layout.stateWhole))
    return inputError(
        "layout '" + layout.name +
        "' has an owner, but is not kept whole for computing alone");
  if (layout.elements < 0 || layout.elements > mostElements)
    return inputError(concat("layout '", layout.name, "' has ", layout.elements,
                             " elements"));
  return {};
}

// Members are in ascending order without overlaps: `forEachMember` finds
// the first one of a range by binary search. The comparison with the
// difference cannot overflow, unlike one with the sum.
Status checkMembers(const Layout &layout) {
  int64_t end = 0;
  for (const Member &member : layout.members) {
    int64_t elements = elementsOf(member.shape, 0);
    int64_t width = layout.ofBytes ? dtypeBytes(member.dtype) : 1;
    if (width == 0 || layout.ofBytes == member.dtype.empty())
      return inputError("member '" + member.name + "' of layout '" +
                        layout.name + "' has the type '" + member.dtype + "'");
    if (member.offset < end || elements < 0 ||
        member.elements != elements * width || member.offset % width != 0 ||
        member.offset > layout.elements ||
        member.elements > layout.elements - member.offset)
      return inputError("member '" + member.name + "' is not within layout '" +
                        layout.name + "' after the previous member");
    end = member.offset + member.elements;
  }
  return {};
}

} // namespace

Status checkManifest(const Manifest &manifest) {
  if (manifest.version != Manifest().version)
    return inputError(concat("'version' is ", manifest.version, ", not ",
                             Manifest().version));
  FSDPC_TRY(checkSizes(manifest));
  FSDPC_TRY(checkCalls(manifest));
  FSDPC_TRY(checkPlans(manifest));
  FSDPC_TRY(checkTypes(manifest));
  const LossScale &scale = manifest.lossScale;
  if (scale.init < 0 || scale.growth <= 1 || scale.backoff <= 0 ||
      scale.backoff >= 1 || scale.interval < 0)
    return inputError("'lossScale' has a number out of its range");
  if (!(manifest.predivided > 0) || !std::isfinite(manifest.predivided))
    return inputError("'predivided' is not a number above 0");
  bool isSampled = true;
  for (const Input &input : manifest.inputs) {
    // Axis 0 is the batch. The code divides sample sizes and counts by extents,
    // so an extent must not be 0.
    if (elementsOf(input.shape, 1) < 0)
      return inputError("input '" + input.name +
                        "' has no elements, or too many of them");
    // An input without an axis has a value per step. Samples number the others,
    // of which there is at least one.
    if (input.shape.empty() ? &input == &manifest.inputs[0] : !isSampled)
      return inputError("input '" + input.name +
                        "' is not in its place: scalars come last");
    isSampled = !input.shape.empty();
  }
  FSDPC_TRY(checkBuckets(manifest));
  for (const Layout &layout : manifest.layouts) {
    FSDPC_TRY(checkLayout(manifest, layout));
    FSDPC_TRY(checkOptimizer(layout));
    FSDPC_TRY(checkMembers(layout));
  }
  FSDPC_TRY(checkBlocks(manifest));
  return checkResiduals(manifest);
}

} // namespace fsdpc
