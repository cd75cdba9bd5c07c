// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The rules of layouts, each a function of one layout. A layout is the only
// thing that later phases know of parameters, so nothing in it is taken on
// trust.
#include "passes/shard/LayoutRules.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "compiler/dialects/fsdp/ModuleManifest.h"
#include "compiler/dialects/fsdp/ParameterGroups.h"
#include "compiler/dialects/fsdp/Rules.h"
#include "compiler/dialects/fsdp/Strategies.h"
#include "compiler/options/Options.h"
#include "runtime/abi/memory_plan.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/Support/MathExtras.h"

namespace fsdpc::passes {

using namespace mlir;
using fsdp::broken;
using fsdp::nameOrNone;
using fsdp::refuseWithNote;

namespace {

// One scan over the layouts of a module. Its state is the layout of each
// parameter so far.
class LayoutVerifier {
public:
  LayoutVerifier(ModuleOp module, const SymbolTable &symbols,
                 const fsdp::ParameterGroups &groups)
      : module(module), symbols(symbols), groups(groups),
        options(fsdp::CompileOptions::of(module)),
        compute(fsdp::floatType(options.paramType, module.getContext())),
        manifest(fsdp::describeModule(module)) {}

  LogicalResult run() {
    for (auto layout : module.getOps<fsdp::LayoutOp>())
      if (failed(verifyTypes(layout)) || failed(verifyPlace(layout)) ||
          failed(verifyAlone(layout)) || failed(verifyMembers(layout)) ||
          failed(verifyOptimizer(layout)))
        return failure();
    // Checked last, when all members of all layouts are known.
    for (auto parameter : module.getOps<fsdp::ParameterOp>())
      if (!layoutOf.contains(parameter.getSymNameAttr()))
        return broken(parameter, "member-once")
               << "parameter '" << parameter.getSymName()
               << "' is a member of no layout";
    return success();
  }

private:
  // What the values of a layout are: in the compute type, in f32 by --keep-f32,
  // or stored in types of their own.
  enum class Kind { compute, keptF32, bytes };
  Kind kindOf(fsdp::LayoutOp layout) const {
    if (layout.holdsBytes())
      return Kind::bytes;
    return fsdp::keepsF32(layout, symbols) ? Kind::keptF32 : Kind::compute;
  }

  // A layout computes in the type of the options, and has the master that they
  // want, unless its members are kept in f32.
  LogicalResult verifyTypes(fsdp::LayoutOp layout) {
    // Its own verifiers have checked its members.
    if (layout.holdsBytes())
      return success();
    bool keepsF32 = fsdp::keepsF32(layout, symbols);
    if (keepsF32 ? !layout.getCompute().isF32()
                 : layout.getCompute() != compute) {
      InFlightDiagnostic diag = broken(layout, "compute");
      diag << "layout '" << layout.getSymName() << "' computes in "
           << layout.getCompute() << ", but ";
      if (keepsF32)
        return diag << "its first member has 'fsdp.keep_f32'";
      return diag << "--param-dtype is "
                  << fsdp::nameOf(options.paramType.type);
    }
    bool wantsMaster = options.master != fsdp::Master::None || keepsF32;
    if (layout.getNoMaster() == wantsMaster)
      return broken(layout, "master")
             << "layout '" << layout.getSymName() << "' has "
             << (wantsMaster ? "no" : "a") << " master, but "
             << (keepsF32 ? "its members have 'fsdp.keep_f32'" : "--master is ")
             << (keepsF32 ? StringRef() : nameOf(options.master));
    return success();
  }

  // Only what is a rank's own part has memory that a file can take the place
  // of. A layout with an owner has one parameter. The options are checked for
  // that; a layout may have been edited.
  LogicalResult verifyPlace(fsdp::LayoutOp layout) {
    const Layout &described = manifest.layouts[number++];
    bool gradient =
        described.gradientOffloaded && !hasOwnGradient(manifest, described);
    bool parameters =
        described.parametersOffloaded && !hasOwnParameters(manifest, described);
    if (gradient || parameters)
      return broken(layout, "offload")
             << "the " << (gradient ? "gradient" : "parameters")
             << " of layout '" << layout.getSymName()
             << "' cannot be offloaded, as no rank has a part of its own";
    if (fsdp::hasOwner(layout, options) && layout.getMembers().size() != 1)
      return broken(layout, "layout")
             << "layout '" << layout.getSymName() << "' has "
             << layout.getMembers().size() << " members, but strategy '"
             << nameOf(fsdp::strategyOf(layout, options))
             << "' gives each parameter an owner";
    if (cutsEach() && layout.getMembers().size() != 1)
      return broken(layout, "layout")
             << "layout '" << layout.getSymName() << "' has "
             << layout.getMembers().size()
             << " members, but --layout=parameter cuts each parameter by "
                "itself";
    return success();
  }

  bool cutsEach() const {
    return options.layout == fsdp::LayoutKind::Parameter;
  }

