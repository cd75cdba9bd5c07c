// The C ABI's functions that a microbatch calls: streams, memory, compute and
// collectives. Each only enqueues; what it is given by pointer to a list is
// copied, because the list is gone when the work runs.
#include "runtime/core/rank.h"
#include "runtime/comm/failure.h"
#include "runtime/comm/reduce.h"
#include "runtime/core/dtype.h"

#include <cstring>

using namespace fsdpc;

namespace {

WireType wireType(const std::string &dtype) {
  return dtype == "bf16" ? WireType::bf16 : WireType::f32;
}

std::vector<int32_t> listOf(int32_t count, const int32_t *values) {
  return std::vector<int32_t>(values, values + count);
}

Communicator &reduceChannelOf(fsdpc_rank &rank) {
  return *rank.job.channel[reduceChannel];
}

} // namespace

void fsdpc_event_record(fsdpc_rank *rank, int32_t stream, int32_t event) {
  rank->device->record(stream, event);
}

void fsdpc_event_wait(fsdpc_rank *rank, int32_t stream, int32_t event) {
  rank->device->wait(stream, event);
}

void *fsdpc_pointer(fsdpc_rank *rank, int32_t space, int32_t index,
                    int64_t offset) {
  auto at = [offset](const void *base) -> void * {
    return static_cast<char *>(const_cast<void *>(base)) + offset;
  };
  size_t slot = size_t(rank->slot);
  switch (space) {
  case FSDPC_SPACE_ARENA:
    return at(rank->arena);
  case FSDPC_SPACE_INPUT:
    return at(rank->inputs[slot][size_t(index)]);
  case FSDPC_SPACE_CONSTANT:
    return at(rank->program.constants);
  case FSDPC_SPACE_BUFFER:
    return at(rank->buffers[size_t(index)]);
  case FSDPC_SPACE_WHOLE:
    return at(rank->layouts[size_t(index)].computeWhole);
  case FSDPC_SPACE_RANDOM:
    return at(rank->random[slot].data());
  }
  fail("the program asks for memory space " + std::to_string(space) +
       ", which does not exist");
}

void fsdpc_launch(fsdpc_rank *rank, fsdpc_kernel kernel, int64_t extent,
                  int64_t grain, void *const *buffers, int32_t count) {
  rank->device->launch(kernel, extent, grain, buffers, count);
}

void fsdpc_matmul(fsdpc_rank *rank, int32_t plan, const void *a, const void *b,
                  void *c) {
  rank->device->matmul(plan, a, b, c);
}

void fsdpc_convolution(fsdpc_rank *rank, int32_t plan, const void *x,
                       const void *w, void *y) {
  rank->device->convolution(plan, x, w, y);
}

void fsdpc_pooling(fsdpc_rank *rank, int32_t plan, const void *source,
                   void *destination, void *workspace) {
  rank->device->pooling(plan, source, destination, workspace);
}

void fsdpc_attention(fsdpc_rank *rank, int32_t plan, fsdpc_kernel rows,
                     const void *query, const void *key, const void *value,
                     const void *mask, void *output, void *lse) {
  const void *operands[] = {query, key, value, mask, output, lse};
  rank->device->attention(plan, rows, operands, 6);
}

void fsdpc_attention_grad(fsdpc_rank *rank, int32_t plan, fsdpc_kernel rows,
                          const void *grad, const void *query, const void *key,
                          const void *value, const void *output,
                          const void *lse, const void *mask, void *dquery,
                          void *dkey, void *dvalue) {
  const void *operands[] = {grad, query, key,    value, output,
                            lse,  mask,  dquery, dkey,  dvalue};
  rank->device->attention(plan, rows, operands, 10);
}

void fsdpc_poison(fsdpc_rank *rank, void *memory, int64_t bytes) {
  rank->device->run(FSDPC_STREAM_COMPUTE,
                    [=] { std::memset(memory, 0xff, size_t(bytes)); });
}

void fsdpc_report_loss(fsdpc_rank *rank, const void *loss, const void *valid) {
  size_t k = size_t(rank->microbatch);
  rank->device->run(FSDPC_STREAM_COMPUTE, [=] {
    rank->losses[k] = *static_cast<const float *>(loss);
    rank->valid[k] = valid ? *static_cast<const float *>(valid) : 1;
  });
}

