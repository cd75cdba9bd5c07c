// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures the limits of a program's steps on this machine: how long each of
// its matrix products takes on its own, how fast a plain loop copies a given
// number of bytes, and how many exponentials per second a plain loop computes.
// A step is compared with the sum of these. Under mpirun all ranks measure at
// once, as they do in a step.
//
// usage: limits MANIFEST.json [COPY-BYTES…]        prints JSON
#include "runtime/abi/manifest.h"
#include "runtime/abi/memory_plan.h"
#include "runtime/comm/communicator.h"
#include "runtime/comm/launch_environment.h"
#include "runtime/host/host_device.h"
#include "runtime/numeric/each_processor.h"
#include "runtime/support/diagnostics.h"
#include "runtime/support/json_text.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <vector>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Odd, so that the median is one of the runs.
constexpr int repetitions = 7;
constexpr size_t poolBytes = size_t(256) << 20; // far beyond the caches

// Memory from the device, with huge pages like a program's. Parts are handed
// out in turn, so each was last touched long ago: operands come from memory
// rather than a cache, as weights and saved activations do.
class ColdMemory {
public:
  explicit ColdMemory(Device &device) : device(device) { grow(poolBytes); }
  ~ColdMemory() { device.release(base, size); }
  ColdMemory(const ColdMemory &) = delete;

  // Returns memory for one call's operands, aligned to a page. It stays valid
  // until more than the pool has been handed out.
  char *next(size_t bytes) {
    bytes = (bytes + 4095) / 4096 * 4096;
    if (bytes > size) {
      device.release(base, size);
      grow(bytes);
    }
    if (begin + bytes > size)
      begin = 0;
    char *memory = base + begin;
    begin += bytes;
    return memory;
  }

private:
  // Fills the pool with ordinary numbers: untouched pages would all be the one
  // page of zeros, and denormals slow down products.
  void grow(size_t bytes) {
    base = static_cast<char *>(device.allocate(bytes));
    if (!base) {
      std::fprintf(stderr, "error: no memory for %zu bytes\n", bytes);
      std::exit(1);
    }
    size = bytes;
    begin = 0;
    auto *floats = reinterpret_cast<float *>(base);
    for (size_t i = 0; i < size / sizeof(float); ++i)
      floats[i] = float(i % 251) / 251;
  }

  Device &device;
  char *base = nullptr;
  size_t size = 0, begin = 0;
};

// Returns the time of a clock, in ms.
double milliseconds(clockid_t clock) {
  timespec time;
  clock_gettime(clock, &time);
  return double(time.tv_sec) * 1e3 + double(time.tv_nsec) / 1e6;
}