  // Two layouts that agree in all parts of the key should have been one, unless
  // --layout-size cuts them, each is cut by itself, or has an owner.
  LogicalResult verifyAlone(fsdp::LayoutOp layout) {
    fsdp::Strategy strategy = fsdp::strategyOf(layout, options);
    auto [twin, isOnly] = ofUnit.try_emplace(
        {layout.getUnitAttr().getAttr(), layout.getTrainable(), strategy,
         layout.getGroup().value_or(0), int(kindOf(layout))},
        layout);
    int64_t most = options.layoutSize;
    if (most > 0 && layout.getMembers().size() > 1 &&
        static_cast<int64_t>(layout.getElements()) > most)
      return broken(layout, "layout")
             << "layout '" << layout.getSymName() << "' has "
             << layout.getElements()
             << " elements of several parameters, but --layout-size is "
             << most;
    if (!isOnly && most == 0 && !fsdp::hasOwner(layout, options) && !cutsEach())
      return refuseWithNote(
          broken(layout, "layout")
              << "unit '" << layout.getUnit() << "' has a second layout of "
              << (layout.getTrainable() ? "trainable" : "frozen")
              << " parameters under strategy '" << nameOf(strategy) << "'",
          twin->second, "the first is here");
    return success();
  }

  // Offsets must be what shard-parameters would choose for this order of
  // members, so that a dump with a gap is refused.
  LogicalResult verifyMembers(fsdp::LayoutOp layout) {
    bool keepsF32 = !layout.holdsBytes() && fsdp::keepsF32(layout, symbols);
    // The end of the last member, in elements.
    int64_t end = 0;
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
      StringAttr name = member.getParameter().getAttr();
      auto [other, isNew] = layoutOf.try_emplace(name, layout);
      if (!isNew)
        return refuseWithNote(broken(layout, "member-once")
                                  << "parameter '" << name.getValue()
                                  << "' is a member twice",
                              other->second, "a member here already");
      auto parameter = symbols.lookup<fsdp::ParameterOp>(name);
      if (!parameter.getStored() && fsdp::keepsF32(parameter) != keepsF32)
        return refuseWithNote(
            broken(layout, "compute")
                << "its member '" << name.getValue() << "' "
                << (keepsF32 ? "lacks" : "has") << " 'fsdp.keep_f32'"
                << (keepsF32 ? ", which its first member has" : ""),
            parameter, "the parameter");
      if (parameter.getUnitAttr() != layout.getUnitAttr())
        return refuseWithNote(broken(layout, "layout")
                                  << "it is of unit '" << layout.getUnit()
                                  << "', and its member '" << name.getValue()
                                  << "' of unit '"
                                  << nameOrNone(parameter.getUnitAttr()) << "'",
                              parameter, "the parameter");
      int64_t first = llvm::alignTo(
          end, fsdp::memberAlignment(options, layout.holdsBytes()));
      if (member.getOffset() != first)
        return broken(layout, "layout")
               << "member '" << name.getValue() << "' begins at "
               << member.getOffset() << ", but the next place is " << first;
      end = member.getOffset() + member.getElements();
    }
    return success();
  }

  // The members of a layout have the optimizer that it names, and its last
  // state is an average if the options ask for one: the runtime would save
  // another state as the average.
  LogicalResult verifyOptimizer(fsdp::LayoutOp layout) {
    bool average = layout.getTrainable() && options.ema > 0;
    if (layout.getAverage() != average)
      return broken(layout, "average")
             << "layout '" << layout.getSymName()
             << (average ? "' keeps no average, but --ema is "
                         : "' keeps an average, but --ema is ")
             << options.ema;
    size_t group = layout.getGroup().value_or(0);
    for (auto member : layout.getMembers().getAsRange<fsdp::MemberAttr>()) {
      auto parameter =
          symbols.lookup<fsdp::ParameterOp>(member.getParameter().getAttr());
      size_t own = groups.programOf(parameter);
      if (own != group)
        return refuseWithNote(
            broken(layout, "group")
                << "layout '" << layout.getSymName()
                << "' is updated by the optimizer of group " << group
                << ", and its member '" << parameter.getSymName()
                << "' by that of group " << own << " (0: of --optimizer)",
            parameter, "the parameter");
    }
    return success();
  }

  ModuleOp module;
  const SymbolTable &symbols;
  const fsdp::ParameterGroups &groups;
  fsdp::CompileOptions options;
  Type compute; // of layouts without --keep-f32
  Manifest manifest;
  size_t number = 0; // of the layout in the manifest
  // The layout of each member, and the layout of each unit, kind (trainable or
  // frozen), strategy, group and kind of its values.
  DenseMap<StringAttr, fsdp::LayoutOp> layoutOf;
  DenseMap<std::tuple<StringAttr, int, fsdp::Strategy, int64_t, int>,
           fsdp::LayoutOp>
      ofUnit;
};

} // namespace

LogicalResult verifyLayouts(ModuleOp module, const SymbolTable &symbols) {
  FailureOr<fsdp::ParameterGroups> groups = fsdp::ParameterGroups::of(module);
  if (failed(groups))
    return failure();
  return LayoutVerifier(module, symbols, *groups).run();
}

} // namespace fsdpc::passes
