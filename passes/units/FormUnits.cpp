// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// form-units: gives each op and parameter a unit. Units are an attribute, not a
// region, because the root is at both ends of a model, and because tied weights
// are read in several places. Only ops that read weights or belong to a unit's
// module choose their unit; the others join the op before them, so that they
// never begin a segment of their own.
#include "compiler/dialects/fsdp/SymbolNames.h"
#include "compiler/dialects/nn/Rearrangements.h"
#include "passes/units/KeepF32.h"
#include "passes/units/ModuleScopes.h"
#include "passes/units/Passes.h"

#include "compiler/dialects/fsdp/Entries.h"
#include "compiler/options/Options.h"

#include <map>

namespace fsdpc::passes {
#define GEN_PASS_DEF_FORMUNITS
#include "passes/units/Passes.h.inc"

using namespace mlir;

namespace {

constexpr int kRoot = 0;

// Forms the units of one function. Units are numbers until createSymbols, with
// 0 for the root; `unitOf` gives each op its number.
class Former {
public:
  Former(ModuleOp module, func::FuncOp function, UnitPolicy policy)
      : module(module), symbols(module), function(function),
        body(function.front()), policy(std::move(policy)) {
    // The root is number 0 and needs no name from a module.
    units.push_back({"root", {}, {}});
  }

  // The order matters: each step refines the root that the steps before left,
  // and followers are placed when all their users have units.
  int run() {
    findWeights();
    anchorOps();
    if (policy.separatesLarge)
      separateLargeParameters();
    if (int64_t size = fsdp::CompileOptions::of(module).unitSize)
      cutRoot(size);
    fillGaps();
    placeFollowers();
    return createSymbols();
  }

private:
  // `scope` and `cls` are empty for units that are not modules: the root, its
  // parts, single parameters.
  struct Unit {
    std::string name;
    std::string scope, cls;
  };

  // Notes the results of loads of parameters, and of what rearranges them. One
  // walk in program order finds all: to follow the operands of each value
  // anew would take quadratic time in a chain of rearrangements.
  void findWeights() {
    for (Operation &op : body.without_terminator()) {
      auto load = dyn_cast<fsdp::LoadOp>(op);
      if (load && isParameter(load))
        weights[load.getResult()] = load;
      else if (nn::isRearrangement(&op))
        if (fsdp::LoadOp source = weightOf(op.getOperand(0)))
          weights[op.getResult(0)] = source;
    }
  }

  // Returns the load of the parameter behind transposes, casts and other
  // rearrangements, or null.
  fsdp::LoadOp weightOf(Value value) const { return weights.lookup(value); }

  bool isParameter(fsdp::LoadOp load) const {
    return isa_and_nonnull<fsdp::ParameterOp>(symbols.lookup(load.getSymbol()));
  }

  // Returns true for ops that go where their users are: sources, and rearranged
  // weights.
  bool isFollower(Operation *op) const {
    return (op->getNumOperands() == 0 && op->getNumResults() != 0) ||
           (op->getNumResults() == 1 && weightOf(op->getResult(0)));
  }

  SmallVector<fsdp::LoadOp> weightsRead(Operation *op) const {
    SmallVector<fsdp::LoadOp> loads;
    for (Value operand : op->getOperands())
      if (fsdp::LoadOp load = weightOf(operand))
        loads.push_back(load);
    return loads;
  }

  fsdp::ParameterOp parameterOf(fsdp::LoadOp load) {
    return symbols.lookup<fsdp::ParameterOp>(load.getSymbol());
  }

  static int64_t elementsOf(fsdp::ParameterOp parameter) {
    return cast<ShapedType>(parameter.getType()).getNumElements();
  }

  // Returns the unit with this name, or adds it. Names are those of modules or
  // parameters, so equal names are one unit.
  int unitNamed(StringRef name, ModuleScope scope) {
    auto [it, inserted] = byName.try_emplace(name, units.size());
    if (inserted)
      units.push_back({name.str(), scope.scope.str(), scope.cls.str()});
    return it->second;
  }

  // Returns the module that contains the op directly.
  static ModuleScope innermost(Operation *op) {
    SmallVector<ModuleScope> modules = getModules(op);
    return modules.empty() ? ModuleScope() : modules.back();
  }

