// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Records how long each kernel of a program runs on the GPU. This is a library
// that the CUDA driver loads if CUDA_INJECTION64_PATH names it. When the
// program ends, it writes one line per kernel to the file named by
// FSDPC_KERNEL_TIMES: the number of runs, their median in nanoseconds, and the
// name. If FSDPC_KERNEL_TIMELINE names a file, each run of a kernel is a line
// there: begin and end in nanoseconds, its stream and its name. It uses CUPTI's
// activity records, which come with PyTorch's wheels and
// with the toolkit, so no profiler is needed.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cupti.h>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

struct Run {
  uint64_t begin, end;
  uint32_t stream;
};
std::mutex mutex;
std::map<std::string, std::vector<Run>> &runs() {
  static auto *all = new std::map<std::string, std::vector<Run>>;
  return *all; // outlives what runs at exit
}

void requestBuffer(uint8_t **buffer, size_t *size, size_t *records) {
  constexpr size_t bytes = size_t(8) << 20;
  *buffer = static_cast<uint8_t *>(aligned_alloc(8, bytes));
  *size = *buffer ? bytes : 0;
  *records = 0; // as many as fit
}

void completeBuffer(CUcontext, uint32_t, uint8_t *buffer, size_t,
                    size_t valid) {
  std::lock_guard<std::mutex> lock(mutex);
  CUpti_Activity *record = nullptr;
  while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) {
    if (record->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL)
      continue;
    auto *kernel = reinterpret_cast<CUpti_ActivityKernel10 *>(record);
    runs()[kernel->name].push_back(
        {kernel->start, kernel->end, kernel->streamId});
  }
  free(buffer);
}

using Number = unsigned long long;

void writeTimeline() {
  const char *path = getenv("FSDPC_KERNEL_TIMELINE");
  FILE *file = path ? fopen(path, "w") : nullptr;
  if (!file)
    return;
  for (auto &[name, all] : runs())
    for (const Run &run : all)
      fprintf(file, "%llu\t%llu\t%u\t%s\n", Number(run.begin), Number(run.end),
              run.stream, name.c_str());
  fclose(file);
}

void writeTimes() {
  cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
  std::lock_guard<std::mutex> lock(mutex);
  writeTimeline();
  const char *path = getenv("FSDPC_KERNEL_TIMES");
  FILE *file = path ? fopen(path, "w") : nullptr;
  if (!file)
    return;
  for (auto &[name, all] : runs()) {
    std::vector<uint64_t> times;
    for (const Run &run : all)
      times.push_back(run.end - run.begin);
    auto middle = times.begin() + ptrdiff_t(times.size() / 2);
    std::nth_element(times.begin(), middle, times.end());
    fprintf(file, "%zu\t%llu\t%s\n", times.size(), Number(*middle),
            name.c_str());
  }
  fclose(file);
}

} // namespace

// Called by the driver when it starts. If CUPTI is refused (some machines keep
// counters for their administrator), no file is written.
extern "C" int InitializeInjection() {
  if (cuptiActivityRegisterCallbacks(requestBuffer, completeBuffer) ==
          CUPTI_SUCCESS &&
      cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) ==
          CUPTI_SUCCESS)
    atexit(writeTimes);
  return 1;
}
