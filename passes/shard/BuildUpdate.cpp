// build-update: builds @update: the norm over all layouts, the factor that
// averages and clips the gradients, and for each layout the program of the
// optimizer (optimizers/).
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Options.h"
#include "passes/shard/optimizers/Programs.h"
#include "shared/norm_digits.h"

namespace fsdpc::passes {
#define GEN_PASS_DEF_BUILDUPDATE
#include "passes/shard/Passes.h.inc"

using namespace mlir;

namespace {

// Builds the op of one layout, with the program of the chosen optimizer in its
// region.
void buildOptimizer(OpBuilder &builder, const OptimizerProgram &program,
                    fsdp::LayoutOp layout, Value scale) {
  auto optimizer = fsdp::OptimizerOp::create(
      builder, layout.getLoc(), FlatSymbolRefAttr::get(layout), scale);
  // Two elements (parameter and gradient), the states, and three scalars.
  ArrayRef<StringRef> states = program.states();
  Location loc = layout.getLoc();
  auto named = [&](StringRef name) {
    return NameLoc::get(builder.getStringAttr(name), loc);
  };
  Type element = builder.getF32Type(), number = builder.getF64Type();
  Block &body = optimizer.getBody().emplaceBlock();
  for (StringRef name : {"parameter", "gradient"})
    body.addArgument(element, named(name));
  for (StringRef name : states)
    body.addArgument(element, named(name));
  for (StringRef name : {"lr", "step", "decay"})
    body.addArgument(number, named(name));
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  Results results =
      program.build(Scalars{inner, loc}, Arguments(body, states.size()));
  fsdp::YieldOp::create(inner, loc, results);
}

struct BuildUpdate : impl::BuildUpdateBase<BuildUpdate> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    SmallVector<fsdp::LayoutOp> layouts;
    SmallVector<Attribute> names;
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (layout.getTrainable()) {
        layouts.push_back(layout);
        names.push_back(FlatSymbolRefAttr::get(layout));
      }
    if (layouts.empty()) {
      emitError(module.getLoc(), "no parameter is trained: none has a "
                                 "gradient; check --frozen and --trainable");
      return signalPassFailure();
    }
    auto program = OptimizerProgram::of(options, &getContext());
    if (failed(program))
      return signalPassFailure();
    auto builder = OpBuilder::atBlockEnd(module.getBody());
    Location loc = module.getLoc();
    // The entry function takes no arguments: all that it touches is behind
    // symbols.
    auto function =
        func::FuncOp::create(builder, loc, fsdp::FSDPDialect::kUpdate,
                             builder.getFunctionType({}, {}));
    builder.setInsertionPointToStart(function.addEntryBlock());
    ArrayAttr all = builder.getArrayAttr(names);
    auto sumsType = RankedTensorType::get(
        {static_cast<int64_t>(names.size()), normDigits}, builder.getF64Type());
    // The norm is global, over all layouts. With a limit of 0 the scale still
    // is computed, since it also holds the factor 1/V.
    auto partial = fsdp::SumSquaresOp::create(builder, loc, sumsType, all);
    auto sums =
        fsdp::AllReduceOp::create(builder, loc, sumsType, partial.getResult());
    auto clip = fsdp::ClipScaleOp::create(
        builder, loc, RankedTensorType::get({}, builder.getF32Type()), all,
        sums.getResult(), builder.getF64FloatAttr(options.clipGradNorm));
    for (fsdp::LayoutOp layout : layouts)
      buildOptimizer(builder, *program, layout, clip.getScale());
    func::ReturnOp::create(builder, loc);
  }
};

} // namespace
} // namespace fsdpc::passes
