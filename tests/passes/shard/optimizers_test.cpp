// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A row of Optimizers.cpp and a program of its name are all that an optimizer
// needs: its layouts, and what the manifest says of them, follow from the row.
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/nn/NNDialect.h"
#include "compiler/options/Optimizers.h"
#include "passes/shard/Passes.h"
#include "passes/shard/optimizers/Programs.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::fsdp;

namespace {

class OptimizersTest : public testing::Test {
protected:
  OptimizersTest() {
    context.loadDialect<arith::ArithDialect, func::FuncDialect,
                        math::MathDialect, nn::NNDialect, FSDPDialect>();
  }

  // Returns a module with a matrix, up to @update, or null if a pass or a rule
  // of verify-shard fails. `options` are those beside `optimizer`.
  OwningOpRef<ModuleOp> build(StringRef optimizer, const Twine &options = "") {
    std::string text = ("module attributes {fsdp.options = {optimizer = \"" +
                        optimizer + "\"" + options + R"(}} {
           fsdp.parameter @w : tensor<8x4xf32> trainable unit @u
           fsdp.unit @u
           func.func @microbatch(%g: tensor<8x4xf32>) {
             fsdp.gradient @w, %g {fsdp.unit = @u, fsdp.backward} : tensor<8x4xf32>
             return
           }
         })")
                           .str();
    auto module = parseSourceString<ModuleOp>(text, &context);
    PassManager manager(&context);
    manager.addPass(passes::createShardParameters());
    manager.addPass(passes::createBuildUpdate());
    manager.addPass(passes::createVerifyShard());
    if (!module || failed(manager.run(*module)))
      return {};
    return module;
  }

  MLIRContext context;
};

// Sums have a program that computes them, and only sums.
TEST_F(OptimizersTest, EveryRowHasOneProgram) {
  size_t programs = 0;
  for (ArrayRef<passes::Program> family : passes::allPrograms())
    programs += family.size();
  EXPECT_EQ(programs, allOptimizers().size());
  for (const OptimizerInfo &info : allOptimizers()) {
    size_t found = 0;
    for (ArrayRef<passes::Program> family : passes::allPrograms())
      for (const passes::Program &program : family)
        if (program.optimizer == info.name) {
          ++found;
          EXPECT_EQ(program.buildSums != nullptr, !info.sums.empty())
              << info.name.str();
        }
    EXPECT_EQ(found, 1u) << info.name.str();
  }
}

TEST_F(OptimizersTest, EveryRowReachesTheManifest) {
  for (const OptimizerInfo &info : allOptimizers()) {
    OwningOpRef<ModuleOp> module = build(info.name);
    ASSERT_TRUE(module) << info.name.str();
    Manifest manifest = describeModule(*module);
    ASSERT_EQ(manifest.layouts.size(), 1u);
    const Layout &layout = manifest.layouts[0];
    EXPECT_EQ(layout.optimizer, info.name.str());
    std::vector<std::string> names;
    for (StringRef name : stateNames(CompileOptions::of(*module)))
      names.push_back(name.str());
    EXPECT_EQ(layout.stateNames, names) << info.name.str();
    EXPECT_EQ(layout.states, int32_t(names.size()));
    EXPECT_EQ(layout.sums, int32_t(namesIn(info.sums).size()));
    EXPECT_EQ(layout.factored, info.isFactored);
    EXPECT_EQ(layout.orthogonal, info.isOrthogonal);
  }
}

// A condition of a state is a hyperparameter of the same optimizer, and decides
// alone whether the program keeps the state.
TEST_F(OptimizersTest, HyperparametersSwitchStatesOn) {
  size_t conditions = 0;
  for (const OptimizerInfo &info : allOptimizers())
    for (StringRef state : namesIn(info.states)) {
      auto [name, option] = state.split('?');
      if (option.empty())
        continue;
      ++conditions;
      EXPECT_TRUE(takes(info, option)) << state.str();
      bool isNumber = option == "momentum";
      for (bool on : {false, true}) {
        std::string value = isNumber ? on ? "0.5 : f64" : "0.0 : f64"
                            : on     ? "true"
                                     : "false";
        auto module = build(info.name, ", " + option + " = " + value);
        ASSERT_TRUE(module) << state.str();
        const Layout layout = describeModule(*module).layouts[0];
        EXPECT_EQ(llvm::is_contained(layout.stateNames, name.str()), on)
            << info.name.str();
      }
    }
  EXPECT_GE(conditions, 6u);
}

// The average of --ema is a state, but none of the optimizer's.
TEST_F(OptimizersTest, TheAverageHasNoName) {
  OwningOpRef<ModuleOp> module = build("adamw", ", ema = 0.5 : f64");
  ASSERT_TRUE(module);
  const Layout layout = describeModule(*module).layouts[0];
  EXPECT_EQ(layout.states, 3);
  EXPECT_EQ(layout.stateNames.size(), 2u);
}

} // namespace