// Returns the middle value, which a single interruption cannot move.
double median(std::vector<double> values) {
  auto middle = values.begin() + ptrdiff_t(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The time that a body takes: on the wall clock, and on a core.
struct Taken {
  double ms, coreMs;
};

// Times bodies on all ranks at once. `job` may be null: a single rank.
class Bench {
public:
  explicit Bench(Job *job) : job(job) {}

  // Times the median run. The result is the mean over ranks, which run at once.
  // Collective: every rank must time the same bodies in the same order.
  template <typename Body> Taken time(Body &&body) {
    body(); // warms code and tables
    std::vector<double> wall, core;
    // The barrier makes ranks compete for memory as they do in a step.
    for (int i = 0; i < repetitions; ++i) {
      if (job)
        job->channel[controlChannel]->barrier();
      double began = milliseconds(CLOCK_MONOTONIC);
      // All threads of the process, so more than the wall clock if the device
      // computes on several.
      double coreBegan = milliseconds(CLOCK_PROCESS_CPUTIME_ID);
      body();
      core.push_back(milliseconds(CLOCK_PROCESS_CPUTIME_ID) - coreBegan);
      wall.push_back(milliseconds(CLOCK_MONOTONIC) - began);
    }
    Taken own{median(wall), median(core)};
    if (!job)
      return own;
    std::vector<Taken> all(size_t(job->size));
    job->channel[controlChannel]->allGather(&own, all.data(), sizeof own);
    Taken mean{0, 0};
    for (const Taken &taken : all) {
      mean.ms += taken.ms / job->size;
      mean.coreMs += taken.coreMs / job->size;
    }
    return mean;
  }

private:
  Job *job;
};

nlohmann::json toJson(const Taken &taken) {
  return {{"ms", taken.ms}, {"core_ms", taken.coreMs}};
}

// The number of elements from the first to the last of a strided operand.
int64_t span(const std::vector<int64_t> &batch,
             const std::vector<int64_t> &strides, int64_t rows, int64_t ld) {
  int64_t elements = rows * ld;
  for (size_t i = 0; i < batch.size(); ++i)
    elements += (batch[i] - 1) * strides[i];
  return elements;
}

// Times `run(memory)` on memory that was last touched long ago, and on memory
// that it has just used.
template <typename Run>
nlohmann::json timeCall(Bench &bench, ColdMemory &memory, size_t plan,
                        size_t bytes, Run &&run) {
  Taken cold = bench.time([&] { run(memory.next(bytes)); });
  char *same = memory.next(bytes);
  Taken warm = bench.time([&] { run(same); });
  return {{"plan", plan}, {"cold", toJson(cold)}, {"warm", toJson(warm)}};
}

// The operands follow each other in the memory of one call.
nlohmann::json timeMatmuls(const Manifest &manifest, Device &device,
                           Bench &bench, ColdMemory &memory) {
  auto list = nlohmann::json::array();
  for (size_t plan = 0; plan < manifest.matmuls.size(); ++plan) {
    const MatmulPlan &p = manifest.matmuls[plan];
    // Sizes in bytes of the operands of one product.
    size_t a =
        size_t(span(p.batch, p.strideA, p.transposeA ? p.k : p.m, p.lda) *
               dtypeBytes(p.dtypeA));
    size_t b =
        size_t(span(p.batch, p.strideB, p.transposeB ? p.n : p.k, p.ldb) *
               dtypeBytes(p.dtypeB));
    size_t c =
        size_t(span(p.batch, p.strideC, p.m, p.ldc) * dtypeBytes(p.dtypeC));
    list.push_back(
        timeCall(bench, memory, plan, a + b + c, [&](char *operands) {
          device.matmul(int(plan), operands, operands + a, nullptr, nullptr,
                        nullptr, operands + a + b, nullptr);
          device.synchronize();
        }));
  }
  return list;
}

// Times attention with an empty row kernel, so only its products.
nlohmann::json timeAttentions(const Manifest &manifest, Device &device,
                              Bench &bench, ColdMemory &memory) {
  auto list = nlohmann::json::array();
  fsdpc_kernel noRows = {};
  noRows.host = [](int64_t, int64_t, void *const *) {};
  for (size_t plan = 0; plan < manifest.attentions.size(); ++plan) {
    const AttentionPlan &p = manifest.attentions[plan];
    int64_t element = dtypeBytes(p.dtype);
    auto bytes = [&](const std::vector<int64_t> &strides, int64_t heads,
                     int64_t rows, int64_t width) {
      // A plan has no strides for operands that it does not have.
      if (strides.empty())
        return size_t(0);
      // Rounded to 64 bytes, so that every operand is aligned.
      return size_t(
          (span({p.batch, heads, rows}, strides, 1, width) * element + 63) /
          64 * 64);
    };
    size_t query = bytes(p.strideQuery, p.heads, p.queries, p.width),
           key = bytes(p.strideKey, p.groups, p.keys, p.width),
           value = bytes(p.strideValue, p.groups, p.keys, p.valueWidth),
           output = bytes(p.strideOutput, p.heads, p.queries, p.valueWidth),
           mask = p.dtypeMask.empty()
                      ? 0
                      : size_t(p.batch * p.heads * p.queries * p.keys *
                               dtypeBytes(p.dtypeMask)),
           lse = size_t(p.batch * p.heads * p.queries * 4),
           grad = bytes(p.strideGrad, p.heads, p.queries, p.valueWidth),
           dquery = bytes(p.strideDQuery, p.heads, p.queries, p.width),
           dkey = bytes(p.strideDKey, p.groups, p.keys, p.width),
           dvalue = bytes(p.strideDValue, p.groups, p.keys, p.valueWidth);
    // The operands in the order of fsdpc_attention and fsdpc_attention_grad.
    std::vector<size_t> sizes =
        p.backward ? std::vector<size_t>{grad, query, key,    value, output,
                                         lse,  mask,  dquery, dkey,  dvalue}
                   : std::vector<size_t>{query, key, value, mask, output, lse};
    size_t total = 0;
    for (size_t size : sizes)
      total += size;
    list.push_back(timeCall(bench, memory, plan, total, [&](char *operands) {
      std::vector<void *> at;
      for (size_t size : sizes) {
        at.push_back(size ? operands : nullptr);
        operands += size;
      }
      if (p.backward)
        device.attentionGrad(int(plan), &noRows, at[0], at[1], at[2], at[3],
                             at[4], at[5], at[6], at[7], at[8], at[9]);
      else
        device.attention(int(plan), &noRows, at[0], at[1], at[2], at[3], at[4],
                         at[5]);
      device.synchronize();
    }));
  }
  return list;
}

// Reads half of the bytes and writes the other half, in vector code for this
// machine.
FSDPC_EACH_PROCESSOR
void copyLoop(const float *__restrict from, float *__restrict to,
              size_t count) {
  for (size_t i = 0; i < count; ++i)
    to[i] = from[i];
}

// A polynomial of degree 5 and the bits of the exponent: the least work that an
// exponential takes in f32.
FSDPC_EACH_PROCESSOR
void expLoop(const float *__restrict from, float *__restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    float x = from[i] * 1.44269504f;
    float whole = std::nearbyint(x), f = x - whole;
    // Coefficients of 2^f, from the highest power; f lies in [-½, ½].
    float p = 0.00133335581f;
    p = p * f + 0.00961812911f;
    p = p * f + 0.0555041087f;
    p = p * f + 0.240226507f;
    p = p * f + 0.693147181f;
    p = p * f + 1;
    // 2^whole, by its bits, without a range check.
    int32_t bits = (int32_t(whole) + 127) << 23;
    float scale;
    std::memcpy(&scale, &bits, sizeof scale);
    to[i] = p * scale;
  }
}

} // namespace

