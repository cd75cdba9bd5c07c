// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of the machine against the program, and loading of the initial values.
// Messages say what to run or compile instead, since the user who starts a
// program often did not compile it.
#include "runtime/train/startup.h"
#include "runtime/abi/compressions.h"
#include "runtime/core/resources.h"
#include "runtime/numeric/dtype.h"
#include "runtime/numeric/reduce.h"
#include "runtime/support/concat.h"
#include "runtime/support/spelling.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace fsdpc::runtime {

namespace {

// The first of several texts that is not the same on every rank, the first rank
// whose text differs from rank 0's, and both texts.
struct Difference {
  size_t index;
  int rank;
  std::string own, first;
};

// Exchanges the texts in a fixed size, because ranks of different programs
// share nothing else. Text beyond that size is not compared. All ranks get the
// same answer, since all compare everything.
std::optional<Difference> findDifference(const std::vector<std::string> &texts,
                                         Job &job) {
  constexpr size_t width = 64;
  std::vector<char> own(texts.size() * width);
  for (size_t i = 0; i < texts.size(); ++i)
    texts[i].copy(&own[i * width], width - 1);
  std::vector<char> all(own.size() * size_t(job.size));
  job.channel[controlChannel]->allGather(own.data(), all.data(), own.size());
  auto textOf = [&](int rank, size_t i) {
    return std::string(&all[size_t(rank) * own.size() + i * width]);
  };
  for (size_t i = 0; i < texts.size(); ++i)
    for (int rank = 1; rank < job.size; ++rank)
      if (textOf(rank, i) != textOf(0, i))
        return Difference{i, rank, textOf(rank, i), textOf(0, i)};
  return {};
}

// The shortest text that reads back as this number.
std::string exact(double number) {
  char text[32];
  char *end = std::to_chars(text, text + sizeof text, number).ptr;
  return std::string(text, end);
}

} // namespace

// If both hashes differ the program is what to look at, so its hash comes
// first.
Status comparePrograms(const Manifest &manifest, Job &job) {
  auto difference =
      findDifference({manifest.programHash, manifest.scheduleHash}, job);
  if (!difference)
    return {};
  std::string name = difference->index ? "schedule" : "program";
  return inputError(concat("rank ", difference->rank, " runs a different ",
                           name, " than rank 0: its ", name, " hash is '",
                           difference->own, "', rank 0's is '",
                           difference->first,
                           "'; start the same file on every rank"));
}

// A path counts only as given or not: --save makes all ranks take part in a
// collective, whatever the path is called on each node.
Result<std::vector<Fact>> factsOf(const Manifest &manifest,
                                  const Options &options,
                                  const Samples &samples,
                                  const Weights &weights, int groupRanks) {
  Result<std::string> init = weights.hashOfInit();
  FSDPC_TRY(init);
  Result<std::string> files = weights.hashOfFiles();
  FSDPC_TRY(files);
  const auto &rates = options.schedule.rates; // of a file, else none
  std::vector<Fact> facts = {
      {"--steps", std::to_string(options.steps)},
      {"--accumulate", std::to_string(options.accumulate)},
      {"--lr", exact(options.lr)},
      {"--lr-schedule", options.scheduleText},
      {"the hash of the rates of --lr-schedule",
       std::to_string(XXH64(rates.data(), rates.size() * sizeof rates[0], 0))},
      {"--seed", std::to_string(options.seed)},
      {"--shuffle", options.shuffle ? "on" : "off"},
      {"--split-at",
       options.splitAt < 0 ? "off" : std::to_string(options.splitAt)},
      {"--mix", options.mixText.empty() ? "off" : options.mixText},
      {"--save-gradients", options.saveGradients.empty() ? "off" : "on"},
      {"--save", options.save.empty() ? "off" : "on"},
      {"--save-ema", options.saveEma.empty() ? "off" : "on"},
      {"--save-trained", options.saveTrained ? "on" : "off"},
      {"--deterministic", options.device.deterministic ? "on" : "off"},
      {"--reduce-order", options.reduceOrder},
      {"the hash of the values of --init", *init},
      {"the hash of the values of the model's files", *files},
      {"the number of samples", std::to_string(samples.count())}};
  for (size_t i = 0; i < manifest.inputs.size(); ++i) {
    Result<uint64_t> hash = samples.hashOf(i);
    FSDPC_TRY(hash);
    facts.push_back(
        {"the hash of the samples of input '" + manifest.inputs[i].name + "'",
         std::to_string(*hash)});
  }
  if (usesGroups(manifest))
    facts.push_back({"--shard-group", std::to_string(groupRanks)});
  return facts;
}

