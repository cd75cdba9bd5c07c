// build-update: builds @update: the norm over all layouts, the factor that
// averages and clips the gradients, the sums over whole parameters that an
// optimizer takes, and for each layout the program of its optimizer
// (optimizers/): that of the options, or of a --group.
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

// Fills the region of an op with what `build` makes of the arguments: two
// elements (parameter and gradient), the states, three scalars, and the sums
// that the program takes.
template <typename Build>
void buildProgram(Region &region, Location loc, const OptimizerProgram &program,
                  ArrayRef<StringRef> sums, const Build &build) {
  Block &body = region.emplaceBlock();
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  auto add = [&](Type type, ArrayRef<StringRef> names) {
    for (StringRef name : names)
      body.addArgument(type, NameLoc::get(inner.getStringAttr(name), loc));
  };
  ArrayRef<StringRef> states = program.states();
  add(inner.getF32Type(), {"parameter", "gradient"});
  add(inner.getF32Type(), states);
  add(inner.getF64Type(), {"lr", "step", "decay"});
  add(inner.getF64Type(), sums);
  Results results = build(Scalars{inner, loc}, Arguments(body, states.size()));
  fsdp::YieldOp::create(inner, loc, results);
}

// Sums over the members of all layouts of a program, added up over the ranks by
// one all-reduce.
struct WholeSums {
  fsdp::MemberSumsOp ofRank;
  Value ofAll; // null if the program takes no sums
};

WholeSums buildSums(OpBuilder &builder, Location loc,
                    const OptimizerProgram &program,
                    ArrayRef<fsdp::LayoutOp> layouts, Value scale) {
  if (program.sums().empty() || layouts.empty())
    return {};
  SmallVector<Attribute> names;
  int64_t members = 0;
  for (fsdp::LayoutOp layout : layouts) {
    names.push_back(FlatSymbolRefAttr::get(layout));
    members += layout.getMembers().size();
  }
  int64_t perMember = program.sums().size();
  auto type =
      RankedTensorType::get({members * perMember}, builder.getF64Type());
  auto sums = fsdp::MemberSumsOp::create(builder, loc, type,
                                         builder.getArrayAttr(names), scale);
  buildProgram(sums.getBody(), loc, program, {}, [&](Scalars s, Arguments in) {
    return program.buildSums(s, in);
  });
  auto all = fsdp::AllReduceOp::create(builder, loc, type, sums.getResult());
  return {sums, all.getResult()};
}

// Builds the op of one layout, with the program of its optimizer in the region.
void buildOptimizer(OpBuilder &builder, const OptimizerProgram &program,
                    fsdp::LayoutOp layout, Value scale, WholeSums sums) {
  Location loc = layout.getLoc();
  auto name = FlatSymbolRefAttr::get(layout);
  IntegerAttr first;
  if (sums.ofAll)
    first = builder.getI64IntegerAttr(*sums.ofRank.getFirstSum(name));
  auto optimizer =
      fsdp::OptimizerOp::create(builder, loc, name, scale, sums.ofAll, first);
  buildProgram(optimizer.getBody(), loc, program, program.sums(),
               [&](Scalars s, Arguments in) { return program.build(s, in); });
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
    auto programs = programsOf(options, &getContext());
    if (failed(programs))
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
    // Each program sums over the members of its own layouts.
    std::vector<SmallVector<fsdp::LayoutOp>> ofProgram(programs->size());
    for (fsdp::LayoutOp layout : layouts) {
      size_t group = layout.getGroup().value_or(0);
      if (group >= programs->size()) {
        layout.emitOpError() << "has group " << group << ", but there are "
                             << programs->size() - 1 << " of --group";
        return signalPassFailure();
      }
      ofProgram[group].push_back(layout);
    }
    std::vector<WholeSums> wholeSums;
    for (auto [program, own] : llvm::zip_equal(*programs, ofProgram))
      wholeSums.push_back(
          buildSums(builder, loc, program, own, clip.getScale()));
    for (fsdp::LayoutOp layout : layouts) {
      size_t group = layout.getGroup().value_or(0);
      buildOptimizer(builder, (*programs)[group], layout, clip.getScale(),
                     wholeSums[group]);
    }
    func::ReturnOp::create(builder, loc);
  }
};

} // namespace
} // namespace fsdpc::passes
