// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// build-update: builds @update: the norm over all layouts, the factor that
// averages and clips the gradients, the factors, sums over whole parameters and
// updates of whole matrices that an optimizer takes, and for each layout the
// program of its optimizer (optimizers/): that of the options, or of a --group.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/OptimizerInputs.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/options/Options.h"
#include "passes/shard/optimizers/Programs.h"
#include "runtime/abi/norm_digits.h"

#include <array>

namespace fsdpc::passes {
#define GEN_PASS_DEF_BUILDUPDATE
#include "passes/shard/Passes.h.inc"

using namespace mlir;

namespace {

// Fills the region of an op with what `build` makes of the arguments: two
// elements (parameter and gradient), the variance if there are factors or the
// update if it is of whole matrices, the states, three scalars, the sums that
// the program takes, and a random word if the parameter is rounded. The
// parameter has the type `stored`, and `build` gets it in f32.
template <typename Build>
void buildProgram(Region &region, Location loc, const OptimizerProgram &program,
                  ArrayRef<StringRef> sums, bool rounds, Type stored,
                  const Build &build) {
  Block &body = region.emplaceBlock();
  OpBuilder inner = OpBuilder::atBlockEnd(&body);
  auto add = [&](Type type, ArrayRef<StringRef> names) {
    for (StringRef name : names)
      body.addArgument(type, NameLoc::get(inner.getStringAttr(name), loc));
  };
  ArrayRef<StringRef> states = program.states();
  add(stored, {"parameter"});
  add(inner.getF32Type(), {"gradient"});
  bool takesNumber = program.isFactored() || program.isOrthogonal();
  if (takesNumber)
    add(inner.getF32Type(), {program.isFactored() ? "variance" : "update"});
  add(inner.getF32Type(), states);
  add(inner.getF64Type(), {"lr", "step", "decay"});
  add(inner.getF64Type(), sums);
  if (rounds)
    add(inner.getI32Type(), {"word"});
  Arguments arguments(body, states.size(), takesNumber, rounds);
  if (!stored.isF32())
    arguments.parameter = arith::ExtFOp::create(inner, loc, inner.getF32Type(),
                                                arguments.parameter);
  Results results = build(Scalars{inner, loc}, arguments);
  fsdp::YieldOp::create(inner, loc, results);
}

// Ops of @update name layouts by symbols, since their memory is not a value.
SmallVector<Attribute> namesOf(ArrayRef<fsdp::LayoutOp> layouts) {
  SmallVector<Attribute> names;
  for (fsdp::LayoutOp layout : layouts)
    names.push_back(FlatSymbolRefAttr::get(layout));
  return names;
}

// Declares the buffers that hold a parameter's factors, behind the layouts.
LogicalResult declareFactors(fsdp::LayoutOp layout, SymbolTable &symbols) {
  OpBuilder builder(layout->getContext());
  builder.setInsertionPointAfter(layout);
  for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
    auto parameter =
        symbols.lookup<fsdp::ParameterOp>(member.getParameter().getValue());
    for (const fsdp::FactorBuffer &factor : fsdp::factorBuffersOf(parameter)) {
      // Buffers are tensors of checkpoints, under one namespace with the
      // model's own.
      std::string symbol = fsdp::symbolOfTensor(factor.name);
      if (symbols.lookup(symbol))
        return parameter.emitOpError("needs a buffer '")
               << factor.name << "' for the optimizer's state, but the model "
               << "has a tensor of that name; rename the latter";
      auto buffer = fsdp::BufferOp::create(
          builder, parameter.getLoc(), builder.getStringAttr(symbol),
          TypeAttr::get(factor.type), UnitAttr(), ArrayAttr(),
          fsdp::SourceAttr(), builder.getStringAttr("zeros"), ElementsAttr(),
          builder.getUnitAttr(), /*calls=*/IntegerAttr());
      symbols.insert(buffer);
    }
  }
  return success();
}

// Builds the factors of the members of all layouts of a program, whose sums are
// added up over the ranks by one all-reduce. Null if the program takes none.
FailureOr<fsdp::UpdateFactorsOp> buildFactors(OpBuilder &builder, Location loc,
                                              const OptimizerProgram &program,
                                              ArrayRef<fsdp::LayoutOp> layouts,
                                              Value scale,
                                              SymbolTable &symbols) {
  if (!program.isFactored() || layouts.empty())
    return fsdp::UpdateFactorsOp();
  // The vectors hold the numbers of one member behind those of the other, over
  // all layouts: one message instead of one per parameter.
  int64_t count = 0, sumCount = 0;
  for (fsdp::LayoutOp layout : layouts) {
    if (failed(declareFactors(layout, symbols)))
      return failure();
    count += fsdp::factorsOf(layout, symbols);
    sumCount += fsdp::factorSumsOf(layout, symbols);
  }
  auto type = RankedTensorType::get({sumCount}, builder.getF64Type());
  ArrayAttr names = builder.getArrayAttr(namesOf(layouts));
  const fsdp::CompileOptions &options = program.own();
  auto sums = fsdp::FactorSumsOp::create(
      builder, loc, type, names, scale,
      builder.getF64FloatAttr(options.clipGradValue));
  // A factor is a mean over rows or columns that several ranks hold.
  auto all = fsdp::AllReduceOp::create(builder, loc, type, sums.getResult());
  return fsdp::UpdateFactorsOp::create(
      builder, loc, RankedTensorType::get({count}, builder.getF64Type()), names,
      all.getResult(), builder.getF64FloatAttr(options.eps1),
      builder.getF64FloatAttr(options.beta2Decay));
}

// Values that an optimizer's program reads of whole parameters, added up over
// the ranks: factors, and sums by one all-reduce, with the places of each
// layout's. They are null if the program reads none.
struct WholeSums {
  Value factors, sums;
  fsdp::Places factorsBegin, sumsBegin;
};

// A program reads parameters of one type, so `layouts` all have masters, or
// none has.
WholeSums buildSums(OpBuilder &builder, Location loc,
                    const OptimizerProgram &program,
                    ArrayRef<fsdp::LayoutOp> layouts, Value scale,
                    fsdp::UpdateFactorsOp factors, SymbolTable &symbols) {
  WholeSums whole;
  if (factors) {
    whole.factors = factors.getResult();
    whole.factorsBegin = fsdp::placesOfFactors(factors, symbols);
  }
  if (program.sums().empty() || layouts.empty())
    return whole;
  SmallVector<Attribute> names = namesOf(layouts);
  int64_t members = 0;
  for (fsdp::LayoutOp layout : layouts)
    members += layout.getMembers().size();
  fsdp::LayoutOp first = layouts.front();
  Type stored = first.getNoMaster() ? Type(builder.getBF16Type())
                                    : Type(builder.getF32Type());
  // Members in the order of the layouts; the sums of one member follow each
  // other. Each is a row of digits, as those of the norm.
  int64_t perMember = program.sums().size();
  auto type = RankedTensorType::get({members * perMember, normDigits},
                                    builder.getF64Type());
  auto sums = fsdp::MemberSumsOp::create(
      builder, loc, type, builder.getArrayAttr(names), scale, whole.factors);
  buildProgram(
      sums.getBody(), loc, program, {}, /*rounds=*/false, stored,
      [&](Scalars s, Arguments in) { return program.buildSums(s, in); });
  whole.sums = fsdp::AllReduceOp::create(builder, loc, type, sums.getResult());
  whole.sumsBegin = fsdp::placesOfSums(sums, symbols);
  return whole;
}

// The updates of a layout's matrices: those of the momentum, which go to the
// matrices' owners, are orthogonalised there and come back. Null if the program
// takes none. The layouts follow each other, so that their memory holds the
// matrices of one at a time.
FailureOr<Value> buildUpdates(OpBuilder &builder,
                              const OptimizerProgram &program,
                              fsdp::LayoutOp layout, Value scale,
                              SymbolTable &symbols) {
  if (!program.isOrthogonal())
    return Value();
  for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
    StringRef name = member.getParameter().getValue();
    auto parameter = symbols.lookup<fsdp::ParameterOp>(name);
    int64_t rank = cast<RankedTensorType>(parameter.getType()).getRank();
    if (rank != 2)
      return parameter.emitOpError("'")
             << name << "' has " << rank << " dimensions, but "
             << program.own().optimizer.name()
             << " updates matrices; give it another optimizer, as with "
                "'--group="
             << name << ": optimizer=adamw'";
  }
  const fsdp::CompileOptions &options = program.own();
  Location loc = layout.getLoc();
  auto name = FlatSymbolRefAttr::get(layout);
  auto flag = [&](bool set) {
    return set ? builder.getUnitAttr() : UnitAttr();
  };
  auto number = [&](double value) { return builder.getF64FloatAttr(value); };
  auto vector = [&](int64_t elements) {
    return RankedTensorType::get({elements}, builder.getF32Type());
  };
  auto part = fsdp::MomentumUpdatesOp::create(
      builder, loc, vector(fsdp::memberElementsOf(layout)), name, scale,
      number(options.momentum()), number(options.clipGradValue),
      flag(options.usesNesterov()), flag(options.maximize));
  auto whole = fsdp::CollectMatricesOp::create(builder, loc, part.getType(),
                                               name, part.getResult());
  fsdp::NumberTriple by = options.nsCoefficients;
  auto own = fsdp::OrthogonalizeOp::create(
      builder, loc, vector(fsdp::orthogonalElementsOf(layout)), name,
      whole.getResult(), number(by.a), number(by.b), number(by.c),
      number(options.eps()),
      builder.getI32IntegerAttr(int32_t(options.nsSteps)),
      builder.getStringAttr(fsdp::nameOf(options.adjustLr)),
      flag(options.productType == fsdp::ProductType::BF16));
  return fsdp::SpreadMatricesOp::create(builder, loc, own.getType(), name,
                                        own.getResult())
      .getResult();
}

