// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// shard-parameters: replaces parameters with flat layouts. A layout is the
// FlatParameter of PyTorch FSDP: the members of a unit in one buffer, of which
// each rank owns an equal part. Members of different strategies have layouts of
// their own, since a buffer is gathered and reduced as a whole, and so have
// members of different optimizers, since a buffer is updated by one program,
// those that --keep-f32 leaves in f32, and those that are stored. Members are
// aligned so that kernels can read them in place. GradientPacker.h packs the
// gradients of a layout.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Compression.h"
#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/options/OptionTypes.h"
#include "compiler/options/Options.h"
#include "passes/shard/GradientPacker.h"
#include "passes/shard/MemberRates.h"
#include "passes/shard/optimizers/Programs.h"
#include "runtime/support/concat.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#include <compare>
#include <map>

namespace fsdpc::passes {
#define GEN_PASS_DEF_SHARDPARAMETERS
#include "passes/shard/Passes.h.inc"

using namespace mlir;

namespace {

// Lays out the parameters of one function and rewrites its loads and gradients.
// It creates fsdp.layout symbols after the units.
class Sharder {
public:
  Sharder(ModuleOp module, func::FuncOp function,
          const fsdp::CompileOptions &options, fsdp::NamePatterns ignored,
          ArrayRef<OptimizerProgram> programs, const ReduceHooks &hooks)
      : module(module), symbols(module), body(function.front()),
        options(options), programs(programs), hooks(hooks), strategies(options),
        ignored(std::move(ignored)) {}

  // `evaluate` (may be null) reads the same layouts and has no gradients.
  LogicalResult run(func::FuncOp evaluate) {
    GradientPacker packer(body, symbols, options, hooks);
    // First of all: it decides which parameters are frozen, which rates and
    // layouts depend on.
    packer.findGradients(module);
    auto found = MemberRates::of(module, body);
    if (failed(found))
      return failure();
    rates = std::move(*found);
    if (failed(createLayouts()))
      return failure();
    viewMembers(body);
    if (evaluate)
      viewMembers(evaluate.front());
    SmallVector<fsdp::LayoutOp> trainable;
    for (auto &[name, layout] : layouts)
      if (layout.getTrainable())
        trainable.push_back(layout);
    copies = packer.pack(trainable);
    return success();
  }

  int64_t copies = 0;
  size_t layoutCount() const { return layouts.size(); }

private:
  // The properties that the members of a layout share, in the order of layouts:
  // by unit, trainable ones first, and the unit's own strategy and the
  // optimizer of the options before others. Compared member by member in this
  // order, so std::map iterates over groups in the order of layouts.
  struct Group {
    unsigned unit;
    bool frozen, deviates;
    fsdp::Strategy strategy;
    size_t program; // number of a --group, or 0
    bool keptF32;
    bool stored;
    auto operator<=>(const Group &) const = default;
  };

  // A parameter has the strategy of its unit, unless it is ignored, or small
  // and would be gathered: gathers of small parameters cost their latency.
  fsdp::Strategy strategyOf(fsdp::ParameterOp parameter) {
    // Every rank holds an ignored parameter and its state.
    if (matches(ignored, parameter))
      return fsdp::unsharded();
    fsdp::Strategy own = ofUnit.lookup(*parameter.getUnit());
    // In elements, as stage3_param_persistence_threshold of DeepSpeed.
    int64_t elements = cast<ShapedType>(parameter.getType()).getNumElements();
    return elements < options.persist ? fsdp::persistent(own) : own;
  }