static int measureLimits(int argc, char **argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: limits MANIFEST.json [COPY-BYTES…]\n");
    return 2;
  }
  std::ifstream file(argv[1]);
  std::string text{std::istreambuf_iterator<char>(file), {}};
  auto refuse = [](const Error &error) {
    std::fprintf(stderr, "error: %s\n", error.message.c_str());
    return 1;
  };
  Result<Manifest> read = fromJson(text.data(), text.size());
  if (!read)
    return refuse(read.error().reworded("'" + std::string(argv[1]) +
                                        "': " + read.error().message));
  const Manifest &manifest = *read;
  std::unique_ptr<Job> job;
  Result<LaunchEnvironment> environment = readLaunchEnvironment();
  if (!environment)
    return refuse(environment.error());
  // Ranks that were started in another way would each measure alone.
  if (environment->mpi) {
    auto joined = joinMpi(0, 0);
    if (!joined)
      return refuse(joined.error());
    job = std::move(*joined);
  }
  Bench bench(job.get());
  // One thread per rank, as the figures are per core.
  auto made = HostDevice::make(manifest, 1);
  if (!made)
    return refuse(made.error());
  const std::unique_ptr<HostDevice> &device = *made;
  ColdMemory memory(*device);
  nlohmann::json result;
  result["products"] = {
      {"matmul", timeMatmuls(manifest, *device, bench, memory)},
      {"attention", timeAttentions(manifest, *device, bench, memory)}};
  // Each argument is the bytes that a step copies: half are read, half are
  // written.
  for (int i = 2; i < argc; ++i) {
    size_t half = std::max<size_t>(std::strtoull(argv[i], nullptr, 10) / 2, 64);
    Taken taken = bench.time([&] {
      char *both = memory.next(2 * half);
      copyLoop(reinterpret_cast<float *>(both),
               reinterpret_cast<float *>(both + half / 64 * 64), half / 4);
    });
    result["copies"].push_back(toJson(taken));
  }
  constexpr size_t count = 1 << 13; // stays in L2
  auto *values = reinterpret_cast<float *>(memory.next(2 * count * 4));
  Taken taken = bench.time([&] {
    for (int i = 0; i < 64; ++i)
      expLoop(values, values + count, count);
  });
  // Measured in core time, so that other processes do not count.
  result["exps_per_s"] = 64.0 * count / taken.coreMs * 1e3;
  if (!job || job->rank == 0)
    std::puts(runtime::dump(result).c_str());
  return 0;
}

int main(int argc, char **argv) {
  return guarded([&] { return measureLimits(argc, argv); });
}
