// Checks of the machine against the program, and the initial values.
#include "runtime/core/startup.h"
#include "runtime/comm/reduce.h"
#include "runtime/core/dtype.h"
#include "runtime/core/progress.h"
#include "runtime/core/resources.h"

#include <algorithm>

namespace fsdpc {

std::string checkMachine(const Manifest &manifest, int ranks) {
  if (ranks > manifest.maxRanks)
    return std::to_string(ranks) + " ranks are more than the " +
           std::to_string(manifest.maxRanks) +
           " that the program was compiled for; compile with --max-ranks=" +
           std::to_string(ranks);
  auto lacking = lackingFeatures(manifest.cpuFeatures, readCpuInfo());
  if (lacking.empty())
    return "";
  std::string names;
  for (const std::string &name : lacking)
    names += (names.empty() ? "'" : ", '") + name + "'";
  return "this processor lacks " + names +
         ", which the program was compiled for (--cpu=" + manifest.cpu +
         "); compile with --cpu=native here, or --cpu=x86-64-v3";
}

std::string checkMemory(const MemoryPlan &plan, int64_t limit) {
  if (limit <= 0 || plan.total() <= limit)
    return "";
  auto kinds = plan.kinds();
  std::sort(kinds.begin(), kinds.end(),
            [](auto &a, auto &b) { return a.second > b.second; });
  std::string largest;
  for (size_t i = 0; i < 3; ++i)
    largest +=
        (i ? ", " : "") + kinds[i].first + " " + bytesText(kinds[i].second);
  return "a rank's peak of " + std::to_string(plan.total()) +
         " bytes is above --memory-limit, " + std::to_string(limit) +
         " bytes; the largest kinds are " + largest +
         "; run more ranks, or fewer threads";
}

bool loadShards(fsdpc_rank &rank, const Weights &weights, std::string &error) {
  const Manifest &manifest = rank.manifest;
  bool narrow = manifest.computeDtype == "bf16";
  for (size_t i = 0; i < manifest.layouts.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    LayoutBuffers &buffers = rank.layouts[i];
    int64_t first = rank.job.rank * buffers.shard;
    bool ok = true;
    forEachMember(layout, first, first + buffers.shard,
                  [&](size_t index, int64_t from, int64_t to) {
                    const Member &member = layout.members[index];
                    ok = ok && weights.readParameter(
                                   member, from - member.offset, to - from,
                                   buffers.masterShard + (from - first), error);
                  });
    if (!ok)
      return false;
    if (narrow && buffers.computeShard)
      castToWire(buffers.masterShard, WireType::f32, WireType::bf16,
                 buffers.shard, buffers.computeShard);
  }
  for (size_t i = 0; i < manifest.buffers.size(); ++i)
    if (!weights.readBuffer(manifest.buffers[i], rank.buffers[i], error))
      return false;
  return true;
}

void gatherWholes(fsdpc_rank &rank) {
  Communicator &channel = *rank.job.channel[gatherChannel];
  size_t computeBytes = size_t(dtypeBytes(rank.manifest.computeDtype));
  for (LayoutBuffers &buffers : rank.layouts) {
    size_t shard = size_t(buffers.shard);
    if (buffers.masterWhole)
      channel.allGather(buffers.masterShard, buffers.masterWhole, shard * 4);
    bool separate =
        static_cast<void *>(buffers.masterWhole) != buffers.computeWhole;
    if (buffers.computeWhole && separate)
      channel.allGather(buffers.computeShard, buffers.computeWhole,
                        shard * computeBytes);
  }
}

} // namespace fsdpc