  // Each unit gets a layout for its trainable and one for its frozen
  // parameters, as only the former have gradients and optimizer states, and
  // more for parameters of other strategies, optimizers or types. The order of
  // members decides the offsets. First use keeps parameters that are
  // read together close, and does not depend on names.
  LogicalResult createLayouts() {
    // Parameters in order of first use, then those that are not used.
    llvm::SetVector<Operation *> parameters;
    for (auto load : body.getOps<fsdp::LoadOp>())
      if (auto parameter = symbols.lookup<fsdp::ParameterOp>(load.getSymbol()))
        parameters.insert(parameter);
    SmallVector<StringRef> names;
    for (auto parameter : module.getOps<fsdp::ParameterOp>()) {
      parameters.insert(parameter);
      names.push_back(nameOf(parameter));
      if (!parameter.getUnitAttr())
        return parameter.emitOpError("has no unit; run form-units first");
    }
    SmallVector<StringRef> units;
    llvm::StringMap<unsigned> unitNumber;
    for (auto unit : module.getOps<fsdp::UnitOp>()) {
      lastSymbol = unit;
      StringRef name = unit.getSymName();
      unitNumber[name] = units.size();
      units.push_back(name);
      ofUnit[name] = strategies.of(name);
    }
    std::map<Group, SmallVector<fsdp::ParameterOp>> groups;
    for (Operation *op : parameters) {
      auto parameter = cast<fsdp::ParameterOp>(op);
      StringRef unit = *parameter.getUnit();
      fsdp::Strategy strategy = strategyOf(parameter);
      groups[{unitNumber.lookup(unit), !parameter.getTrainable(),
              strategy != ofUnit.lookup(unit), strategy,
              rates.programOf(parameter),
              !parameter.getStored() && fsdp::keepsF32(parameter),
              parameter.getStored()}]
          .push_back(parameter);
    }
    for (auto &[group, members] : groups)
      for (auto [part, cut] : llvm::enumerate(cutMembers(group, members)))
        createLayout(units[group.unit], group, part, cut);
    // After the layouts, which have matched all patterns.
    if (failed(strategies.checkUsed(module.getLoc(), units)) ||
        failed(ignored.checkUsed(module.getLoc(), names, "parameter")) ||
        failed(checkGathers()) || failed(checkCompression()))
      return failure();
    return success();
  }

  // Only the shapes of parameters say what some kinds make smaller.
  LogicalResult checkCompression() {
    const fsdp::ReduceHook *hook = fsdp::residualHook(options);
    if (!hook || !hook->compression->noEffect ||
        llvm::any_of(layouts, [](auto &entry) {
          return bool(fsdp::compressionOf(entry.second));
        }))
      return success();
    return emitError(module.getLoc(), "'--reduce-hook=")
           << fsdp::printHook(*hook)
           << "' has no effect: " << hook->compression->noEffect;
  }

  // Options about gathers need something that is gathered. The check of the
  // command line sees strategies, but not which units and parameters have them.
  LogicalResult checkGathers() {
    auto isGathered = [](auto &entry) {
      return entry.second->gathersWeights();
    };
    if (options.persist > 0 && llvm::none_of(ofUnit, isGathered))
      return emitError(module.getLoc(),
                       "--persist has no effect: "
                       "--strategy-of leaves no unit to zero3");
    bool gathers = llvm::any_of(layouts, [](auto &entry) {
      return !fsdp::keepsWhole(entry.second, "compute");
    });
    if (options.limitAllGathers > 0 && !gathers)
      return emitError(module.getLoc(), "--limit-all-gathers has no effect: no "
                                        "layout is gathered under zero3");
    return success();
  }

  // Cuts the members of a layout into runs of at most --layout-size elements,
  // so that gradients of one run are reduced, and their memory ends, before
  // those of the next exist. A larger parameter is a run of its own, and so is
  // each with --layout=parameter, and each that one rank owns.
  SmallVector<ArrayRef<fsdp::ParameterOp>>
  cutMembers(const Group &group, ArrayRef<fsdp::ParameterOp> members) {
    bool alone =
        options.layout == fsdp::LayoutKind::Parameter ||
        (group.strategy->over == fsdp::CutOver::Owner && !group.frozen);
    if (options.layoutSize == 0 && !alone)
      return {members};
    SmallVector<ArrayRef<fsdp::ParameterOp>> runs;
    size_t first = 0;
    int64_t end = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      fsdp::ParameterOp member = members[i];
      int64_t begin =
          llvm::alignTo(end, fsdp::memberAlignment(options, group.stored));
      int64_t elements = fsdp::memberSizeOf(member);
      if (i > first && (alone || begin + elements > options.layoutSize)) {
        runs.push_back(members.slice(first, i - first));
        first = i;
        begin = 0;
      }
      end = begin + elements;
    }
    runs.push_back(members.drop_front(first));
    return runs;
  }