// The exchange comes before any early return, so that ranks with other flags do
// not wait for each other; compareFacts finds the difference later.
Result<int> chooseGroup(const Manifest &manifest, const Options &options,
                        Job &job) {
  if (!usesGroups(manifest))
    return job.size;
  std::vector<int> all(size_t(job.size));
  job.channel[controlChannel]->allGather(&job.ranksOnNode, all.data(),
                                         sizeof(int));
  if (options.shardGroup)
    return options.shardGroup;
  if (manifest.reshardTo)
    return int(manifest.reshardTo);
  auto [least, most] = std::minmax_element(all.begin(), all.end());
  if (*least == *most && job.size % *least == 0)
    return *least;
  return commandLineError(concat(
      "the nodes have from ", *least, " to ", *most, " of the ", job.size,
      " ranks, so they do not form equal shard groups; say how "
      "many ranks share a layout with --shard-group"));
}

// Only the first 63 characters of a longer value are compared.
Status compareFacts(const std::vector<Fact> &facts, Job &job) {
  std::vector<std::string> values;
  for (const Fact &fact : facts)
    values.push_back(fact.value);
  auto difference = findDifference(values, job);
  if (!difference)
    return {};
  return inputError(
      concat(facts[difference->index].name, " is '", difference->own,
             "' on rank ", difference->rank, " and '", difference->first,
             "' on rank 0; start every rank with the same options and files"));
}

// Without the check of the features the program would end by SIGILL, in the
// middle of a step and without a message.
Status checkMachine(const Manifest &manifest, int ranks) {
  // The arena has room for the padding of at most so many shards.
  if (ranks > manifest.maxRanks)
    return commandLineError(concat(
        ranks, " ranks exceed the maximum of ", manifest.maxRanks,
        " that the program was compiled for; compile it with --max-ranks=",
        ranks));
  auto lacking = lackingFeatures(manifest.cpuFeatures);
  if (lacking.empty())
    return {};
  std::string names;
  bool needsLess = true;
  for (const std::string &name : lacking) {
    names += (names.empty() ? "'" : ", '") + name + "'";
    // x86-64-v3, the least that kernels are compiled for, has all others.
    needsLess = needsLess && name.rfind("avx512", 0) == 0;
  }
  return inputError(
      "this processor does not support " + names +
      ", which the program requires (compiled with --cpu=" + manifest.cpu +
      "); " +
      (needsLess ? "compile it with --cpu=native on this machine, or with "
                   "--cpu=x86-64-v3"
                 : "use another machine, since all programs need AVX2, or "
                   "show a virtual machine its host's processor (qemu -cpu "
                   "host)"));
}

// A program for one microbatch per step has no memory in which ddp could add up
// gradients.
Status checkAccumulate(const Manifest &manifest, int64_t accumulate) {
  int64_t most = manifest.maxAccumulate;
  if (most == 0 || accumulate <= most)
    return {};
  return commandLineError(
      concat("--accumulate '", accumulate, "' exceeds the maximum of ", most,
             " that the program was compiled for; compile it with "
             "--max-accumulate=",
             accumulate, ", or without the flag"));
}

// Checked again at run time, since the compiler knew neither the number of
// ranks nor that of threads.
Status checkMemory(const MemoryPlan &plan, int64_t limit) {
  if (limit <= 0 || plan.total() <= limit)
    return {};
  auto kinds = plan.kinds();
  std::sort(kinds.begin(), kinds.end(),
            [](auto &a, auto &b) { return a.second > b.second; });
  std::string largest;
  for (size_t i = 0; i < 3; ++i)
    largest +=
        (i ? ", " : "") + kinds[i].first + " " + bytesText(kinds[i].second);
  return inputError(concat("planned peak of ", plan.total(),
                           " bytes per rank exceeds --memory-limit of ", limit,
                           " bytes; largest: ", largest,
                           "; use more ranks or fewer threads"));
}

