// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Measures what a GPU reaches at most, in the run in which everything else is
// measured: the bandwidth of a copy within its memory, and the rate of a large
// product of bf16 by the best algorithm that the library lists. Prints one line
// of JSON.
//
// usage: gpu_ceilings [N MIB]    N x N x N products, copies of MIB (8192 1024)
#include "runtime/cuda/api.h"
#include "runtime/support/diagnostics.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

using namespace fsdpc::runtime;

namespace {

constexpr int repeats = 10, rounds = 3, mostAlgorithms = 8;
constexpr size_t workspaceBytes = size_t(32) << 20;

void check(CudaStatus status, const char *what) {
  if (status == cudaOk)
    return;
  fprintf(stderr, "error: %s failed: %s\n", what,
          cudaApi().errorText(status).c_str());
  exit(3);
}

// Returns the seconds of one call, the best of some rounds.
double timeOf(CudaStream stream, const std::function<CudaStatus()> &call) {
  CudaApi &api = cudaApi();
  double best = 0;
  for (int round = 0; round <= rounds; ++round) {
    auto began = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats; ++i)
      check(call(), "a call");
    check(api.synchronizeStream(stream), "the stream");
    std::chrono::duration<double> took =
        std::chrono::steady_clock::now() - began;
    // The first round loads code.
    if (round == 1 || (round > 1 && took.count() / repeats < best))
      best = took.count() / repeats;
  }
  return best;
}

CudaGemmShape squareOf(int64_t n) {
  CudaGemmShape shape;
  shape.m = shape.n = shape.k = shape.lda = shape.ldb = shape.ldc = n;
  shape.dtypeA = shape.dtypeB = shape.dtypeC = "bf16";
  return shape;
}

} // namespace

static int measureCeilings(int count, char **words) {
  int64_t n = count > 2 ? atoll(words[1]) : 8192;
  auto bytes = size_t(count > 2 ? atoll(words[2]) : 1024) << 20;
  CudaApi &api = cudaApi();
  check(api.selectDevice(0), "selecting the GPU");
  CudaStream stream = nullptr;
  check(api.createStream(stream, false), "a stream");
  auto matrix = size_t(n * n) * 2;
  size_t total = std::max(2 * bytes, 3 * matrix) + workspaceBytes;
  void *memory = nullptr;
  check(api.allocateDevice(memory, total), "memory");
  auto *begin = static_cast<char *>(memory);
  check(api.fill(memory, 0x3c, total, stream), "a fill");
  double copy = timeOf(
      stream, [&] { return api.copy(begin + bytes, begin, bytes, stream); });

  CudaGemm gemm = nullptr;
  CudaChoice choice;
  check(api.planGemm(squareOf(n), workspaceBytes, gemm, choice), "a plan");
  auto product = [&] {
    CudaGemmOperands operands{begin, begin + matrix, begin + 2 * matrix};
    return api.gemm(gemm, operands, begin + total - workspaceBytes, stream);
  };
  double first = timeOf(stream, product), best = first;
  std::vector<std::string> codes;
  check(api.listGemms(gemm, workspaceBytes, mostAlgorithms, true, codes),
        "a list of algorithms");
  for (const std::string &code : codes)
    if (api.chooseGemm(gemm, workspaceBytes, true, code, choice) == cudaOk)
      best = std::min(best, timeOf(stream, product));
  double operations = 2.0 * double(n) * double(n) * double(n);
  // A copy reads and writes each byte.
  printf("{\"copy_gb_per_s\": %.1f, \"product\": %lld, \"first_tflops\": %.2f, "
         "\"best_tflops\": %.2f, \"algorithms\": %zu}\n",
         2 * double(bytes) / copy / 1e9, static_cast<long long>(n),
         operations / first / 1e12, operations / best / 1e12, codes.size());
  api.destroyGemm(gemm);
  api.freeDevice(memory);
  api.destroyStream(stream);
  return 0;
}

int main(int count, char **words) {
  return guarded([&] { return measureCeilings(count, words); });
}