  // Returns what the optimizer of the members keeps and takes; null if they are
  // frozen.
  fsdp::OptimizerAttr optimizerOf(const Group &group) {
    if (group.frozen)
      return {};
    const OptimizerProgram &program = programs[group.program];
    Builder attrs(module.getContext());
    return fsdp::OptimizerAttr::get(
        module.getContext(),
        attrs.getStrArrayAttr(program.states().drop_back(options.ema > 0)),
        program.sums().size(), program.isFactored(), program.isOrthogonal());
  }

  // Places the members in order, each at a multiple of memberAlignment.
  // Rate and decay are properties of the member, since --group and --no-decay
  // concern single parameters of a unit. `part` numbers the runs of one group.
  void createLayout(StringRef unit, const Group &group, size_t part,
                    ArrayRef<fsdp::ParameterOp> parameters) {
    bool trainable = !group.frozen;
    Builder attrs(module.getContext());
    SmallVector<Attribute> members;
    MemberShapes shapes;
    int64_t end = 0;
    for (fsdp::ParameterOp parameter : parameters) {
      shapes.push_back(
          cast<RankedTensorType>(parameter.getType()).getShape().vec());
      int64_t offset =
          llvm::alignTo(end, fsdp::memberAlignment(options, group.stored));
      int64_t elements = fsdp::memberSizeOf(parameter);
      members.push_back(fsdp::MemberAttr::get(
          module.getContext(), FlatSymbolRefAttr::get(parameter), offset,
          elements, attrs.getF64FloatAttr(rates.rateOf(parameter)),
          attrs.getF64FloatAttr(rates.decayOf(parameter))));
      end = offset + elements;
    }
    auto unitOp = symbols.lookup<fsdp::UnitOp>(unit);
    // Unique, since each name says in what the group differs from the unit's
    // first.
    std::string name = (unit + (trainable ? ".flat" : ".frozen")).str();
    if (group.deviates)
      name += "." + nameOf(group.strategy).str();
    if (group.program)
      name += concat(".group", group.program);
    if (group.keptF32)
      name += ".f32";
    if (group.stored)
      name += ".bytes";
    if (part)
      name += concat(".part", part);
    OpBuilder builder(module.getContext());
    // The average is a state too, and follows those of the optimizer.
    bool average = trainable && options.ema > 0;
    fsdp::OptimizerAttr optimizer = optimizerOf(group);
    int64_t states = optimizer ? optimizer.getStates().size() + average : 0;
    Type wire = fsdp::wireTypeOf(fsdp::gatheredBy(group.strategy,
                                                  group.keptF32 || group.stored,
                                                  options),
                                 module.getContext());
    Type compute = group.stored ? Type(builder.getIntegerType(8, false))
                                : builder.getF32Type();
    fsdp::CompressionAttr compression;
    if (trainable)
      if (Compression wanted = fsdp::wantedCompression(options, end, shapes))
        compression = fsdp::CompressionAttr::get(module.getContext(),
                                                 wanted.kind, wanted.amount);
    // Layouts stand behind the units and in their order.
    builder.setInsertionPointAfter(lastSymbol);
    auto layout = fsdp::LayoutOp::create(
        builder, unitOp.getLoc(), builder.getStringAttr(name),
        FlatSymbolRefAttr::get(unitOp),
        group.strategy == options.strategy
            ? StringAttr()
            : builder.getStringAttr(nameOf(group.strategy)),
        group.program ? builder.getI64IntegerAttr(group.program)
                      : IntegerAttr(),
        trainable ? builder.getUnitAttr() : UnitAttr(),
        builder.getI64IntegerAttr(end), TypeAttr::get(compute),
        wire ? TypeAttr::get(wire) : TypeAttr(), compression,
        /*no_master=*/UnitAttr(), builder.getI64IntegerAttr(states),
        average ? builder.getUnitAttr() : UnitAttr(),
        /*offloaded=*/ArrayAttr(),
        /*secondary=*/UnitAttr(), builder.getArrayAttr(members), optimizer,
        builder.getStrArrayAttr(
            fsdp::replicatedBy(group.strategy, options, trainable)));
    if (fsdp::leavesUnsummed(layout, options, symbols))
      layout->setAttr(fsdp::kUnsummedAttr, builder.getUnitAttr());
    symbols.insert(layout);
    lastSymbol = layout;
    layouts[layout.getSymName()] = layout;
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
      memberOf[member.getParameter()] = {layout, member.getOffset()};
  }

