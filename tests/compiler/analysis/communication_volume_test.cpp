// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Bytes communicated per step, from the collectives of a program: ddp, zero2
// and zero3 are as 2 : 2 : 3 (Rajbhandari et al., ZeRO, SC 2020).
#include "compiler/analysis/CommunicationVolume.h"

#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::analysis;

namespace {

class CommunicationVolumeTest : public testing::Test {
protected:
  CommunicationVolumeTest() {
    context.loadDialect<func::FuncDialect, nn::NNDialect, fsdp::FSDPDialect>();
  }

  // One layout of 1000 elements, with `options` and the collectives of the two
  // functions.
  CommunicationVolume count(std::string options, std::string type,
                            std::string microbatch, std::string update,
                            std::string wire = "") {
    std::string text = R"(
module attributes {fsdp.options = {)" +
                       options + R"(}} {
  fsdp.parameter @w : tensor<1000xf32> trainable unit @u
  fsdp.unit @u
  fsdp.layout @l of @u trainable elements 1000 : )" +
                       type + wire + R"( states 2 {members =
    [#fsdp.member<@w[0, 1000] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
  func.func @microbatch(%g: tensor<1000x)" +
                       type + R"(>) {
)" + microbatch + R"(
    return
  }
  func.func @update() {
)" + update + R"(
    return
  }
})";
    module = parseSourceString<ModuleOp>(text, &context);
    writeCommunication(*module, communicatedBytes(*module));
    return *readCommunication(*module);
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};

const char *reduceScatter = "fsdp.reduce_scatter [@l], %g : tensor<1000xf32>\n";

// In words of the ZeRO paper: ddp and zero2 send 2 P, zero3 sends 3 P.
TEST_F(CommunicationVolumeTest, StrategiesAre2To2To3) {
  CommunicationVolume ddp =
      count("", "f32", reduceScatter, "fsdp.gather_gradients [@l]");
  CommunicationVolume zero2 =
      count("", "f32", reduceScatter, "fsdp.gather_parameters [@l]");
  std::string gathers = "%a = fsdp.all_gather [@l] : tensor<1000xf32>\n"
                        "%b = fsdp.all_gather [@l] : tensor<1000xf32>\n";
  CommunicationVolume zero3 = count("", "f32", gathers + reduceScatter, "");
  EXPECT_EQ(ddp.bytes(Level::Ranks, 8, 8, 1), 8000 * 7 / 8.);
  EXPECT_EQ(zero2.bytes(Level::Ranks, 8, 8, 1), 8000 * 7 / 8.);
  EXPECT_EQ(zero3.bytes(Level::Ranks, 8, 8, 1), 12000 * 7 / 8.);
  // With --max-accumulate=1 ddp gathers the same, one layout at a time.
  CommunicationVolume single =
      count("", "f32", reduceScatter,
            "%w = fsdp.whole_gradient @l : tensor<33768xf32>");
  EXPECT_EQ(single.formula(), ddp.formula());
  EXPECT_EQ(ddp.formula(), "(N-1)/N · (K·P·f32 + P·f32)");
  EXPECT_EQ(zero3.formula(), "(N-1)/N · (K·2·P·f32 + K·P·f32)");
}

// Gathers move the compute type and reductions the wire type, except that the
// host widens what has arrived. A start counts as the collective that it
// starts.
TEST_F(CommunicationVolumeTest, TypesAndMicrobatches) {
  const std::string microbatch =
      "%t = fsdp.all_gather_start [@l]\n"
      "%a = fsdp.all_gather_wait %t : tensor<1000xbf16>\n"
      "%r = fsdp.reduce_scatter_start [@l], %g : tensor<1000xbf16>\n"
      "fsdp.reduce_scatter_wait %r\n";
  CommunicationVolume volume =
      count(R"("param-dtype" = "bf16")", "bf16", microbatch, "");
  EXPECT_EQ(volume.formula(), "(N-1)/N · (K·2·P·bf16 + K·P·bf16)");
  volume = count(R"("param-dtype" = "bf16", "target" = "cuda")", "bf16",
                 microbatch, "");
  EXPECT_EQ(volume.formula(), "(N-1)/N · (K·2·P·bf16 + K·P·f32)");
  EXPECT_EQ(volume.bytes(Level::Ranks, 2, 2, 3), 3 * (2000 + 4000) / 2.);
  EXPECT_EQ(volume.bytes(Level::Ranks, 1, 1, 3), 0);
}