namespace {

// Elements per copy to memory that the host cannot reach.
constexpr int64_t pieceElements = 1 << 20;

// Calls fill(memory, first, count) for the elements [0, count) of `to`, in
// pieces. `memory` is the device's own if the host can write there; otherwise
// each piece is uploaded after the call. Stops at the first error of `fill`.
template <typename T, typename Fill>
Status fillDevice(Device &device, T *to, int64_t count, Fill fill) {
  if (device.isHostMemory())
    return fill(to, int64_t(0), count);
  std::vector<T> piece(size_t(std::min(count, pieceElements)));
  for (int64_t first = 0; first < count; first += pieceElements) {
    int64_t length = std::min(pieceElements, count - first);
    FSDPC_TRY(fill(piece.data(), first, length));
    device.upload(to + first, piece.data(), size_t(length) * sizeof(T));
  }
  return {};
}

// Casts this rank's shard of masters to the compute copy.
Status castShard(Device &device, const LayoutBuffers &buffers, WireType type) {
  // Only 16-bit types need a cast; with f32 the master is the compute copy.
  auto *copy = reinterpret_cast<uint16_t *>(buffers.computeShard);
  std::vector<float> masters;
  return fillDevice(device, copy, buffers.shard,
                    [&](uint16_t *to, int64_t first, int64_t count) -> Status {
                      const float *from = buffers.masterShard + first;
                      if (!device.isHostMemory()) {
                        masters.resize(size_t(count));
                        device.download(masters.data(), from,
                                        size_t(count) * sizeof(float));
                        from = masters.data();
                      }
                      castToWire(from, WireType::f32, type, count, to);
                      return {};
                    });
}

// Reads part of a layout that has no master in memory, in pieces, so that no
// f32 copy of the shard ever exists.
template <typename Read>
Status loadCompute(Device &device, uint16_t *to, int64_t count, WireType type,
                   Read read) {
  std::vector<float> values;
  auto fill = [&](uint16_t *into, int64_t first, int64_t most) -> Status {
    for (int64_t done = 0; done < most; done += pieceElements) {
      int64_t length = std::min(pieceElements, most - done);
      values.resize(size_t(length));
      FSDPC_TRY(read(values.data(), first + done, length));
      castToWire(values.data(), WireType::f32, type, length, into + done);
    }
    return {};
  };
  return fillDevice(device, to, count, fill);
}

// Writes `count` values, which `read` returns in f32, to the file of what is
// offloaded: write(piece, first, elements) for each piece.
template <typename Read, typename Write>
Status loadFile(int64_t count, Read read, Write write) {
  std::vector<float> piece(size_t(std::min(count, pieceElements)));
  for (int64_t done = 0; done < count; done += pieceElements) {
    int64_t length = std::min(pieceElements, count - done);
    FSDPC_TRY(read(piece.data(), done, length));
    FSDPC_TRY(write(piece.data(), done, length));
  }
  return {};
}

// Sets `count` parameters of this rank in that file from `begin` on.
template <typename Read>
Status loadParameters(fsdpc_rank &rank, size_t layout, int64_t begin,
                      int64_t count, Read read) {
  WireType type = offloadedTypeOf(rank, int32_t(layout));
  return loadFile(
      count, read, [&](float *values, int64_t first, int64_t length) {
        std::vector<uint16_t> narrow;
        const void *from = values;
        if (type != WireType::f32) {
          narrow.resize(size_t(length));
          castToWire(values, WireType::f32, type, length, narrow.data());
          from = narrow.data();
        }
        return rank.shardFile->writeParameters(layout, begin + first, length,
                                               from);
      });
}

// Reads this rank's shard of a layout of bytes, in pieces where it lies in the
// file of what is offloaded.
Status loadBytes(fsdpc_rank &rank, size_t index, const ValueSource &source) {
  const Layout &layout = rank.manifest.layouts[index];
  const LayoutBuffers &buffers = rank.layouts[index];
  int64_t first = buffers.shardOf(rank.job.rank);
  return forEachMember(
      layout, first, first + buffers.shard,
      [&](size_t number, int64_t from, int64_t to) -> Status {
        const Member &member = layout.members[number];
        if (source.keeps(member))
          return {};
        auto read = [&](char *values, int64_t at, int64_t count) {
          return source.bytes(member, from - member.offset + at, count, values);
        };
        if (!rank.isInFile(layout.parametersOffloaded))
          return fillDevice(*rank.device, buffers.computeShard + (from - first),
                            to - from, read);
        std::vector<char> piece(size_t(std::min(to - from, pieceElements)));
        for (int64_t at = 0; at < to - from; at += pieceElements) {
          int64_t count = std::min(pieceElements, to - from - at);
          FSDPC_TRY(read(piece.data(), at, count));
          FSDPC_TRY(rank.shardFile->writeParameters(index, from - first + at,
                                                    count, piece.data()));
        }
        return {};
      });
}

} // namespace

