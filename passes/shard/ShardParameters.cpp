// shard-parameters: replaces parameters with flat layouts. A layout is the
// FlatParameter of PyTorch FSDP: the members of a unit in one buffer, of which
// each rank owns an equal part. Members of different strategies have layouts of
// their own, since a buffer is gathered and reduced as a whole. Members are
// aligned so that kernels can read them in place.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "passes/shard/MemberRates.h"
#include "passes/shard/optimizers/Programs.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

#include <compare>
#include <map>

namespace fsdpc::passes {
#define GEN_PASS_DEF_SHARDPARAMETERS
#include "passes/shard/Passes.h.inc"

using namespace mlir;
using fsdp::FSDPDialect;

namespace {

// Lays out the parameters of one function and rewrites its loads and gradients.
// It creates fsdp.layout symbols after the units.
class Sharder {
public:
  Sharder(ModuleOp module, func::FuncOp function,
          const fsdp::CompileOptions &options, fsdp::NamePatterns ignored,
          int64_t states)
      : module(module), symbols(module), body(function.front()),
        options(options), states(states), strategies(options),
        ignored(std::move(ignored)) {}

  LogicalResult run() {
    findGradients();
    auto found = MemberRates::of(module, body);
    if (failed(found))
      return failure();
    rates = std::move(*found);
    if (failed(createLayouts()))
      return failure();
    for (Operation &op : llvm::make_early_inc_range(body))
      if (auto load = dyn_cast<fsdp::LoadOp>(op))
        viewMember(load);
    SmallVector<fsdp::LayoutOp> trainable;
    for (auto &[name, layout] : layouts)
      if (layout.getTrainable())
        trainable.push_back(layout);
    for (fsdp::LayoutOp layout : trainable)
      findEnd(layout);
    for (fsdp::LayoutOp layout : trainable)
      packGradients(layout);
    return success();
  }

  int64_t copies = 0;
  size_t layoutCount() const { return layouts.size(); }

private:
  // What the members of a layout have in common, in the order of layouts: by
  // unit, trainable ones first, and the unit's own strategy before others.
  struct Group {
    unsigned unit;
    bool frozen, deviates;
    fsdp::Strategy strategy;
    auto operator<=>(const Group &) const = default;
  };

  // A trainable parameter without a gradient joins the frozen ones, with a
  // remark.
  void findGradients() {
    for (auto gradient : body.getOps<fsdp::GradientOp>())
      gradients[gradient.getParameter()] = gradient;
    for (auto parameter : module.getOps<fsdp::ParameterOp>())
      if (parameter.getTrainable() &&
          !gradients.count(parameter.getSymName())) {
        parameter.emitRemark()
            << "no gradient reaches parameter '" << parameter.getSymName()
            << "'; treating it as frozen";
        parameter.setTrainable(false);
      }
  }

  // A parameter has the strategy of its unit, unless it is ignored, or small
  // and would be gathered: gathers of small parameters cost their latency.
  fsdp::Strategy strategyOf(fsdp::ParameterOp parameter) {
    if (ignored.match(parameter))
      return fsdp::Strategy::DDP;
    fsdp::Strategy own = ofUnit.lookup(*parameter.getUnit());
    int64_t elements = cast<ShapedType>(parameter.getType()).getNumElements();
    return elements < options.persist ? fsdp::persistent(own) : own;
  }