// Blocks take a byte per element and 4 per block; the last one is padded. A
// gradient of 16 bits then travels in blocks too.
TEST_F(CommunicationVolumeTest, BlocksHaveScales) {
  const char *options = R"("param-dtype" = "bf16", "gather-dtype" = "i8",
                           "reduce-dtype" = "f8e4m3")";
  CommunicationVolume volume =
      count(options, "bf16",
            "%a = fsdp.all_gather [@l] : tensor<1000xbf16>\n"
            "fsdp.reduce_scatter [@l], %g : tensor<1000xbf16>\n",
            "", " wire i8");
  EXPECT_EQ(volume.formula(), "(N-1)/N · (K·2·P·i8 + K·P·f8e4m3)");
  EXPECT_EQ(volume.bytes(Level::Ranks, 2, 2, 3), 3 * (1040 + 1040) / 2.);
}

// Groups gather and reduce among their own ranks, and hand on sums in f32.
TEST_F(CommunicationVolumeTest, HybridHasTwoLevels) {
  CommunicationVolume volume =
      count(R"("strategy" = "hybrid", "reduce-dtype" = "bf16")", "f32",
            std::string("%a = fsdp.all_gather [@l] : tensor<1000xf32>\n") +
                reduceScatter,
            "");
  EXPECT_EQ(volume.formula(), "(G-1)/G · (K·2·P·f32 + K·P·bf16) + "
                              "2(N-G)/(NG) · (K·P·f32)");
  EXPECT_EQ(volume.bytes(Level::Ranks, 8, 2, 3), 0);
  EXPECT_EQ(volume.bytes(Level::Group, 8, 2, 3), 3 * 6000 / 2.);
  // Three groups of each half hand on 500 sums, and the last one three times
  // as many: 6000 elements for the four ranks of a half.
  EXPECT_EQ(volume.bytes(Level::Groups, 8, 2, 3), 3 * 3000 * 4 / 4.);
  EXPECT_EQ(volume.bytes(Level::Groups, 8, 8, 3), 0);
}