  void viewMembers(Block &block) {
    for (Operation &op : llvm::make_early_inc_range(block))
      if (auto load = dyn_cast<fsdp::LoadOp>(op))
        viewMember(load);
  }

  // Replaces a load with a view of the layout's flat buffer.
  void viewMember(fsdp::LoadOp load) {
    auto it = memberOf.find(load.getSymbolAttr());
    if (it == memberOf.end())
      return;
    // Each load gets a flat of its own, in its own unit;
    // materialize-collectives decides which of them share a gather.
    auto [layout, offset] = it->second;
    OpBuilder builder(load);
    auto flat =
        fsdp::FlatOp::create(builder, load.getLoc(), fsdp::getFlatType(layout),
                             FlatSymbolRefAttr::get(layout));
    auto view = fsdp::ViewOp::create(
        builder, load.getLoc(), load.getResult().getType(), flat.getResult(),
        load.getSymbolAttr(), builder.getI64IntegerAttr(offset));
    // Both keep the unit of the load, and whether it is in the backward.
    flat->setDiscardableAttrs(load->getDiscardableAttrDictionary());
    view->setDiscardableAttrs(load->getDiscardableAttrDictionary());
    load.replaceAllUsesWith(view.getResult());
    load.erase();
  }

  ModuleOp module;
  SymbolTable symbols;
  Block &body;
  const fsdp::CompileOptions &options;
  ArrayRef<OptimizerProgram> programs; // of the options, and of each --group
  const ReduceHooks &hooks;
  fsdp::UnitStrategies strategies;
  llvm::StringMap<fsdp::Strategy> ofUnit;
  fsdp::NamePatterns ignored;
  MemberRates rates;
  // The layouts in the order of their creation.
  llvm::MapVector<StringRef, fsdp::LayoutOp> layouts;
  Operation *lastSymbol = nullptr;
  // By the parameter's symbol: its layout and its offset there, in elements.
  llvm::DenseMap<Attribute, std::pair<fsdp::LayoutOp, int64_t>> memberOf;
};

struct ShardParameters : impl::ShardParametersBase<ShardParameters> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto function = fsdp::getMicrobatch(module);
    fsdp::CompileOptions options = fsdp::CompileOptions::of(module);
    auto ignored = fsdp::NamePatterns::compile(module.getLoc(), "ignored",
                                               options.ignored.texts);
    if (failed(function) || failed(ignored))
      return signalPassFailure();
    auto programs = programsOf(options, &getContext());
    auto hooks = ReduceHooks::of(options, &getContext());
    if (failed(programs) || failed(hooks))
      return signalPassFailure();
    Sharder sharder(module, *function, options, std::move(*ignored), *programs,
                    *hooks);
    if (failed(sharder.run(fsdp::findEvaluate(module))))
      return signalPassFailure();
    layouts = sharder.layoutCount();
    copies = sharder.copies;
  }
};

} // namespace
} // namespace fsdpc::passes