  // Assigns ops of a unit's module to the unit, and other ops that read weights
  // to the root. Only modules whose ops read weights become units: a module
  // without weights would be gathered for nothing.
  void anchorOps() {
    llvm::StringSet<> owning;
    for (Operation &op : body.without_terminator())
      if (!isFollower(&op) && !weightsRead(&op).empty())
        if (auto chosen = policy.choose(&op))
          owning.insert(chosen->scope);
    for (Operation &op : body.without_terminator()) {
      if (isFollower(&op))
        continue;
      auto chosen = policy.choose(&op);
      if (chosen && !chosen->scope.empty() && owning.contains(chosen->scope))
        unitOf[&op] = unitNamed(chosen->scope, *chosen);
      else if (!weightsRead(&op).empty())
        unitOf[&op] = kRoot;
    }
  }

  // The number of elements from which a root parameter counts as large:
  // relative to the repeated units, or to the model if nothing repeats.
  int64_t largeThreshold() {
    std::vector<int64_t> elements(units.size());
    llvm::StringSet<> seen;
    // A tied parameter counts where it is read first.
    for (Operation &op : body.without_terminator())
      for (fsdp::LoadOp load : weightsRead(&op))
        if (unitOf.count(&op) && seen.insert(load.getSymbol()).second)
          elements[unitOf[&op]] += elementsOf(parameterOf(load));
    if (units.size() > 1)
      return *std::max_element(elements.begin() + 1, elements.end()) / 4;
    return elements[kRoot] / 8;
  }

  // Gives large parameters of the root (embedding, head) units of their own,
  // together with the other ops of their module.
  void separateLargeParameters() {
    int64_t threshold = largeThreshold();
    std::map<StringRef, int> ofParameter, ofModule;
    for (Operation &op : body.without_terminator()) {
      if (!inRoot(&op))
        continue;
      ModuleScope scope = innermost(&op);
      for (fsdp::LoadOp load : weightsRead(&op)) {
        if (elementsOf(parameterOf(load)) < threshold)
          continue;
        auto it = ofParameter.find(load.getSymbol());
        // A tied parameter goes to the unit of its first reader in the root,
        // and its later readers there join that unit.
        if (it == ofParameter.end())
          it = ofParameter
                   .emplace(
                       load.getSymbol(),
                       scope.scope.empty()
                           ? unitNamed(fsdp::nameOfSymbol(load.getSymbol()), {})
                           : unitNamed(scope.scope, scope))
                   .first;
        unitOf[&op] = it->second;
        if (!scope.scope.empty())
          ofModule.emplace(scope.scope, it->second);
      }
    }
    // Ops of the module that read no weight join, so that the module is in one
    // piece.
    for (Operation &op : body.without_terminator()) {
      auto it = ofModule.find(innermost(&op).scope);
      if (inRoot(&op) && it != ofModule.end())
        unitOf[&op] = it->second;
    }
  }

  // Cuts the root where `size` elements are reached and another module begins.
  // Ops of one innermost module in a row are never cut, and a parameter counts
  // where it is read first.
  void cutRoot(int64_t size) {
    llvm::StringSet<> seen;
    // Units are named root.1, root.2 and so on; the first part stays the root.
    int64_t elements = 0, parts = 0;
    int unit = kRoot;
    StringRef previous;
    for (Operation &op : body.without_terminator()) {
      if (!inRoot(&op))
        continue;
      StringRef scope = innermost(&op).scope;
      if (elements >= size && scope != previous) {
        unit = unitNamed(("root." + Twine(++parts)).str(), {});
        elements = 0;
      }
      previous = scope;
      for (fsdp::LoadOp load : weightsRead(&op))
        if (seen.insert(load.getSymbol()).second)
          elements += elementsOf(parameterOf(load));
      unitOf[&op] = unit;
    }
  }

  bool inRoot(Operation *op) {
    auto it = unitOf.find(op);
    return it != unitOf.end() && it->second == kRoot;
  }

  // Ops without a unit join the op before them; the first ones join the first
  // unit. So an op without weights never changes the unit that is at work.
  void fillGaps() {
    std::optional<int> unit;
    for (Operation &op : body.without_terminator()) {
      auto it = unitOf.find(&op);
      if (it != unitOf.end() && !unit)
        unit = it->second;
    }
    for (Operation &op : body.without_terminator()) {
      if (isFollower(&op))
        continue;
      auto [it, inserted] = unitOf.try_emplace(&op, unit.value_or(kRoot));
      unit = it->second;
    }
  }

