// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Index arithmetic of kernels: reshapes cancel, and ranges decide conditions.
#include "compiler/analysis/kernels/IndexMap.h"

#include <gtest/gtest.h>

using namespace fsdpc::analysis;

namespace {

class IndexTest : public ::testing::Test {
protected:
  IndexSpace space;
  IndexExpr row = space.variable(0, 40);
  IndexExpr lane = space.variable(2, 48, /*isLane=*/true);

  IndexExpr linear() { return space.add(space.scale(row, 48), lane); }
};

// A 40×48 value reshaped to 2×20×48 and back has the same index.
TEST_F(IndexTest, ReshapesCancel) {
  Index split = space.delinearize(linear(), {2, 20, 48});
  EXPECT_EQ(split[2], lane);
  EXPECT_EQ(space.linearize(split, {2, 20, 48}), linear());
  Index heads = space.delinearize(linear(), {2, 20, 4, 12});
  EXPECT_EQ(space.linearize(heads, {2, 20, 4, 12}), linear());
  Index back =
      space.delinearize(space.linearize(heads, {2, 20, 4, 12}), {40, 48});
  EXPECT_EQ(back[0], row);
  EXPECT_EQ(back[1], lane);
}

// 1920 elements in one loop: the column, modulo 48, is a remainder of the lane,
// which cutting the loop at 48 lanes avoids.
TEST_F(IndexTest, ARemainderOfTheLaneAsksForACut) {
  IndexExpr flat = space.variable(2, 1920, /*isLane=*/true);
  IndexExpr column = space.mod(flat, 48);
  EXPECT_EQ(space.laneStride(column), std::nullopt);
  llvm::SmallVector<int64_t> cuts;
  space.collectCuts(column, cuts);
  ASSERT_EQ(cuts.size(), 1u);
  EXPECT_EQ(cuts[0], 48);
}

// Nested quotients combine, and ranges of variables simplify them.
TEST_F(IndexTest, QuotientsOfQuotients) {
  IndexExpr once = space.floorDiv(space.floorDiv(row, 5), 4);
  EXPECT_EQ(once, space.floorDiv(row, 20));
  // (48·row + lane) / 96 = row / 2, since lane < 48.
  EXPECT_EQ(space.floorDiv(linear(), 96), space.floorDiv(row, 2));
  IndexExpr rest = space.mod(linear(), 96);
  EXPECT_EQ(rest, space.add(space.scale(space.mod(row, 2), 48), lane));
}

// Division rounds down, as in affine maps, not towards zero.
TEST_F(IndexTest, NegativeIndicesRoundDown) {
  IndexExpr e = space.floorDiv(space.add(lane, -96), 48);
  EXPECT_TRUE(e.isConstant());
  EXPECT_EQ(e.constant, -2);
  EXPECT_EQ(space.mod(space.add(lane, -96), 48), lane);
}

// The value of a condition on a part of a loop.
TEST_F(IndexTest, RangesDecideConditions) {
  Condition first{lane, {0, 15}};
  EXPECT_EQ(decide(space, first), Decision::Depends);
  space.setRange(lane, {0, 15});
  EXPECT_EQ(decide(space, first), Decision::Always);
  space.setRange(lane, {16, 47});
  EXPECT_EQ(decide(space, first), Decision::Never);
}

// The depth decides which loop an index is computed in.
TEST_F(IndexTest, DepthIsOfTheInnermostVariable) {
  EXPECT_EQ(space.depth(row), 0);
  EXPECT_EQ(space.depth(linear()), 2);
  EXPECT_FALSE(space.usesLane(space.floorDiv(row, 7)));
}

} // namespace
