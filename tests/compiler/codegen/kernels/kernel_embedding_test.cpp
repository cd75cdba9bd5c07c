// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// embedding_grad as a grid has the bits of the host's loops, which add the
// places of a row in the order of the ids: with ids that fill the list of a
// block several times, ids outside the table, and blocks of several rows.
#include "tests/compiler/codegen/kernels/kernel_test.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::testing;

namespace {

class EmbeddingTest : public KernelTest {
protected:
  // Adds a kernel of `count` ids, of which each is in [low, low + bound), and a
  // table of `rows` rows, of which a block has `own`.
  void addTable(int64_t count, int64_t low, int64_t bound, int64_t rows,
                int64_t own, const std::string &columns,
                const std::string &type, bool accumulates = false) {
    auto number = [](int64_t value) { return std::to_string(value); };
    std::string table = expand(
        "tensor<$Rx$Nx$T>", {{"R", number(rows)}, {"N", columns}, {"T", type}});
    add(expand(
        R"((%g: tensor<$Cx$Nx$T>, %i: tensor<$Cxi64> {test.bound = $B, test.low = $L : i64} $P) -> $M
      attributes {nn.kernel, nn.grid = #nn.grid<blocks $K threads $H widths[1] table_rows $O>} {
    %y = nn.embedding_grad %g, %i $A : tensor<$Cx$Nx$T>, tensor<$Cxi64> $S -> $M
    return %y : $M })",
        {{"P", accumulates ? ", %a: $M" : ""},
         {"A", accumulates ? "accumulate %a" : "{padding_index = 1 : i64}"},
         {"S", accumulates ? ", accumulate $M" : ""},
         {"M", table},
         {"C", number(count)},
         {"N", columns},
         {"T", type},
         {"B", number(bound)},
         {"L", number(low)},
         {"K", number((rows + own - 1) / own)},
         {"H", number(std::max(GetParam(), 1))},
         {"O", number(own)}}));
  }

  // Runs a kernel on the same operands as any other call does.
  Buffer run(LoadedKernels &loaded, func::FuncOp kernel) {
    func::FuncOp original = loaded.original(kernel.getSymName());
    std::vector<Buffer> buffers;
    uint64_t state = 3;
    for (auto [i, type] : llvm::enumerate(kernel.getArgumentTypes())) {
      auto bound = original.getArgAttrOfType<IntegerAttr>(i, "test.bound");
      auto low = original.getArgAttrOfType<IntegerAttr>(i, "test.low");
      auto tensor = cast<RankedTensorType>(type);
      nn::ReferenceTensor values =
          randomTensor(tensor, bound ? bound.getInt() : 0, state);
      for (int64_t &value : values.ints)
        value += low ? low.getInt() : 0;
      buffers.emplace_back(tensor).fill(values);
    }
    buffers.emplace_back(cast<RankedTensorType>(kernel.getResultTypes()[0]));
    std::vector<void *> pointers;
    for (Buffer &buffer : buffers)
      pointers.push_back(buffer.data());
    loaded.run(kernel.getSymName(), 0, loaded.extent(kernel), pointers.data());
    EXPECT_TRUE(buffers.back().guardsIntact());
    return buffers.back();
  }

  void compareAll() {
    LoadedKernels host(context, text),
        grid(context, text, "native", GetParam());
    std::vector<func::FuncOp> loops = host.kernels(), grids = grid.kernels();
    ASSERT_EQ(size_t(count), grids.size());
    for (auto [loop, kernel] : llvm::zip_equal(loops, grids)) {
      EXPECT_TRUE(run(host, loop) == run(grid, kernel))
          << kernel.getSymName().str() << " has other bits than the host";
      EXPECT_EQ("", checkKernel(grid, kernel));
    }
  }
};

INSTANTIATE_TEST_SUITE_P(Grid, EmbeddingTest, ::testing::Values(1, 32, 128),
                         ::testing::PrintToStringParamName());

// The list holds 8192 places. One row has all 20000; then all rows have as many
// as fill it, so that a block takes fewer of them at a time.
TEST_P(EmbeddingTest, PlacesThatFillTheList) {
  for (const char *type : {"f32", "bf16"}) {
    addTable(20000, 0, 1, 5, 5, "3", type);
    addTable(20000, 0, 6, 6, 6, "3", type, /*accumulates=*/true);
  }
  addTable(8192, 0, 1, 1, 1, "2", "f16", /*accumulates=*/true);
  addTable(8193, 0, 1, 1, 1, "2", "f16", /*accumulates=*/true);
  compareAll();
}

// Negative ids count from the end; others outside the table and the padding row
// get nothing. In the last table every id is outside.
TEST_P(EmbeddingTest, IdsOutsideTheTable) {
  for (const char *type : {"f32", "bf16", "f16"}) {
    addTable(67, -15, 30, 11, 4, "5", type);
    addTable(67, -15, 30, 11, 4, "33", type, /*accumulates=*/true);
    addTable(9, 100, 3, 11, 11, "33", type, /*accumulates=*/true);
  }
  compareAll();
}

// Groups of 32 and of 4 places, with each length of the last one.
TEST_P(EmbeddingTest, LengthsOfRows) {
  for (int64_t length : {1, 2, 3, 4, 5, 31, 32, 33, 36, 63, 64, 65})
    addTable(length, 0, 1, 2, 1, "7", "bf16", /*accumulates=*/true);
  compareAll();
}

} // namespace
