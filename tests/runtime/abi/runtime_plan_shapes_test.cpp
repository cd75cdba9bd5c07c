// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Plans of library calls whose shapes are impossible, or whose sizes overflow,
// are refused where the manifest is read.
#include "runtime/abi/host_products.h"
#include "tests/runtime/abi/runtime_manifests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

using namespace fsdpc;

using testing::HasSubstr;

namespace {

// Lists that library calls index, and extents that sizes are divided by.
TEST(Manifest, RefusesPlansOfImpossibleShape) {
  Manifest manifest = sample();
  manifest.matmuls[1].batch = {3};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'matmuls[1]': matrix product whose 'strideA' has "
                        "0 entries instead of 1"));
  auto epilogue = [](const char *name, auto edit) {
    Manifest manifest = sample();
    manifest.matmuls[0].epilogue = name;
    manifest.matmuls[0].n = 8;
    edit(manifest.matmuls[0]);
    return readError(toJson(manifest));
  };
  EXPECT_EQ(epilogue("gelu", [](MatmulPlan &) {}), "");
  EXPECT_THAT(epilogue("relu", [](MatmulPlan &) {}),
              HasSubstr("unknown epilogue 'relu'"));
  EXPECT_THAT(epilogue("gelu", [](MatmulPlan &p) { p.accumulate = true; }),
              HasSubstr("'gelu' that accumulates or is batched"));
  EXPECT_THAT(epilogue("sum_lhs", [](MatmulPlan &p) { p.bias = true; }),
              HasSubstr("'sum_lhs' and a bias or an addend"));
  EXPECT_THAT(epilogue("gelu_grad", [](MatmulPlan &p) { p.n = 12; }),
              HasSubstr("rows of 12 elements, which is not a multiple of 8"));
  manifest = sample();
  manifest.convolutions[0].strides = {1, 0};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'convolutions[0]': convolution whose 'strides' "
                        "has the entry 0"));
  manifest = sample();
  manifest.poolings[0].padsEnd = {};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'padsEnd' has 0 entries instead of 2"));
  // The scratch memory of attention is divided by its heads.
  manifest.poolings.clear();
  AttentionPlan attention;
  attention.batch = attention.groups = attention.queries = attention.keys = 1;
  attention.width = attention.valueWidth = 8;
  attention.strideQuery = attention.strideKey = attention.strideValue =
      attention.strideOutput = {8, 8, 8};
  manifest.attentions = {attention};
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'attentions[0]': attention with an empty"));
  manifest.attentions[0].heads = 1;
  EXPECT_EQ(readError(toJson(manifest)), "");
  manifest.attentions[0].backward = true;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'strideGrad' has 0 entries instead of 3"));
  manifest = sample();
  manifest.sequences[0].stream = 3;
  EXPECT_THAT(readError(toJson(manifest)),
              HasSubstr("'microbatch' names stream 3, but there are 3"));
}

// Sizes of scratch memory are products of extents.
TEST(Manifest, RefusesPlansThatOverflow) {
  const int64_t large = int64_t(1) << 40, huge = int64_t(1) << 50;
  auto error = [](const auto &change) {
    Manifest manifest = sample();
    change(manifest);
    return readError(toJson(manifest));
  };
  EXPECT_THAT(error([&](Manifest &m) { m.matmuls[0].k = huge; }),
              HasSubstr("'matmuls[0]': matrix product of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                m.matmuls[0].m = m.matmuls[0].k = int64_t(1) << 25;
              }),
              HasSubstr("matrix product of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                MatmulPlan &p = m.matmuls[0];
                p.batch = p.strideA = p.strideB = p.strideC = {large, large};
              }),
              HasSubstr("matrix product of too many elements"));
  // Small matrices have products of more than 2^64 multiplications.
  Manifest manifest = sample();
  MatmulPlan &product = manifest.matmuls[0];
  product.m = product.n = product.k = int64_t(1) << 23;
  MatmulGrid grid = gridOf(product);
  EXPECT_EQ(grid.rows, 512);
  EXPECT_EQ(grid.columns, product.n);
  EXPECT_THAT(error([&](Manifest &m) { m.convolutions[0].batch = huge; }),
              HasSubstr("'convolutions[0]': convolution of too many elements"));
  // Each tensor is small, and the matrix of windows is not.
  EXPECT_THAT(error([&](Manifest &m) {
                ConvolutionPlan &p = m.convolutions[0];
                p.channels = p.kernelHeight = p.kernelWidth = int64_t(1) << 9;
                p.outHeight = p.outWidth = int64_t(1) << 15;
              }),
              HasSubstr("convolution of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                m.convolutions[0].dilations = {1, int64_t(1) << 60};
              }),
              HasSubstr("convolution whose 'dilations' has the entry"));
  EXPECT_THAT(error([&](Manifest &m) { m.convolutions[0].padsEnd[0] = large; }),
              HasSubstr("convolution whose 'padsEnd' has the entry"));
  EXPECT_THAT(error([&](Manifest &m) { m.poolings[0].height = huge; }),
              HasSubstr("'poolings[0]': pooling of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) { m.poolings[0].strides[0] = large; }),
              HasSubstr("pooling whose 'strides' has the entry"));
  EXPECT_THAT(error([&](Manifest &m) {
                AttentionPlan &p = m.attentions.emplace_back();
                p.batch = p.heads = p.groups = p.width = p.valueWidth = 1;
                p.queries = p.keys = int64_t(1) << 25;
              }),
              HasSubstr("'attentions[0]': attention of too many elements"));
  EXPECT_THAT(error([&](Manifest &m) {
                AttentionPlan &p = m.attentions.emplace_back();
                p.batch = p.heads = p.groups = p.width = p.valueWidth = 1;
                p.keys = 1;
                p.queries = large;
              }),
              HasSubstr("attention whose 'queries' has the entry"));
}

// The plan of a large shape takes no memory per row.
TEST(MemoryPlan, CutsOfTallConvolutionsAreFew) {
  Manifest manifest = sample();
  ConvolutionPlan &p = manifest.convolutions[0];
  p.kind = "forward";
  p.dtype = "f32";
  p.kernelWidth = 2;
  p.width = p.outWidth = int64_t(1) << 17;
  p.height = p.outHeight = int64_t(1) << 29;
  auto cut = cutConvolution(p);
  ASSERT_TRUE(cut);
  EXPECT_LE(cut->blocks.size(), size_t(1) << 16);
  EXPECT_EQ(cut->blocks.back().begin + cut->blocks.back().count, p.outHeight);
}

} // namespace