// Reads only this rank's elements: start-up time falls with the number of
// ranks.
Status loadShards(fsdpc_rank &rank, const ValueSource &source) {
  const Manifest &manifest = rank.manifest;
  Device &device = *rank.device;
  for (size_t i = 0; i < manifest.layouts.size(); ++i) {
    const Layout &layout = manifest.layouts[i];
    if (layout.ofBytes) {
      FSDPC_TRY(loadBytes(rank, i, source));
      continue;
    }
    WireType compute = computeTypeOf(rank, int32_t(i));
    LayoutBuffers &buffers = rank.layouts[i];
    // The first element of this rank's shard in the layout.
    int64_t first = buffers.shardOf(rank.job.rank);
    // Only the members' elements are read; gaps and padding stay zero.
    FSDPC_TRY(forEachMember(
        layout, first, first + buffers.shard,
        [&](size_t index, int64_t from, int64_t to) {
          const Member &member = layout.members[index];
          if (source.keeps(member))
            return Status();
          // `at` counts from the part of the member that lies in this shard.
          auto read = [&](float *values, int64_t at, int64_t count) {
            return source.parameter(member, from - member.offset + at, count,
                                    values);
          };
          if (rank.isInFile(layout.parametersOffloaded))
            return loadParameters(rank, i, from - first, to - from, read);
          if (buffers.masterShard)
            return fillDevice(device, buffers.masterShard + (from - first),
                              to - from, read);
          auto *copy = reinterpret_cast<uint16_t *>(buffers.computeShard);
          return loadCompute(device, copy + (from - first), to - from, compute,
                             read);
        }));
    if (compute == WireType::f32 || !buffers.computeShard || !buffers.shard)
      continue;
    if (rank.isInFile(layout.parametersOffloaded))
      FSDPC_TRY(loadCompute(
          device, reinterpret_cast<uint16_t *>(buffers.computeShard),
          buffers.shard, compute,
          [&](float *values, int64_t at, int64_t count) {
            return rank.shardFile->readParameters(i, at, count, values);
          }));
    else if (buffers.masterShard)
      FSDPC_TRY(castShard(device, buffers, compute));
  }
  // Buffers are small, so they are uploaded whole, with their alignment.
  std::vector<char> value;
  for (size_t i = 0; i < manifest.buffers.size(); ++i) {
    value.resize(size_t(bufferBytes(manifest.buffers[i])));
    FSDPC_TRY(source.buffer(manifest.buffers[i], value.data()));
    device.upload(rank.buffers[i], value.data(), value.size());
  }
  return {};
}

// Replicated states are read whole by every rank. Gaps and padding stay zero.
// A member without a state in the checkpoint begins as in a run of its own.
Status loadStates(fsdpc_rank &rank, const TrainingCheckpoint &checkpoint) {
  const TrainingState &state = checkpoint.manifest().state;
  int64_t updates = state.step - state.scaler.skips;
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const Layout &layout = rank.manifest.layouts[i];
    LayoutBuffers &buffers = rank.layouts[i];
    for (size_t m = 0; layout.trainable && m < layout.members.size(); ++m)
      buffers.since[m] =
          checkpoint.since(layout, layout.members[m]).value_or(updates);
    int64_t begin = buffers.partBegin, end = begin + buffers.part;
    for (int32_t state = 0; layout.trainable && state < layout.states; ++state)
      FSDPC_TRY(forEachMember(
          layout, begin, end, [&](size_t index, int64_t from, int64_t to) {
            const Member &member = layout.members[index];
            auto read = [&](float *values, int64_t at, int64_t count) {
              int64_t begin = from - member.offset + at;
              return layout.average && state == layout.states - 1
                         ? checkpoint.readAverage(member, begin, count, values)
                         : checkpoint.readState(
                               member,
                               checkpoint.stateOf(layout, member, state), begin,
                               count, values);
            };
            if (rank.isInFile(layout.statesOffloaded))
              return loadFile(to - from, read,
                              [&](float *values, int64_t at, int64_t count) {
                                return rank.shardFile->writeStates(
                                    i, state, from - begin + at, count, values);
                              });
            float *part = buffers.states + state * buffers.part;
            return fillDevice(*rank.device, part + (from - begin), to - from,
                              read);
          }));
  }
  return {};
}

// A rank's residual covers the whole layout. States of compressions are equal
// on all ranks.
Status loadResiduals(fsdpc_rank &rank, const TrainingCheckpoint &checkpoint) {
  for (size_t i = 0; i < rank.layouts.size(); ++i) {
    const Layout &layout = rank.manifest.layouts[i];
    const LayoutBuffers &buffers = rank.layouts[i];
    const Compression &compression = layout.compression;
    float *state = buffers.compression;
    for (const Member &member : layout.members) {
      if (buffers.residual)
        FSDPC_TRY(fillDevice(
            *rank.device, buffers.residual + member.offset, member.elements,
            [&](float *values, int64_t at, int64_t count) {
              return checkpoint.readResidual(member, rank.job.rank,
                                             rank.job.size, at, count, values);
            }));
      if (!state)
        continue;
      int64_t elements =
          infoOf(compression).stateElements(compression.amount, member.shape);
      FSDPC_TRY(fillDevice(*rank.device, state, elements,
                           [&](float *values, int64_t at, int64_t count) {
                             return checkpoint.readCompressionState(
                                 member, compression, at, count, values);
                           }));
      state += elements;
    }
  }
  return {};
}

} // namespace fsdpc::runtime
