// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The short form of dumps: where lines are broken, and that a module is the
// same after it. tools/dump-widths.py reads the dumps of all fixtures back.
#include "passes/pipeline/ShortForm.h"

#include "compiler/dialects/fsdp/CostNote.h"
#include "passes/pipeline/Registration.h"

#include "mlir/Parser/Parser.h"
#include "llvm/Support/raw_ostream.h"

#include <gmock/gmock.h>

using namespace mlir;
using namespace fsdpc;
using testing::HasSubstr;
using testing::Not;

namespace {

class ShortForm : public testing::Test {
protected:
  ShortForm() {
    DialectRegistry registry;
    pipeline::registerDialects(registry);
    context.appendDialectRegistry(registry);
  }

  OwningOpRef<ModuleOp> parse(const std::string &text) {
    return parseSourceString<ModuleOp>(text, &context);
  }

  static std::string print(ModuleOp module) {
    std::string text;
    llvm::raw_string_ostream stream(text);
    module.print(stream, OpPrintingFlags().enableDebugInfo(true, false));
    return text;
  }

  MLIRContext context;
};

constexpr char kModule[] = R"(
func.func @f(%x: tensor<4xf32>) -> tensor<4xf32> {
  %y = nn.exp %x {fsdp.bytes = 32 : i64, fsdp.cost_us = 0.1 : f64,
                  fsdp.flops = 0 : i64,
                  nn.modules = #nn.modules<"": "M", "h.0": "B", "exp_1": "aten.exp.default">}
      : tensor<4xf32> loc(fused["a", "b"])
  return %y : tensor<4xf32>
})";

TEST_F(ShortForm, IsUndone) {
  OwningOpRef<ModuleOp> module = parse(kModule), copy = parse(kModule);
  pipeline::shorten(*copy);
  std::string text = pipeline::brokenLines(print(*copy), /*width=*/40);
  EXPECT_THAT(text, HasSubstr(R"(fsdp.cost = "0.1 us, 32 bytes, 0 flops")"));
  EXPECT_THAT(text, HasSubstr("loc(#h_0_exp)"));
  EXPECT_THAT(text, Not(HasSubstr("nn.modules")));
  OwningOpRef<ModuleOp> again = parse(text);
  ASSERT_TRUE(again);
  ASSERT_TRUE(succeeded(pipeline::restore(*again)));
  EXPECT_EQ(print(*again), print(*module));
}

TEST_F(ShortForm, RefusesModulesWithoutClass) {
  OwningOpRef<ModuleOp> module =
      parse(R"(module {} loc(fused<["h.0", "B", "exp_1"]>["a"]))");
  std::string error;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    error = diagnostic.str();
    return success();
  });
  EXPECT_TRUE(failed(pipeline::restore(*module)));
  EXPECT_THAT(error, HasSubstr("lists a module without its class"));
}

// Where brackets are fewest, and there as late as possible. A string has no
// place for a break, and a location stays with the types.
TEST(BrokenLines, BreakBetweenParts) {
  EXPECT_EQ(
      pipeline::brokenLines("  %y = nn.a %x, %z {b = \"1, 2 {, 3\", c = 4} "
                            ": (t<4, f>, t<4, f>) -> t<4, f> loc(#a)\n",
                            48),
      "  %y = nn.a %x, %z {b = \"1, 2 {, 3\", c = 4}\n"
      "          : (t<4, f>, t<4, f>)\n"
      "          -> t<4, f> loc(#a)\n");
}

TEST(BrokenLines, KeepBracketsOfRegions) {
  EXPECT_EQ(pipeline::brokenLines("func.func @f(%a: t, %b: t) -> t {\n", 32),
            "func.func @f(%a: t, %b: t)\n        -> t {\n");
}

TEST(BrokenLines, GiveEachAttributeOfAModuleALine) {
  EXPECT_EQ(
      pipeline::brokenLines("module attributes {a = {b = 1, c = 2}, d = [3, "
                            "4]} {\n}\n",
                            40),
      "module attributes {a = {b = 1, c = 2},\n"
      "        d = [3, 4]} {\n}\n");
}

TEST(CostNotes, KeepAllDigits) {
  for (double us : {0.0, 0.017, 59.341, 1258.2911999999999, 1e-9, 1e21}) {
    fsdp::CostNote note{us, 5, std::nullopt};
    auto again = fsdp::CostNote::parse(note.print());
    ASSERT_TRUE(again) << note.print();
    EXPECT_EQ(again->us, us);
    EXPECT_FALSE(again->flops);
  }
}

TEST(CostNotes, RefuseOtherTexts) {
  for (const char *text :
       {"", "1 us", "1 us, 2 bytes, ", "-1 us, 2 bytes", "1 us, -2 bytes",
        "nan us, 2 bytes", "inf us, 2 bytes", "1 us, 2 bytes, 3 flops ",
        "1 us,2 bytes"})
    EXPECT_FALSE(fsdp::CostNote::parse(text)) << text;
}

} // namespace
