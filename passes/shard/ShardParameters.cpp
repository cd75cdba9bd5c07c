// shard-parameters: replaces parameters with flat layouts. A layout is the
// FlatParameter of PyTorch FSDP: the members of a unit in one buffer, of which
// each rank owns an equal part. Members are aligned so that kernels can read
// them in place.
#include "passes/shard/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/Options.h"
#include "compiler/dialects/fsdp/UpdateRules.h"
#include "passes/shard/optimizers/Programs.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/Support/MathExtras.h"

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
          const fsdp::CompileOptions &options, fsdp::NamePatterns noDecay,
          int64_t states)
      : module(module), symbols(module), body(function.front()),
        options(options), noDecay(std::move(noDecay)), states(states) {}

  LogicalResult run() {
    findGradients();
    if (failed(createLayouts()))
      return failure();
    for (Operation &op : llvm::make_early_inc_range(body))
      if (auto load = dyn_cast<fsdp::LoadOp>(op))
        viewMember(load);
    for (auto &[name, layout] : layouts)
      if (layout.getTrainable())
        packGradients(layout);
    return success();
  }

  int64_t copies = 0;
  size_t layoutCount() const { return layouts.size(); }

private:
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

  // Each unit gets up to two layouts, one for its trainable and one for its
  // frozen parameters: only the former have gradients and optimizer states. The
  // order of members decides the offsets. First use keeps parameters that are
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
    llvm::MapVector<std::pair<StringRef, int>, SmallVector<fsdp::ParameterOp>>
        groups;
    for (auto unit : module.getOps<fsdp::UnitOp>()) {
      lastSymbol = unit;
      for (bool trainable : {true, false})
        groups[{unit.getSymName(), trainable}];
    }
    for (Operation *op : parameters) {
      auto parameter = cast<fsdp::ParameterOp>(op);
      groups[{*parameter.getUnit(), parameter.getTrainable()}].push_back(
          parameter);
    }
    for (auto &[key, members] : groups)
      if (!members.empty())
        createLayout(key.first, key.second, members);
    return noDecay.checkUsed(module.getLoc(), names, "parameter");
  }

  // Places the members in order, each aligned to kMemberAlignment elements.
  // Weight decay is a property of the member, since --no-decay excludes single
  // parameters of a unit.
  void createLayout(StringRef unit, bool trainable,
                    ArrayRef<fsdp::ParameterOp> parameters) {
    Builder attrs(module.getContext());
    SmallVector<Attribute> members;
    int64_t end = 0;
    for (fsdp::ParameterOp parameter : parameters) {
      int64_t offset = llvm::alignTo(end, fsdp::kMemberAlignment);
      int64_t elements = cast<ShapedType>(parameter.getType()).getNumElements();
      bool decays = !noDecay.match(parameter) && trainable;
      members.push_back(fsdp::MemberAttr::get(
          module.getContext(), FlatSymbolRefAttr::get(parameter), offset,
          elements, attrs.getF64FloatAttr(1),
          attrs.getF64FloatAttr(decays ? options.weightDecay() : 0)));
      end = offset + elements;
    }
    auto unitOp = symbols.lookup<fsdp::UnitOp>(unit);
    OpBuilder builder(module.getContext());
    // Layouts stand behind the units and in their order.
    builder.setInsertionPointAfter(lastSymbol);
    auto layout = fsdp::LayoutOp::create(
        builder, unitOp.getLoc(),
        builder.getStringAttr(unit + (trainable ? ".flat" : ".frozen")),
        FlatSymbolRefAttr::get(unitOp),
        trainable ? builder.getUnitAttr() : UnitAttr(),
        builder.getI64IntegerAttr(end), TypeAttr::get(builder.getF32Type()),
        builder.getI64IntegerAttr(trainable ? states : 0),
        builder.getArrayAttr(members),
        builder.getStrArrayAttr(fsdp::replicatedBy(options, trainable)));
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

  // Packs the gradients of a layout after the last of them, and reduces the
  // pack.
  void packGradients(fsdp::LayoutOp layout) {
    Operation *last = nullptr;
    SmallVector<fsdp::GradientOp> ops;
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
      fsdp::GradientOp gradient = gradients[member.getParameter().getValue()];
      if (!last || last->isBeforeInBlock(gradient))
        last = gradient;
      ops.push_back(gradient);
    }
    // The pack stands after the last gradient of the layout, when all its
    // members exist.
    OpBuilder builder(body.getParentOp()->getContext());
    builder.setInsertionPointAfter(last);
    SmallVector<Operation *> created;
    SmallVector<Value> values;
    for (fsdp::GradientOp gradient : ops) {
      Value value = gradient.getValue();
      if (!isPlaceable(value, last)) {
        // The second copy of a value reads the first copy. Two parameters may
        // have the same gradient, as two biases that are added have.
        Value &source = lastCopy.try_emplace(value, value).first->second;
        auto copy = nn::CopyOp::create(builder, gradient.getLoc(),
                                       value.getType(), source);
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
  fsdp::NamePatterns noDecay;
  int64_t states; // of the optimizer, per element
  llvm::StringMap<fsdp::GradientOp> gradients;
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
    auto noDecay = fsdp::NamePatterns::compile(module.getLoc(), "no-decay",
                                               options.noDecay.texts);
    if (failed(function) || failed(noDecay))
      return signalPassFailure();
    auto program = OptimizerProgram::of(options, &getContext());
    if (failed(program))
      return signalPassFailure();
    Sharder sharder(module, *function, options, std::move(*noDecay),
                    program->states().size());
    if (failed(sharder.run()))
      return signalPassFailure();
    layouts = sharder.layoutCount();
    copies = sharder.copies;
  }
};

} // namespace
} // namespace fsdpc::passes