// Builds the op of one layout, with the program of its optimizer in the region.
void buildOptimizer(OpBuilder &builder, const OptimizerProgram &program,
                    fsdp::LayoutOp layout, Value scale, const WholeSums &whole,
                    Value updates) {
  Location loc = layout.getLoc();
  auto name = FlatSymbolRefAttr::get(layout);
  IntegerAttr first, firstFactor;
  // This layout's sums begin at row `first` of the vector over all layouts.
  if (whole.sums)
    first = builder.getI64IntegerAttr(whole.sumsBegin.at(name));
  if (whole.factors)
    firstFactor = builder.getI64IntegerAttr(whole.factorsBegin.at(name));
  auto optimizer = fsdp::OptimizerOp::create(
      builder, loc, name, scale, whole.sums, first, whole.factors, firstFactor,
      updates, /*gradient=*/Value());
  buildProgram(optimizer.getBody(), loc, program, program.sums(),
               layout.getNoMaster(), builder.getF32Type(),
               [&](Scalars s, Arguments in) { return program.build(s, in); });
}

// Builds the norm over all layouts and returns the scale of the gradients.
Value buildScale(OpBuilder &builder, Location loc, ArrayRef<Attribute> names,
                 double maxNorm) {
  ArrayAttr all = builder.getArrayAttr(names);
  // One row per layout; several digits of f64, whose sum is exact, so that
  // the norm does not depend on the number of ranks.
  auto sumsType = RankedTensorType::get(
      {static_cast<int64_t>(names.size()), normDigits}, builder.getF64Type());
  // The norm is global, over all layouts. With a limit of 0 the scale still is
  // computed, since it also holds the factor 1/V.
  auto partial = fsdp::SumSquaresOp::create(builder, loc, sumsType, all);
  auto sums =
      fsdp::AllReduceOp::create(builder, loc, sumsType, partial.getResult());
  return fsdp::ClipScaleOp::create(
             builder, loc, RankedTensorType::get({}, builder.getF32Type()), all,
             sums.getResult(), builder.getF64FloatAttr(maxNorm))
      .getScale();
}

