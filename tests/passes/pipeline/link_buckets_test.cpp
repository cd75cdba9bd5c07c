// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// linkBuckets: what buckets share, what moves, and which buckets cannot be one
// program.
#include "compiler/dialects/fsdp/Buckets.h"
#include "compiler/dialects/fsdp/Recomputed.h"
#include "passes/pipeline/LinkBuckets.h"
#include "passes/pipeline/Registration.h"

#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace fsdpc;
using testing::HasSubstr;

namespace {

class LinkBuckets : public testing::Test {
protected:
  LinkBuckets() {
    DialectRegistry registry;
    pipeline::registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  // Links the modules as buckets "T=1", "T=2", … and returns the error, or "".
  std::string link(std::vector<std::string> texts) {
    std::string error;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      error = diagnostic.str();
      return success();
    });
    std::vector<std::string> names;
    modules.clear();
    for (const std::string &text : texts) {
      modules.push_back(parseSourceString<ModuleOp>(text, &context));
      if (!modules.back())
        return "cannot be parsed: " + error;
      names.push_back("T=" + std::to_string(modules.size()));
    }
    (void)pipeline::linkBuckets(modules, names);
    return error;
  }

  MLIRContext context;
  std::vector<OwningOpRef<ModuleOp>> modules;
};

// A module with an input of the shape, a kernel that differs with `factor`, and
// an arena.
std::string moduleOf(const std::string &shape, const std::string &factor,
                     const std::string &more, int arena) {
  std::string kernel = R"(
  func.func private @k(%a: tensor<2xf32>) -> tensor<2xf32> attributes {nn.kernel} {
    %f = nn.constant dense<)" +
                       factor + R"(> : tensor<2xf32>
    %y = nn.mul %a, %f : tensor<2xf32>
    return %y : tensor<2xf32>
  }
)";
  return "module attributes {fsdp.arena = {bytes = " + std::to_string(arena) +
         " : i64, lower_bound = 0 : i64, gathered = 0 : i64, gradients = 0 : "
         "i64, activations = 0 : i64, reused = []}} {\n"
         "  rt.input @x : tensor<" +
         shape + "xf32>\n" + more + kernel + R"(
  func.func @microbatch() attributes {uses = @k} {
    return
  }
  func.func @update() {
    return
  }
})";
}

// Equal kernels are kept once, others get a name of their own; the arena is the
// largest.
TEST_F(LinkBuckets, JoinsEntriesAndParts) {
  ASSERT_EQ(
      link({moduleOf("2x3", "2.0", "", 64), moduleOf("2x6", "2.0", "", 128),
            moduleOf("2x4", "3.0", "", 96)}),
      "");
  ModuleOp linked = *modules.front();
  EXPECT_TRUE(succeeded(verify(linked)));
  EXPECT_EQ(fsdp::bucketCount(linked), 3u);
  EXPECT_EQ(fsdp::entriesOfBuckets(linked).size(), 4u); // with one @update
  auto kernelOf = [&](StringRef entry) {
    return linked.lookupSymbol(entry)
        ->getAttrOfType<FlatSymbolRefAttr>("uses")
        .getValue();
  };
  EXPECT_EQ(kernelOf("microbatch"), "k");
  EXPECT_EQ(kernelOf("microbatch_1"), "k");
  EXPECT_NE(kernelOf("microbatch_2"), "k");
  EXPECT_TRUE(linked.lookupSymbol(kernelOf("microbatch_2")));
  auto arena = linked->getAttrOfType<DictionaryAttr>("fsdp.arena");
  EXPECT_EQ(arena.getAs<IntegerAttr>("bytes").getInt(), 128);
  std::string text;
  llvm::raw_string_ostream(text) << linked;
  EXPECT_THAT(text, HasSubstr("rt.input @x : tensor<2x6xf32> {bucket_types = "
                              "[tensor<2x3xf32>, tensor<2x6xf32>, "
                              "tensor<2x4xf32>]}"));
}

// A limit may have ops of a unit run again in one bucket only. The program
// shows those of the largest arena.
TEST_F(LinkBuckets, TakesWhatRunsAgainFromTheLargest) {
  auto unit = [](const char *ops) {
    return std::string("  fsdp.unit @u {fsdp.recomputed = {of = 9 : i64, "
                       "ops = ") +
           ops + " : i64, us = 5 : i64}}\n";
  };
  ASSERT_EQ(link({moduleOf("2x3", "2.0", "  fsdp.unit @u\n", 64),
                  moduleOf("2x6", "2.0", unit("2"), 128),
                  moduleOf("2x4", "2.0", unit("1"), 96)}),
            "");
  auto linked = cast<fsdp::UnitOp>(modules.front()->lookupSymbol("u"));
  std::optional<fsdp::Recomputed> again = fsdp::recomputedOf(linked);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->ops, 2);
}

// Only a smaller bucket offloads activations, which is not told of the larger.
TEST_F(LinkBuckets, DropsWhatTheLargestDoesNotOffload) {
  std::string offloading = moduleOf("2x3", "2.0", "  fsdp.unit @u\n", 64);
  offloading.insert(
      offloading.find("fsdp.arena"),
      "fsdp.offloaded = {pieces = 1 : i64, of_pieces = 2 : i64, bytes = 8 : "
      "i64, of_bytes = 16 : i64, copy_us = 1.0 : f64, exposed_us = 0.0 : f64, "
      "units = [@u]}, ");
  ASSERT_EQ(link({offloading, moduleOf("2x6", "2.0", "  fsdp.unit @u\n", 128)}),
            "");
  EXPECT_FALSE(modules.front()->getOperation()->hasAttr("fsdp.offloaded"));
}

// Parts that outlive a microbatch must be the same in all buckets.
TEST_F(LinkBuckets, RefusesWhatCannotBeShared) {
  auto parameter = [](const char *type) {
    return std::string("  fsdp.parameter @w : tensor<") + type + "xf32>\n";
  };
  EXPECT_THAT(link({moduleOf("2x3", "2.0", parameter("4"), 0),
                    moduleOf("2x6", "2.0", parameter("5"), 0)}),
              HasSubstr("bucket 'T=2' and bucket 'T=1' differ in 'w', which "
                        "outlives a microbatch"));
  // On either side: @update would use gradients that no microbatch computes.
  EXPECT_THAT(link({moduleOf("2x3", "2.0", parameter("4"), 0),
                    moduleOf("2x6", "2.0", "", 0)}),
              HasSubstr("bucket 'T=2' and bucket 'T=1' differ in 'w', which "
                        "outlives a microbatch"));
  EXPECT_THAT(
      link({moduleOf("2x3", "2.0", "", 0),
            moduleOf("2x6", "2.0", "  rt.input @y : tensor<2xf32>\n", 0)}),
      HasSubstr("differ in 'y'"));
  EXPECT_THAT(
      link({moduleOf("2x3", "2.0", "  rt.input @y : tensor<2xf32>\n", 0),
            moduleOf("2x6", "2.0", "", 0)}),
      HasSubstr("input 'y' affects the loss in some buckets only"));
  EXPECT_THAT(
      link({moduleOf("2x3", "2.0", "  rt.input @y : tensor<2xf32>\n", 0),
            moduleOf("2x6", "2.0", "  rt.input @y : tensor<f32>\n", 0)}),
      HasSubstr("input 'y' has a shape in a bucket that does not fit"));
  EXPECT_THAT(
      link({moduleOf("2x3", "2.0", "", 0), moduleOf("4x3", "2.0", "", 0)}),
      HasSubstr("buckets may differ in the shape of a sample only"));
}

} // namespace