void fsdpc_all_gather(fsdpc_rank *rank, int32_t count, const int32_t *layouts,
                      void *const *destinations) {
  std::vector<void *> to(destinations, destinations + count);
  rank->device->run(FSDPC_STREAM_GATHER, [rank, list = listOf(count, layouts),
                                          to] {
    WireType type = wireType(rank->manifest.computeDtype);
    for (size_t i = 0; i < list.size(); ++i) {
      const LayoutBuffers &layout = rank->layouts[size_t(list[i])];
      size_t bytes = size_t(layout.shard) * wireBytes(type);
      char *own = layout.computeShard;
      if (!own) {
        own = static_cast<char *>(to[i]) + size_t(rank->job.rank) * bytes;
        castToWire(layout.masterShard, WireType::f32, type, layout.shard, own);
      }
      rank->job.channel[gatherChannel]->allGather(own, to[i], bytes);
    }
  });
}

void fsdpc_reduce_scatter(fsdpc_rank *rank, int32_t count,
                          const int32_t *layouts, void *const *gradients) {
  std::vector<const void *> from(gradients, gradients + count);
  bool add = rank->microbatch > 0;
  rank->device->run(
      FSDPC_STREAM_REDUCE, [rank, list = listOf(count, layouts), from, add] {
        for (size_t i = 0; i < list.size(); ++i) {
          const LayoutBuffers &layout = rank->layouts[size_t(list[i])];
          reduceChannelOf(*rank).reduceScatter(
              {from[i], wireType(rank->manifest.computeDtype),
               wireType(rank->manifest.reduceDtype),
               rank->manifest.layouts[size_t(list[i])].elements, layout.shard,
               layout.gradientShard, add});
        }
      });
}

void fsdpc_accumulate(fsdpc_rank *rank, int32_t index, const void *gradient) {
  float *to = rank->layouts[size_t(index)].gradientWhole;
  int64_t elements = rank->manifest.layouts[size_t(index)].elements;
  bool add = rank->microbatch > 0;
  bool narrow = rank->manifest.computeDtype == "bf16";
  rank->device->run(FSDPC_STREAM_COMPUTE, [=] {
    rank->device->parallelFor(
        elements, 1 << 16, [=](int64_t begin, int64_t end) {
          auto *bits = static_cast<const uint16_t *>(gradient);
          auto *floats = static_cast<const float *>(gradient);
          for (int64_t i = begin; i < end; ++i) {
            float value = narrow ? fromBf16(bits[i]) : floats[i];
            to[i] = add ? to[i] + value : value;
          }
        });
  });
}

void fsdpc_reduce_gradients(fsdpc_rank *rank, int32_t count,
                            const int32_t *layouts) {
  rank->device->run(FSDPC_STREAM_REDUCE, [rank, list = listOf(count, layouts)] {
    for (int32_t index : list) {
      const LayoutBuffers &layout = rank->layouts[size_t(index)];
      reduceChannelOf(*rank).reduceScatter(
          {layout.gradientWhole, WireType::f32,
           wireType(rank->manifest.reduceDtype),
           rank->manifest.layouts[size_t(index)].elements, layout.shard,
           layout.gradientShard, false});
    }
  });
}

void fsdpc_gather_gradients(fsdpc_rank *rank, int32_t count,
                            const int32_t *layouts) {
  rank->device->run(FSDPC_STREAM_GATHER, [rank, list = listOf(count, layouts)] {
    for (int32_t index : list) {
      const LayoutBuffers &layout = rank->layouts[size_t(index)];
      rank->job.channel[gatherChannel]->allGather(
          layout.gradientShard, layout.gradientWhole,
          size_t(layout.shard) * sizeof(float));
    }
  });
}

void fsdpc_update_statistics(fsdpc_rank *rank, int32_t index,
                             const void *statistic, double momentum) {
  auto *buffer = static_cast<float *>(rank->buffers[size_t(index)]);
  size_t elements = 1;
  for (int64_t extent : rank->manifest.buffers[size_t(index)].shape)
    elements *= size_t(extent);
  rank->device->run(FSDPC_STREAM_REDUCE, [=] {
    reduceChannelOf(*rank).allGather(statistic, rank->statistics,
                                     elements * sizeof(float));
    for (int from = 0; from < rank->job.size; ++from) {
      const float *other = rank->statistics + size_t(from) * elements;
      for (size_t i = 0; i < elements; ++i)
        buffer[i] =
            float((1 - momentum) * buffer[i] + momentum * double(other[i]));
    }
  });
}
