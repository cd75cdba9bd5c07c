// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Choosing the algorithms of products by their times, on an emulation whose
// second algorithm is made the faster one.
#include "runtime/cuda/product_tuning.h"
#include "runtime/emulation/emulation.h"

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gmock/gmock.h>
#include <sstream>
#include <thread>

using namespace fsdpc;
using namespace fsdpc::runtime;

namespace {

constexpr char splits[] = "split-loops";

// Products are slow unless they are split, and calls are counted.
class Timed : public emulation::Emulation {
public:
  Timed() : Emulation(emulation::Settings()) {}
  CudaStatus chooseGemm(CudaGemm gemm, size_t cap, bool roundsParts,
                        const std::string &code, CudaChoice &choice) override {
    isSplit = code == splits;
    return Emulation::chooseGemm(gemm, cap, roundsParts, code, choice);
  }
  CudaStatus gemm(CudaGemm gemm, const CudaGemmOperands &of, void *workspace,
                  CudaStream stream) override {
    ++calls;
    if (!isSplit)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return Emulation::gemm(gemm, of, workspace, stream);
  }

  std::atomic<bool> isSplit = false;
  std::atomic<int> calls = 0;
};

std::vector<CudaGemmShape> shapes() {
  CudaGemmShape shape;
  shape.m = shape.n = shape.k = 16;
  shape.lda = shape.ldb = shape.ldc = 16;
  shape.dtypeA = shape.dtypeB = shape.dtypeC = "bf16";
  CudaGemmShape turned = shape;
  turned.transposeA = true, turned.beta = 1, turned.count = 3;
  turned.strideA = turned.strideB = turned.strideC = 256;
  CudaGemmShape biased = shape;
  biased.bias = true, biased.m = 4;
  // The same product with epilogues is others.
  CudaGemmShape gelu = shape, sums = shape;
  gelu.epilogue = "gelu_extra", gelu.addend = true;
  sums.epilogue = "sum_lhs";
  return {shape, turned, biased, gelu, sums};
}

class ProductTuning : public testing::Test {
protected:
  ProductTuning() {
    char name[] = "/tmp/fsdpc-products-XXXXXX";
    folder = mkdtemp(name);
    file = folder / "program.products";
  }
  ~ProductTuning() override { std::filesystem::remove_all(folder); }

  void write(const std::string &text) { std::ofstream(file) << text; }
  std::string read() {
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    return text.str();
  }

  // Runs two ranks. Returns what each chose, or its error.
  std::vector<std::string> tune(bool deterministic = false) {
    auto jobs = makeLocalJobs(2, 0);
    std::vector<std::string> results(2);
    std::vector<std::thread> threads;
    for (size_t rank = 0; rank < 2; ++rank)
      threads.emplace_back([&, rank] {
        ASSERT_EQ(api.selectDevice(0), cudaOk);
        Manifest manifest;
        CudaContext context(api, *jobs[rank], manifest);
        ASSERT_TRUE(context.makeStreams());
        auto tuned =
            tuneProducts(context, shapes(), file.string(), deterministic);
        if (!tuned) {
          results[rank] = tuned.error().message;
          return;
        }
        for (const CudaGemmShape &shape : shapes())
          results[rank] += tuned->codes[keyOf(shape)] + " ";
      });
    for (std::thread &thread : threads)
      thread.join();
    return results;
  }

