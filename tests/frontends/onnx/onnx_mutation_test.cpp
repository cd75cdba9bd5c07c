// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Models that are cut or altered at random are refused or imported, and never
// crash the reader. Deterministic: a failure names its seed.
#include "frontends/onnx/Import.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"

#include <gtest/gtest.h>

#include <fstream>
#include <random>

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {

std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class OnnxMutation : public testing::TestWithParam<const char *> {
protected:
  void SetUp() override {
    bytes = readFile(std::string(FSDPC_MODELS) + "/" + GetParam());
    ASSERT_FALSE(bytes.empty());
    llvm::SmallString<128> path;
    ASSERT_FALSE(llvm::sys::fs::createTemporaryFile("mutation", "onnx", path));
    file = path.str().str();
  }
  void TearDown() override { std::remove(file.c_str()); }

  void importBytes(const std::string &altered) {
    std::ofstream(file, std::ios::binary) << altered;
    MLIRContext context;
    ScopedDiagnosticHandler quiet(&context,
                                  [](Diagnostic &) { return success(); });
    fsdp::CompileOptions options;
    (void)importOnnx(file, options, &context);
  }

  std::string bytes, file;
};

// Cut at random places: refused, and nothing worse.
TEST_P(OnnxMutation, Truncated) {
  std::mt19937 random(1);
  for (int i = 0; i < 20; ++i)
    importBytes(bytes.substr(0, random() % bytes.size()));
}

// A few bytes changed: the import ends with a module or an error.
TEST_P(OnnxMutation, BytesFlipped) {
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string altered = bytes;
    int flips = 1 + random() % 16;
    for (int i = 0; i < flips; ++i)
      altered[random() % altered.size()] = char(random());
    importBytes(altered);
  }
}

// Small numbers where structure is encoded: shapes, axes, indices, attributes.
TEST_P(OnnxMutation, NumbersChanged) {
  for (int seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    std::string altered = bytes;
    size_t structure = std::min<size_t>(altered.size(), 64 << 10);
    for (int i = 0; i < 4; ++i) {
      size_t at = random() % structure;
      for (size_t k = at; k < std::min(at + 256, altered.size()); ++k)
        if (altered[k] > 0 && altered[k] < 8) {
          altered[k] = char(random() % 128);
          break;
        }
    }
    importBytes(altered);
  }
}

INSTANTIATE_TEST_SUITE_P(Fixtures, OnnxMutation,
                         testing::Values("linears.onnx", "conv_net.onnx",
                                         "gpt_opset23.onnx", "gpt_untied.onnx",
                                         "own_training.onnx"),
                         [](const auto &info) {
                           return llvm::sys::path::stem(info.param).str();
                         });

} // namespace
