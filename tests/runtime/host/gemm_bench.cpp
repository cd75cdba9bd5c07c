// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Times matrix products of training steps on one thread, in GF/s: with the grid
// that the host device chooses, with other grids, and as oneDNN's sgemm of the
// whole product. A change of the grid (runtime/host/matmul.cpp) is judged by
// it. To load the caches as ranks do, start one copy per core.
#include "runtime/host/matmul.h"
#include "runtime/host/openmp.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <deque>
#include <dnnl.h>
#include <functional>
#include <sstream>
#include <sys/mman.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

// Forward, input gradient and weight gradient of GPT blocks; products of many
// columns, which are read in pieces; of a head in
// blocks of rows; the linear layers of the memory experiment; two products of
// attention. Columns: M N K, orders of A and B, type, whether the result is
// added.
const char *const kShapes = R"(1024 1152 384 NN f32
1024 384 1152 NT f32
384 1152 1024 TN f32
1024 384 384 NN f32
1024 384 384 NT f32
384 384 1024 TN f32
1024 1536 384 NN f32
1024 384 1536 NT f32
384 1536 1024 TN f32
1024 384 1536 NN f32
1024 1536 384 NT f32
1536 384 1024 TN f32
512 3072 768 NN f32
768 3072 512 TN f32
512 5120 1280 NN f32
256 50257 384 NT f32
256 384 50257 NN f32
50257 384 256 TN f32 +=
10 10000 10000 NN f32
64 256 64 NT f32
64 64 256 NN f32
)";

struct Memory {
  explicit Memory(size_t bytes)
      : bytes(bytes), data(mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    std::memset(data, 0, bytes); // otherwise all reads hit one page of zeroes
  }
  ~Memory() { munmap(data, bytes); }
  size_t bytes;
  void *data;
};

struct Candidate {
  std::string name;
  std::function<void()> run;
  double best = 1e9;
};

// Processor time of this thread, since others may want the core.
double seconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return double(time.tv_sec) + 1e-9 * double(time.tv_nsec);
}

MatmulPlan parse(const std::string &line) {
  MatmulPlan p;
  std::string layout, type, add;
  std::istringstream(line) >> p.m >> p.n >> p.k >> layout >> type >> add;
  p.transposeA = layout[0] == 'T', p.transposeB = layout[1] == 'T';
  p.lda = p.transposeA ? p.m : p.k, p.ldb = p.transposeB ? p.k : p.n;
  p.ldc = p.n;
  p.dtypeA = p.dtypeB = p.dtypeC = type;
  p.accumulate = add == "+=";
  return p;
}

// Times a product with every grid, in turn.
void measure(const std::string &line, int repeats) {
  MatmulPlan p = parse(line);
  Memory a(4 * p.m * p.k), b(4 * p.k * p.n), c(4 * p.m * p.n);
  std::deque<Matmul> products;
  GemmCache cache(1);
  Status planned = products.emplace_back().plan(p, cache);
  std::vector<Candidate> candidates = {{"chosen", {}}};
  auto cut = [&](int64_t rows, int64_t columns) {
    Status cut = products.emplace_back().plan(p, {rows, columns}, cache);
    if (planned)
      planned = cut;
    candidates.push_back(
        {std::to_string(rows) + "x" + std::to_string(columns), {}});
  };
  for (int64_t rows : {128, 256, 512})
    if (rows < p.m)
      cut(rows, p.n);
  for (int64_t columns : {192, 512, 2048})
    if (columns < p.n)
      cut(p.m, columns);
  cut(p.m, p.n);
  if (!planned) {
    std::printf("%s: %s\n", line.c_str(), planned.error().message.c_str());
    return;
  }

  size_t bytes = 0;
  for (Matmul &product : products) {
    product.prepare();
    bytes = std::max(bytes, product.scratchBytes());
  }
  Memory memory(std::max<size_t>(bytes, 1));
  Scratch scratch{static_cast<char *>(memory.data), bytes};
  ThreadPool pool(1);
  for (size_t i = 0; i < candidates.size(); ++i)
    candidates[i].run = [&, i] {
      products[i].run(pool, scratch, a.data, b.data, c.data);
    };
  if (p.dtypeA == "f32")
    candidates.push_back(
        {"sgemm", [&] {
           dnnl_sgemm(p.transposeA ? 'T' : 'N', p.transposeB ? 'T' : 'N', p.m,
                      p.n, p.k, 1, static_cast<float *>(a.data), p.lda,
                      static_cast<float *>(b.data), p.ldb, p.accumulate,
                      static_cast<float *>(c.data), p.ldc);
         }});
  for (int i = 0; i <= repeats; ++i)
    for (Candidate &candidate : candidates) {
      double begin = seconds();
      candidate.run();
      if (i) // the first one warms up
        candidate.best = std::min(candidate.best, seconds() - begin);
    }
  std::printf("%-28s", line.c_str());
  for (Candidate &candidate : candidates)
    std::printf("  %s %.0f", candidate.name.c_str(),
                2e-9 * double(p.m * p.n * p.k) / candidate.best);
  std::printf("  (%zu KiB)\n", products[0].scratchBytes() >> 10);
  std::fflush(stdout);
}

} // namespace

int main(int argc, char **argv) {
  omp_set_num_threads(1);
  int repeats = argc > 1 ? std::atoi(argv[1]) : 5;
  for (std::string type : {"f32", "bf16"}) {
    std::istringstream shapes(kShapes);
    for (std::string line; std::getline(shapes, line);)
      measure(line.replace(line.find("f32"), 3, type), repeats);
  }
}