  Timed api;
  std::filesystem::path folder, file;
};

std::string repeated(const std::string &word) {
  std::string words;
  for (size_t i = 0; i < shapes().size(); ++i)
    words += word + " ";
  return words;
}
const std::string allSplit = repeated("split-loops"),
                  allPlain = repeated("plain-loops");

// The first rank times, and both take what it chose. The next run reads the
// file and times nothing.
TEST_F(ProductTuning, allRanksTakeTheFastestAndTheFileKeepsIt) {
  EXPECT_EQ(tune(), (std::vector<std::string>{allSplit, allSplit}));
  EXPECT_GT(api.calls, 0);
  EXPECT_EQ(api.alive().deviceBytes, 0u);
  std::string kept = read();
  api.calls = 0;
  EXPECT_EQ(tune(), (std::vector<std::string>{allSplit, allSplit}));
  EXPECT_EQ(api.calls, 0);
  EXPECT_EQ(read(), kept);
  // Nothing but the file is left beside the program.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
}

// Sums that round their parts are not tried under --deterministic, and both
// kinds of choices have a place in one file.
TEST_F(ProductTuning, keepsSumsExactWhenDeterministic) {
  tune();
  EXPECT_EQ(tune(true), (std::vector<std::string>{allPlain, allPlain}));
  api.calls = 0;
  EXPECT_EQ(tune(false), (std::vector<std::string>{allSplit, allSplit}));
  EXPECT_EQ(tune(true), (std::vector<std::string>{allPlain, allPlain}));
  EXPECT_EQ(api.calls, 0);
}

// A file may be edited: a sum that rounds its parts is not taken under
// --deterministic, and its product is timed anew.
TEST_F(ProductTuning, refusesRoundedSumsOfAFileWhenDeterministic) {
  tune();
  std::string text = read();
  for (size_t at; (at = text.find("\tany\t")) != text.npos;)
    text.replace(at, 5, "\tf32\t");
  write(text);
  EXPECT_EQ(tune(true), (std::vector<std::string>{allPlain, allPlain}));
  EXPECT_THAT(read(), testing::Not(testing::HasSubstr(splits)));
}

// Choices of other devices stay in the file, and do not count here.
TEST_F(ProductTuning, keepsWhatOtherDevicesChose) {
  std::string other =
      "NVIDIA H200\tany\t" + keyOf(shapes()[0]) + "\tplain-loops\t12.5\t25\n";
  write("fsdpc products 1\n" + other);
  EXPECT_EQ(tune()[1], allSplit);
  EXPECT_THAT(read(), testing::HasSubstr(other));
}

// A file that cannot be understood is ignored with a warning, and replaced.
TEST_F(ProductTuning, ignoresACorruptFile) {
  tune();
  std::string good = read();
  std::string renamed = good, cut = good.substr(0, good.size() - 3);
  renamed[0] = 'F';
  for (const std::string &bad :
       {std::string("\n"), renamed, cut, good + "a\tb\n",
        good + "GPU\tany\t1 2 3\tcode\tnan\t1\n", good + good.substr(17),
        good.substr(0, 17) + "\n" + good.substr(17), std::string(1000, '\0')}) {
    write(bad);
    testing::internal::CaptureStderr();
    EXPECT_EQ(tune()[0], allSplit);
    EXPECT_THAT(testing::internal::GetCapturedStderr(),
                testing::ContainsRegex("^warning: --tune-products: '[^']*' .*; "
                                       "it is ignored and written anew\n$"));
    EXPECT_TRUE(parseTable(read()));
  }
}

// The library refuses a choice of another version, which is then timed anew.
TEST_F(ProductTuning, timesAnewWhatTheLibraryRefuses) {
  tune();
  std::string text = read();
  for (size_t at; (at = text.find(splits)) != text.npos;)
    text.replace(at, sizeof splits - 1, "1:of-before");
  write(text);
  api.calls = 0;
  EXPECT_EQ(tune(), (std::vector<std::string>{allSplit, allSplit}));
  EXPECT_GT(api.calls, 0);
  EXPECT_THAT(read(), testing::Not(testing::HasSubstr("of-before")));
}

// Without a file the next run may choose otherwise, and have other bits.
TEST_F(ProductTuning, needsItsFileWhenDeterministic) {
  file = folder / "none" / "program.products";
  testing::internal::CaptureStderr();
  EXPECT_EQ(tune()[0], allSplit);
  EXPECT_THAT(testing::internal::GetCapturedStderr(),
              testing::HasSubstr("the next run times its products again"));
  for (const std::string &error : tune(true))
    EXPECT_THAT(error, testing::HasSubstr("program.products"));
}

// Ties and gains within the noise leave the library's own choice.
TEST(Fastest, needsAGain) {
  EXPECT_EQ(fastest({1, 0.99, 0.985}), 0u);
  EXPECT_EQ(fastest({1, 0.97, 0.9, 0.9}), 2u);
  EXPECT_EQ(fastest({1, 1e9, HUGE_VAL}), 0u);
  EXPECT_EQ(fastest({HUGE_VAL, 2}), 1u);
}

// Every text that is parsed is the text of its table.
TEST(TunedTable, takesNothingThatItDoesNotWrite) {
  std::string first = "fsdpc products 1\n", a = "A\tany\t1 2 3 nn\tcode\t",
              b = "B\tany\t1 2 3 nn\tcode\t1\t1\n";
  EXPECT_TRUE(parseTable(first + a + "1.5\t3\n" + b));
  for (const std::string &bad :
       {b + a + "1\t1\n", a + "1\t1\n" + a + "2\t2\n", a + "1\t1\t\n",
        a + " 1\t1\n", a + "1\t0x2\n", a + "1.50\t1\n", a + "1\t1\r\n",
        a + "1e0\t1\n", a + "-1\t1\n", a + "1\tinf\n"})
    EXPECT_FALSE(parseTable(first + bad)) << bad;
}

// A table comes back from its text as it was.
TEST(TunedTable, comesBackFromItsText) {
  TunedTable table = {{"GPU 1\tany\t1 2 3 nn", {"code", 1.5, 3}},
                      {"GPU 1\tf32\t1 2 3 nn", {"other", 2, 2}}};
  auto parsed = parseTable(tableText(table));
  ASSERT_TRUE(parsed);
  EXPECT_EQ(tableText(*parsed), tableText(table));
  EXPECT_EQ(parsed->at("GPU 1\tany\t1 2 3 nn").code, "code");
}

} // namespace