// Returns the layouts that each program updates, those with masters and those
// without. Emits an error if a layout has the group of none.
using LayoutsByMaster = std::array<SmallVector<fsdp::LayoutOp>, 2>;
FailureOr<std::vector<LayoutsByMaster>>
layoutsByProgram(ArrayRef<fsdp::LayoutOp> layouts, size_t programs) {
  std::vector<LayoutsByMaster> ofProgram(programs);
  for (fsdp::LayoutOp layout : layouts) {
    size_t group = layout.getGroup().value_or(0);
    if (group >= programs)
      return layout.emitOpError() << "has group " << group << ", but there are "
                                  << programs - 1 << " of --group";
    ofProgram[group][layout.getNoMaster()].push_back(layout);
  }
  return ofProgram;
}

// Builds the sums that the programs take, then an optimizer per layout.
LogicalResult buildOptimizers(OpBuilder &builder, Location loc,
                              ArrayRef<OptimizerProgram> programs,
                              ArrayRef<fsdp::LayoutOp> layouts, Value scale,
                              SymbolTable &symbols) {
  // Each program sums over the members of its own layouts.
  auto ofProgram = layoutsByProgram(layouts, programs.size());
  if (failed(ofProgram))
    return failure();
  std::vector<std::array<WholeSums, 2>> sums(programs.size());
  for (auto [program, own, found] : llvm::zip_equal(programs, *ofProgram, sums))
    for (auto [ofMaster, both] : llvm::zip_equal(own, found)) {
      auto factors =
          buildFactors(builder, loc, program, ofMaster, scale, symbols);
      if (failed(factors))
        return failure();
      both =
          buildSums(builder, loc, program, ofMaster, scale, *factors, symbols);
    }
  // In the order of layouts, that is of units, whatever their groups. A
  // whole-matrix update stands directly before the optimizer that takes it.
  for (fsdp::LayoutOp layout : layouts) {
    size_t group = layout.getGroup().value_or(0);
    const OptimizerProgram &program = programs[group];
    auto updates = buildUpdates(builder, program, layout, scale, symbols);
    if (failed(updates))
      return failure();
    buildOptimizer(builder, program, layout, scale,
                   sums[group][layout.getNoMaster()], *updates);
  }
  return success();
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
    // A run with nothing to train is a mistake in the patterns far more often
    // than a wish.
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
    Value scale = buildScale(builder, loc, names, options.clipGradNorm);
    SymbolTable symbols(module);
    if (failed(
            buildOptimizers(builder, loc, *programs, layouts, scale, symbols)))
      return signalPassFailure();
    func::ReturnOp::create(builder, loc);
  }
};

} // namespace
} // namespace fsdpc::passes