// A second gather reads what the first one kept, and does not leave the group.
TEST_F(CommunicationVolumeTest, SecondGathersStayInTheGroup) {
  module = parseSourceString<ModuleOp>(R"(
fsdp.parameter @v : tensor<1000xf32> trainable unit @u
fsdp.unit @u
fsdp.layout @l of @u trainable elements 1000 : f32 states 0 secondary {members =
  [#fsdp.member<@v[0, 1000] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
func.func @microbatch(%g: tensor<1000xf32>) {
  %a = fsdp.all_gather [@l] keep_secondary : tensor<1000xf32>
  %b = fsdp.all_gather [@l] from_secondary : tensor<1000xf32>
  fsdp.reduce_scatter [@l], %g : tensor<1000xf32>
  return
})",
                                       &context);
  writeCommunication(*module, communicatedBytes(*module));
  CommunicationVolume volume = *readCommunication(*module);
  EXPECT_EQ(volume.formula(),
            "(N-1)/N · (K·P·f32 + K·P·f32) + (G-1)/G · (K·P·f32)");
  EXPECT_EQ(volume.bytes(Level::Ranks, 8, 2, 3), 3 * 8000 * 7 / 8.);
  EXPECT_EQ(volume.bytes(Level::Group, 8, 2, 3), 3 * 4000 / 2.);
  EXPECT_EQ(volume.bytes(Level::Group, 8, 1, 3), 0);
  EXPECT_EQ(volume.bytes(Level::Groups, 8, 2, 3), 0);
}

// With several strategies each term says whose elements it sends.
TEST_F(CommunicationVolumeTest, MixedStrategies) {
  module = parseSourceString<ModuleOp>(R"(
fsdp.parameter @v : tensor<1000xf32> trainable unit @u
fsdp.parameter @f : tensor<100xf32> unit @u
fsdp.parameter @w : tensor<10xf32> trainable unit @r
fsdp.unit @u
fsdp.unit @r
fsdp.layout @u.flat of @u trainable elements 1000 : f32 states 0 {members =
  [#fsdp.member<@v[0, 1000] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @u.frozen of @u elements 100 : f32 states 0 {members =
  [#fsdp.member<@f[0, 100] rate 1.0 : f64 decay 0.0 : f64>], whole = []}
fsdp.layout @r.flat of @r strategy "zero2" trainable elements 10 : f32 states 0
  {members = [#fsdp.member<@w[0, 10] rate 1.0 : f64 decay 0.0 : f64>],
   whole = ["compute"]}
func.func @microbatch(%g: tensor<1000xf32>, %h: tensor<10xf32>) {
  %a, %b = fsdp.all_gather [@u.flat, @u.frozen] : tensor<1000xf32>, tensor<100xf32>
  %c, %d = fsdp.all_gather [@u.flat, @u.frozen] : tensor<1000xf32>, tensor<100xf32>
  fsdp.reduce_scatter [@u.flat, @r.flat], %g, %h : tensor<1000xf32>, tensor<10xf32>
  return
}
func.func @update() {
  fsdp.gather_parameters [@r.flat]
  return
})",
                                       &context);
  writeCommunication(*module, communicatedBytes(*module));
  CommunicationVolume volume = *readCommunication(*module);
  EXPECT_EQ(volume.formula(), "(N-1)/N · (K·2·(F[zero3]+P[zero3])·f32 + "
                              "K·P·f32 + P[zero2]·f32)");
  EXPECT_EQ(volume.parts,
            (decltype(volume.parts){
                {"F[zero3]", 100}, {"P[zero2]", 10}, {"P[zero3]", 1000}}));
  EXPECT_EQ(volume.bytes(Level::Ranks, 4, 4, 2),
            (2 * (8800 + 4040) + 40) * 3 / 4.);
}

// Sums over ranks, of a microbatch and of the update, go to each other rank, as
// do statistics that are not a rank's own.
TEST_F(CommunicationVolumeTest, SumsGoToEachRank) {
  module = parseSourceString<ModuleOp>(R"(
fsdp.buffer @s : tensor<3xf32> {rule = "zeros"}
fsdp.buffer @t : tensor<3xf32> {rule = "zeros"}
func.func @microbatch(%a: tensor<7xf64>, %b: tensor<5xf64>, %x: tensor<3xf32>) {
  fsdp.update_statistics @s, %x {momentum = 0.1 : f64} : tensor<3xf32>
  fsdp.update_statistics @t, %x {mode = "local", momentum = 0.1 : f64} : tensor<3xf32>
  %c = fsdp.all_reduce %a : tensor<7xf64>
  %d = fsdp.all_reduce %b : tensor<5xf64>
  return
}
func.func @update(%a: tensor<1x16xf64>) {
  %b = fsdp.all_reduce %a : tensor<1x16xf64>
  return
})",
                                       &context);
  writeCommunication(*module, communicatedBytes(*module));
  CommunicationVolume volume = *readCommunication(*module);
  EXPECT_EQ(volume.formula(), "(N-1) · (K·B·f32 + K·S·f64 + U·f64)");
  EXPECT_EQ(volume.parts,
            (decltype(volume.parts){{"B", 3}, {"S", 12}, {"U", 16}}));
  EXPECT_EQ(volume.bytes(Level::Each, 4, 2, 2),
            (2 * (3 * 4 + 12 * 8) + 16 * 8) * 3);
  EXPECT_EQ(volume.bytes(Level::Ranks, 4, 2, 2), 0);
}

} // namespace