  // Each unit gets a layout for its trainable and one for its frozen
  // parameters, as only the former have gradients and optimizer states, and
  // more for parameters of other strategies than the unit's. The order of
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
      names.push_back(parameter.getSymName());
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
              strategy != ofUnit.lookup(unit), strategy}]
          .push_back(parameter);
    }
    for (auto &[group, members] : groups)
      createLayout(units[group.unit], group, members);
    if (failed(strategies.checkUsed(module.getLoc(), units)) ||
        failed(ignored.checkUsed(module.getLoc(), names, "parameter")) ||
        failed(checkGathers()))
      return failure();
    return success();
  }

  // Options about gathers need something that is gathered. The check of the
  // command line sees strategies, but not which units and parameters have them.
  LogicalResult checkGathers() {
    auto isGathered = [](auto &entry) {
      return fsdp::gathersWeights(entry.second);
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

  // Places the members in order, each aligned to kMemberAlignment elements.
  // Rate and decay are properties of the member, since --group and --no-decay
  // concern single parameters of a unit.
  void createLayout(StringRef unit, const Group &group,
                    ArrayRef<fsdp::ParameterOp> parameters) {
    bool trainable = !group.frozen;
    Builder attrs(module.getContext());
    SmallVector<Attribute> members;
    int64_t end = 0;
    for (fsdp::ParameterOp parameter : parameters) {
      int64_t offset = llvm::alignTo(end, fsdp::kMemberAlignment);
      int64_t elements = cast<ShapedType>(parameter.getType()).getNumElements();
      members.push_back(fsdp::MemberAttr::get(
          module.getContext(), FlatSymbolRefAttr::get(parameter), offset,
          elements, attrs.getF64FloatAttr(rates.rateOf(parameter)),
          attrs.getF64FloatAttr(rates.decayOf(parameter))));
      end = offset + elements;
    }
    auto unitOp = symbols.lookup<fsdp::UnitOp>(unit);
    std::string name = (unit + (trainable ? ".flat" : ".frozen")).str();
    if (group.deviates)
      name += "." + nameOf(group.strategy).str();
    OpBuilder builder(module.getContext());
    // Layouts stand behind the units and in their order.
    builder.setInsertionPointAfter(lastSymbol);
    auto layout = fsdp::LayoutOp::create(
        builder, unitOp.getLoc(), builder.getStringAttr(name),
        FlatSymbolRefAttr::get(unitOp),
        group.strategy == options.strategy
            ? StringAttr()
            : builder.getStringAttr(nameOf(group.strategy)),
        trainable ? builder.getUnitAttr() : UnitAttr(),
        builder.getI64IntegerAttr(end), TypeAttr::get(builder.getF32Type()),
        builder.getI64IntegerAttr(trainable ? states : 0),
        builder.getArrayAttr(members),
        builder.getStrArrayAttr(
            fsdp::replicatedBy(group.strategy, options.reduce, trainable)));
    symbols.insert(layout);
    lastSymbol = layout;
    layouts[layout.getSymName()] = layout;
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
      memberOf[member.getParameter()] = {layout, member.getOffset()};
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
    flat->setDiscardableAttrs(load->getDiscardableAttrDictionary());
    view->setDiscardableAttrs(load->getDiscardableAttrDictionary());
    load.replaceAllUsesWith(view.getResult());
    load.erase();
  }

  static Value rootOf(Value value) {
    while (auto reshape = value.getDefiningOp<nn::ReshapeOp>())
      value = reshape.getInput();
    return value;
  }

  // Returns true if the value, or a reshape of it, is read after `end`.
  static bool isReadAfter(Value root, Operation *end) {
    return llvm::any_of(root.getUsers(), [&](Operation *user) {
      return isa<nn::ReshapeOp>(user) ? isReadAfter(user->getResult(0), end)
                                      : end->isBeforeInBlock(user);
    });
  }

  // Returns true if the op that makes `value` can write directly into a pack
  // after `end`. Views, slices and ops without operands do not own the memory
  // of their results. A value can be a member of one pack only.
  bool isPlaceable(Value value, Operation *end) {
    Value root = rootOf(value);
    Operation *op = root.getDefiningOp();
    if (!op || op->getNumOperands() == 0 || isa<fsdp::ViewOp, nn::SliceOp>(op))
      return false;
    return !isReadAfter(root, end) && placed.insert(root).second;
  }

  // Layouts of one unit that are reduced when they are packed are packed at one
  // place, so that they share a reduction.
  std::pair<Attribute, Attribute> endOf(fsdp::LayoutOp layout) {
    bool alone = reducesAtEnd(fsdp::strategyOf(layout, options));
    return {layout.getUnitAttr(),
            alone ? layout.getSymNameAttr() : Attribute()};
  }

  // Moves the end of the layout's gradients behind the last of them.
  void findEnd(fsdp::LayoutOp layout) {
    Operation *&last = ends[endOf(layout)];
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
      Operation *gradient = gradients[member.getParameter().getValue()];
      if (!last || last->isBeforeInBlock(gradient))
        last = gradient;
    }
  }

  // Packs the gradients of a layout after the last of them, and reduces the
  // pack.
  void packGradients(fsdp::LayoutOp layout) {
    SmallVector<fsdp::GradientOp> ops;
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>())
      ops.push_back(gradients[member.getParameter().getValue()]);
    // The pack stands after the last gradient of the layout, when all its
    // members exist.
    Operation *&last = ends[endOf(layout)];
    OpBuilder builder(body.getParentOp()->getContext());
    builder.setInsertionPointAfter(last);
    SmallVector<Operation *> created;
    SmallVector<Value> values;
    for (fsdp::GradientOp gradient : ops) {
      Value value = gradient.getValue();
      if (!isPlaceable(value, last)) {
        // The second copy of a value reads the first copy, if that stands
        // before it. Two parameters may have the same gradient, as two biases
        // that are added have.
        Value &source = lastCopy.try_emplace(value, value).first->second;
        Operation *first = source.getDefiningOp();
        bool isBefore =
            !first || first->isBeforeInBlock(&*builder.getInsertionPoint());
        auto copy =
            nn::CopyOp::create(builder, gradient.getLoc(), value.getType(),
                               isBefore ? source : value);
        value = source = copy.getResult();
        created.push_back(copy);
        ++copies;
      }
      values.push_back(value);
    }
    auto name = FlatSymbolRefAttr::get(layout);
    auto pack = fsdp::PackOp::create(builder, layout.getLoc(),
                                     fsdp::getFlatType(layout), name, values);
    auto reduce = fsdp::ReduceOp::create(builder, layout.getLoc(), name,
                                         pack.getResult());
    created.append({pack, reduce});
    last = reduce;
    for (Operation *op : created) {
      op->setAttr(FSDPDialect::kUnitAttr, layout.getUnitAttr());
      op->setAttr(FSDPDialect::kBackwardAttr, builder.getUnitAttr());
    }
    for (fsdp::GradientOp gradient : ops)
      gradient.erase();
  }

  ModuleOp module;
  SymbolTable symbols;
  Block &body;
  const fsdp::CompileOptions &options;
  int64_t states; // of the optimizer, per element
  fsdp::UnitStrategies strategies;
  llvm::StringMap<fsdp::Strategy> ofUnit;
  fsdp::NamePatterns ignored;
  MemberRates rates;
  llvm::StringMap<fsdp::GradientOp> gradients;
  // The op behind which the next pack of a unit stands.
  llvm::DenseMap<std::pair<Attribute, Attribute>, Operation *> ends;
  llvm::MapVector<StringRef, fsdp::LayoutOp> layouts;
  Operation *lastSymbol = nullptr;
  llvm::DenseMap<Attribute, std::pair<fsdp::LayoutOp, int64_t>> memberOf;
  llvm::DenseSet<Value> placed;
  llvm::DenseMap<Value, Value> lastCopy;
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
    auto program = OptimizerProgram::of(options, &getContext());
    if (failed(program))
      return signalPassFailure();
    Sharder sharder(module, *function, options, std::move(*ignored),
                    program->states().size());
    if (failed(sharder.run()))
      return signalPassFailure();
    layouts = sharder.layoutCount();
    copies = sharder.copies;
  }
};

} // namespace
} // namespace fsdpc::passes