  // Gives each follower the unit of its first user. A weight also moves there,
  // with a copy for each further unit, since each unit has loads of its own.
  // Followers are visited in reverse, since one may follow another.
  void placeFollowers() {
    SmallVector<Operation *> followers;
    for (Operation &op : body.without_terminator())
      if (isFollower(&op))
        followers.push_back(&op);
    for (Operation *op : llvm::reverse(followers)) {
      if (op->use_empty()) {
        op->erase();
        continue;
      }
      bool ofWeight = weightOf(op->getResult(0)) != nullptr;
      // The first user in each unit, by the number of the unit.
      std::map<int, Operation *> firstUser;
      for (Operation *user : op->getUsers()) {
        Operation *&first = firstUser[unitOf.lookup(user)];
        if (!first || user->isBeforeInBlock(first))
          first = user;
      }
      SmallVector<std::pair<int, Operation *>> users(firstUser.begin(),
                                                     firstUser.end());
      llvm::sort(users, [](auto &a, auto &b) {
        return a.second->isBeforeInBlock(b.second);
      });
      unitOf[op] = users.front().first;
      if (!ofWeight)
        continue;
      // Uses of the other units move to the copy, and the original keeps those
      // of its first unit.
      for (auto [unit, user] : ArrayRef(users).drop_front()) {
        Operation *copy = op->clone();
        insertBefore(copy, user);
        unitOf[copy] = unit;
        op->getResult(0).replaceUsesWithIf(
            copy->getResult(0), [&, unit = unit](OpOperand &use) {
              return unitOf.lookup(use.getOwner()) == unit;
            });
      }
      op->remove();
      insertBefore(op, users.front().second);
    }
  }

  // Inserts a follower before those of the same user that are placed already,
  // so that they keep their order although the last is placed first.
  void insertBefore(Operation *op, Operation *user) {
    Operation *&before = firstBefore.try_emplace(user, user).first->second;
    body.getOperations().insert(before->getIterator(), op);
    before = op;
  }

  // Creates the symbols in order of first use, writes the attributes, and sets
  // the owner of each parameter. Returns the number of units that something
  // belongs to.
  int createSymbols() {
    OpBuilder builder(function);
    std::map<int, FlatSymbolRefAttr> names;
    auto nameOf = [&](int unit) {
      FlatSymbolRefAttr &name = names[unit];
      if (!name) {
        const Unit &info = units[unit];
        auto op = fsdp::UnitOp::create(
            builder, module.getLoc(), fsdp::nameOfUnit(info.name),
            info.cls.empty() ? StringAttr() : builder.getStringAttr(info.cls),
            info.cls.empty() ? StringAttr()
                             : builder.getStringAttr(info.scope));
        name = FlatSymbolRefAttr::get(symbols.insert(op));
      }
      return name;
    };
    // Constants come first in the body whatever uses them, so they do not count
    // here.
    for (Operation &op : body.without_terminator())
      if (op.getNumOperands() != 0)
        nameOf(unitOf.at(&op));
    for (Operation &op : body.without_terminator()) {
      FlatSymbolRefAttr name = nameOf(unitOf.at(&op));
      op.setAttr(fsdp::FSDPDialect::kUnitAttr, name);
      if (auto load = dyn_cast<fsdp::LoadOp>(op))
        if (isParameter(load) && !parameterOf(load).getUnitAttr())
          parameterOf(load).setUnitAttr(name);
    }
    // They still need an owner, because each parameter is a member of a layout.
    for (auto parameter : module.getOps<fsdp::ParameterOp>())
      if (!parameter.getUnitAttr()) {
        parameter.emitRemark()
            << "no op reads parameter '" << parameter.getSymName()
            << "'; it keeps its initial value";
        parameter.setUnitAttr(nameOf(unitNamed("unused", {})));
      }
    return names.size();
  }

  ModuleOp module;
  SymbolTable symbols;
  func::FuncOp function;
  Block &body;
  UnitPolicy policy;
  std::vector<Unit> units;
  llvm::StringMap<int> byName;
  llvm::DenseMap<Operation *, int> unitOf;
  llvm::DenseMap<Operation *, Operation *> firstBefore;
  llvm::DenseMap<Value, fsdp::LoadOp> weights; // see findWeights
};

struct FormUnits : impl::FormUnitsBase<FormUnits> {
  void runOnOperation() override {
    ModuleOp module = getOperation();
    auto function = fsdp::getMicrobatch(module);
    if (failed(function))
      return signalPassFailure();
    auto policy = UnitPolicy::read(module, function->front());
    if (failed(policy))
      return signalPassFailure();
    int formed = Former(module, *function, std::move(*policy)).run();
    // Loads have been cloned for the units that read them, and their readers
    // are what they stay.
    if (failed(markKeptF32(module, function->front())))
      return signalPassFailure();
    units = formed;
    if (formed == 1)
      emitWarning(module.getLoc())
          << "all parameters are in one unit, so sharding saves no memory "
             "while the model runs; form smaller units with --unit-class, "
             "--unit-scope or --unit-size";
  }
};

} // namespace
} // namespace fsdpc::passes
