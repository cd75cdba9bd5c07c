// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions of the CUDA device that send less than the gradient and keep the
// rest in a residual, with the bits of the host (runtime/comm/top_k.cpp,
// power_sgd.cpp and one_bit.cpp). All of a layout's members take their turns on
// one stream.
#include "runtime/abi/compressions.h"
#include "runtime/cuda/device.h"
#include "runtime/numeric/init_values.h"
#include "runtime/numeric/reduce.h"

namespace fsdpc::runtime {

// Where a layout's state is replicated, every rank takes the whole sum.
SumPart CudaDevice::sumPartOf(const fsdpc_rank &rank, int32_t index) const {
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  if (rank.manifest.layouts[size_t(index)].stateWhole)
    return {buffers.gradientWhole, 0, buffers.whole};
  return {buffers.gradientShard, buffers.shardOf(rank.job.rank), buffers.shard};
}

// Overwrites `to` with a member's gradient, in f32, or adds it.
void CudaDevice::addMember(const Member &member, const void *gradient,
                           WireType type, bool add, float *to) {
  AddValues values;
  values.from = static_cast<const char *>(gradient) +
                size_t(member.offset) * elementBytes(type);
  values.type = type;
  values.to = to, values.elements = member.elements;
  values.add = add;
  context.launch(values, member.elements, FSDPC_STREAM_REDUCE);
}

// Sums rank by rank, so that no bit depends on which part of the sum a rank
// takes.
template <>
void CudaDevice::reduceAs<TopK>(fsdpc_rank &rank, int32_t index,
                                const void *gradient, WireType type, bool add) {
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  int64_t count = layout.compression.amount;
  float *residual = rank.layouts[size_t(index)].residual;
  for (const Member &member : layout.members)
    addMember(member, gradient, type, /*add=*/true, residual + member.offset);
  auto *exchanged = reinterpret_cast<ChosenElement *>(rank.compressed);
  ChosenElement *own = exchanged + rank.job.rank * count;
  selection.use(compressionMemory, layout.elements);
  selection.take(residual, layout.elements, count, own);
  if (!isAlone())
    channel(reduceChannel)
        .allGather(own, exchanged, size_t(chosenBytes(count)));
  SumPart part = sumPartOf(rank, index);
  if (!add)
    context.fill(part.sum, 0, size_t(part.elements) * sizeof(float),
                 FSDPC_STREAM_REDUCE);
  for (int peer = 0; peer < rank.job.size; ++peer) {
    AddChosen sum;
    sum.chosen = exchanged + peer * count, sum.count = count;
    sum.sum = part.sum;
    sum.begin = part.begin, sum.elements = part.elements;
    context.launch(sum, sum.count, FSDPC_STREAM_REDUCE);
  }
}

// As the host draws them when it begins.
Status CudaDevice::uploadFirstStates() {
  for (const Layout &layout : context.manifest.layouts) {
    const CompressionInfo *info = findCompression(layout.compression.kind);
    std::vector<float> all; // empty for a layout without states
    if (info && info->state)
      for (const Member &member : layout.members) {
        size_t begin = all.size();
        int64_t elements =
            info->stateElements(layout.compression.amount, member.shape);
        all.resize(begin + size_t(elements));
        applyInitRule({InitRule::normal, {0, 1}}, member.name,
                      info->state->seed, 0, elements, all.data() + begin);
      }
    firstStates.push_back(nullptr);
    FSDPC_TRY(memory.uploadTable(all, firstStates.back()));
  }
  return {};
}

// Sums over the ranks, in place.
void CudaDevice::sumOverRanks(float *values, int64_t elements) {
  if (isAlone())
    return;
  int64_t part = powerPart(elements, context.job.size);
  DeviceReduction reduction;
  reduction.whole = values;
  reduction.shardElements = part;
  reduction.shard = values + context.job.rank * part;
  channel(reduceChannel).reduceScatter(reduction);
  channel(reduceChannel)
      .allGather(reduction.shard, values, size_t(part) * sizeof(float));
}

namespace {

// A member with its factors. Of one that is not compressed `left` is its
// gradient, and the others are null.
struct MemberFactor {
  const Member &member;
  PowerShape shape;
  float *left = nullptr, *right = nullptr;
  const float *first = nullptr;
};

// Calls body(MemberFactor) for each member. Factors lie one after the other.
template <typename Body>
void forEachFactor(const Layout &layout, float *left, float *right,
                   const float *first, const Body &body) {
  int64_t rank = layout.compression.amount;
  for (const Member &member : layout.members) {
    PowerShape shape = powerShapeOf(member.shape);
    if (!shape.isCompressed(rank)) {
      body(MemberFactor{member, shape, left});
      left += member.elements;
      continue;
    }
    body(MemberFactor{member, shape, left, right, first});
    left += shape.rows * rank;
    right += shape.columns * rank;
    first += shape.columns * rank;
  }
}

} // namespace

void CudaDevice::orthonormalise(float *vectors, const float *first,
                                int64_t count, int64_t length) {
  Orthonormalise o;
  o.vectors = vectors, o.first = first;
  o.count = count, o.length = length;
  o.lanes = static_cast<double *>(compressionMemory);
  context.launchBlocks(o, 1, FSDPC_STREAM_REDUCE);
}

template <>
void CudaDevice::reduceAs<PowerSgd>(fsdpc_rank &rank, int32_t index,
                                    const void *gradient, WireType type,
                                    bool add) {
  constexpr int stream = FSDPC_STREAM_REDUCE;
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  const LayoutBuffers &buffers = rank.layouts[size_t(index)];
  int64_t vectors = layout.compression.amount;
  auto *left = reinterpret_cast<float *>(rank.compressed);
  float *right = buffers.compression;
  PowerSizes sizes;
  for (const Member &member : layout.members)
    sizes.add(powerShapeOf(member.shape), vectors);
  auto forEach = [&](const auto &body) {
    forEachFactor(layout, left, right, firstStates[size_t(index)], body);
  };
  forEach([&](const MemberFactor &f) {
    float *matrix = buffers.residual + f.member.offset;
    addMember(f.member, gradient, type, f.right != nullptr,
              f.right ? matrix : f.left);
    if (!f.right)
      return;
    orthonormalise(f.right, f.first, vectors, f.shape.columns);
    context.launch(MultiplyRight{matrix, f.right, f.shape, vectors, f.left},
                   f.shape.rows * vectors, stream);
  });
  // Padding behind the factors may hold those of another layout.
  int64_t padded = powerBytes(sizes.left, rank.job.size);
  context.fill(left + sizes.left, 0, size_t(padded - 4 * sizes.left), stream);
  sumOverRanks(left, sizes.left);
  forEach([&](const MemberFactor &f) {
    if (!f.right)
      return;
    orthonormalise(f.left, nullptr, vectors, f.shape.rows);
    context.launch(MultiplyLeft{buffers.residual + f.member.offset, f.left,
                                f.shape, vectors, f.right},
                   f.shape.columns * vectors, stream);
  });
  sumOverRanks(right, sizes.right);
  SumPart part = sumPartOf(rank, index);
  if (!add)
    context.fill(part.sum, 0, size_t(part.elements) * sizeof(float), stream);
  forEach([&](const MemberFactor &f) {
    if (f.right)
      context.launch(SpreadFactors{f.left, f.right, f.shape, vectors,
                                   buffers.residual + f.member.offset,
                                   1 / float(rank.job.size), f.member.offset,
                                   part.sum, part.begin, part.elements},
                     f.member.elements, stream);
    else
      addPart(part, f.left, f.member);
  });
}

// Adds a member's values to the elements of the sum that this rank takes.
void CudaDevice::addPart(const SumPart &part, const float *values,
                         const Member &member) {
  int64_t first = std::max(member.offset, part.begin);
  int64_t last =
      std::min(member.offset + member.elements, part.begin + part.elements);
  if (first >= last)
    return;
  AddValues sum;
  sum.from = values + (first - member.offset);
  sum.to = part.sum + (first - part.begin);
  sum.elements = last - first;
  context.launch(sum, sum.elements, FSDPC_STREAM_REDUCE);
}

// A thread reads its element of all ranks, so members take one kernel for the
// sum.
template <>
void CudaDevice::reduceAs<OneBit>(fsdpc_rank &rank, int32_t index,
                                  const void *gradient, WireType type,
                                  bool add) {
  constexpr int stream = FSDPC_STREAM_REDUCE;
  const Layout &layout = rank.manifest.layouts[size_t(index)];
  SignBlocks shape = {layout.compression.amount};
  int64_t signWords = SignBlocks::signWords(shape.block), stride = 0;
  for (const Member &member : layout.members)
    stride += shape.words(member.elements);
  auto *exchanged = reinterpret_cast<uint32_t *>(rank.compressed);
  uint32_t *own = exchanged + rank.job.rank * stride;
  auto *sums = static_cast<double *>(compressionMemory);
  uint32_t *words = own;
  for (const Member &member : layout.members) {
    int64_t elements = member.elements, blocks = shape.blocks(elements);
    float *values = rank.layouts[size_t(index)].residual + member.offset;
    addMember(member, gradient, type, /*add=*/true, values);
    context.launch(SendSigns{values, elements, shape.block, blocks, signWords,
                             words, sums},
                   blocks * signWords, stream);
    context.launch(
        SendScales{elements, shape.block, blocks, signWords, sums, words},
        blocks, stream);
    context.launch(AddSigns{words, shape.block, signWords, stride, 1, 0,
                            elements, /*negated=*/true, values},
                   elements, stream);
    words += shape.words(elements);
  }
  if (!isAlone())
    channel(reduceChannel)
        .allGather(own, exchanged, size_t(stride) * sizeof(uint32_t));
  SumPart part = sumPartOf(rank, index);
  if (!add)
    context.fill(part.sum, 0, size_t(part.elements) * sizeof(float), stream);
  words = exchanged;
  for (const Member &member : layout.members) {
    int64_t first = std::max(member.offset, part.begin);
    int64_t last =
        std::min(member.offset + member.elements, part.begin + part.elements);
    if (first < last)
      context.launch(AddSigns{words, shape.block, signWords, stride,
                              rank.job.size, first - member.offset,
                              last - first, /*negated=*/false,
                              part.sum + (first - part.begin)},
                     last - first, stream);
    words += shape.words(member.elements);
  }
}

// The manifest has been checked, so one of the kinds is meant.
void CudaDevice::reduceCompressed(fsdpc_rank &rank, int32_t index,
                                  const void *gradient, WireType type,
                                  bool add) {
  const CompressionInfo *info =
      &infoOf(rank.manifest.layouts[size_t(index)].compression);
#define FSDPC_COMPRESSION(Kind)                                                \
  if (info == &infoOf<Kind>())                                                 \
    return reduceAs<Kind>(rank, index, gradient, type, add);
  FSDPC_COMPRESSIONS(FSDPC_COMPRESSION)
#undef FSDPC_COMPRESSION
}

} // namespace fsdpc::runtime
