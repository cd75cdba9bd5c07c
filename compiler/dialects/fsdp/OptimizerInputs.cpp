// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Follows the operands of optimizers back to what this rank has computed, and
// checks that every op on the way is the one that build-update writes. A rank
// that updated with other numbers than the rest would train other parameters
// without an error at run time.
#include "compiler/dialects/fsdp/OptimizerInputs.h"

#include "compiler/dialects/fsdp/Layouts.h"
#include "runtime/support/concat.h"

#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;

namespace fsdpc::fsdp {

// A layout that is named twice has its first place.
template <typename OpTy, typename Count>
static Places placesOf(OpTy op, const SymbolTable &symbols, Count count) {
  Places places;
  int64_t next = 0;
  for (FlatSymbolRefAttr name : op.getLayoutRefs()) {
    places.try_emplace(name, next);
    next += count(symbols.lookup<LayoutOp>(name.getAttr()));
  }
  return places;
}

Places placesOfSums(MemberSumsOp sums, const SymbolTable &symbols) {
  return placesOf(sums, symbols, [&](LayoutOp layout) {
    return sums.getSumsPerMember() * int64_t(layout.getMembers().size());
  });
}

Places placesOfFactors(UpdateFactorsOp factors, const SymbolTable &symbols) {
  return placesOf(factors, symbols,
                  [&](LayoutOp layout) { return factorsOf(layout, symbols); });
}

OptimizerInputs::OptimizerInputs(Block &update, ClipScaleOp clip,
                                 const SymbolTable &symbols)
    : update(update), clip(clip), symbols(symbols) {
  for (auto sums : update.getOps<MemberSumsOp>())
    places[sums] = placesOfSums(sums, symbols);
  for (auto factors : update.getOps<UpdateFactorsOp>())
    places[factors] = placesOfFactors(factors, symbols);
}

std::optional<int64_t> OptimizerInputs::placeIn(Operation *op,
                                                OptimizerOp optimizer) {
  const Places &ofOp = places.find(op)->second;
  auto place = ofOp.find(optimizer.getLayoutAttr());
  return place == ofOp.end() ? std::nullopt : std::optional(place->second);
}

// The memory plan and the runtime ask the layout, and not the op, what the
// optimizer takes of whole parameters.
LogicalResult OptimizerInputs::verifyTaken(OptimizerOp optimizer) {
  auto layout = symbols.lookup<LayoutOp>(optimizer.getLayout());
  OptimizerAttr said = layout.getOptimizerAttr();
  int64_t sums = said ? said.getSums() : 0;
  bool factored = said && said.getFactored(),
       orthogonal = said && said.getOrthogonal();
  if (sums == optimizer.getSumsPerMember() &&
      factored == bool(optimizer.getFactors()) &&
      orthogonal == bool(optimizer.getUpdates()))
    return success();
  auto list = [](int64_t sums, bool factors, bool updates) {
    return concat(sums, " sums", factors ? ", factors" : "",
                  updates ? ", updates" : "");
  };
  InFlightDiagnostic diag =
      optimizer.emitOpError("breaks rule 'optimizer': it takes ")
      << list(optimizer.getSumsPerMember(), bool(optimizer.getFactors()),
              bool(optimizer.getUpdates()))
      << " of a parameter, but the 'optimizer' of layout '"
      << layout.getSymName() << "' says " << list(sums, factored, orthogonal);
  diag.attachNote(layout.getLoc()) << "the layout";
  return diag;
}

// The sums that an optimizer takes are those of its layout's members, whole:
// every rank has summed its shard, and all ranks' sums have been added up once.
// A rank that updated with other sums than the rest would have other
// parameters, without any error at run time.
LogicalResult OptimizerInputs::verifySums(OptimizerOp optimizer) {
  if (!optimizer.getSums())
    return success();
  auto broken = [&](Operation *op, const Twine &what) {
    InFlightDiagnostic diag = op->emitOpError("breaks rule 'sums': ") << what;
    diag.attachNote(optimizer.getLoc()) << "the optimizer that takes the sums";
    return diag;
  };
  auto reduction = optimizer.getSums().getDefiningOp<AllReduceOp>();
  auto sums = reduction ? reduction.getInput().getDefiningOp<MemberSumsOp>()
                        : MemberSumsOp();
  if (!sums)
    return broken(optimizer, "its sums are not an 'fsdp.all_reduce' of "
                             "'fsdp.member_sums'");
  if (sums.getScale() != clip.getScale())
    return broken(sums, "its scale is not that of the norm");
  std::optional<int64_t> first = placeIn(sums, optimizer);
  if (!first)
    return broken(sums, "it leaves out layout '" + optimizer.getLayout() + "'");
  if (*first != static_cast<int64_t>(*optimizer.getFirst()))
    return broken(optimizer, "the sums of its layout begin at " +
                                 Twine(*first) + ", not at " +
                                 Twine(*optimizer.getFirst()));
  if (optimizer.getSumsPerMember() != sums.getSumsPerMember())
    return broken(sums, "it yields " + Twine(sums.getSumsPerMember()) +
                            " sums, and the optimizer takes " +
                            Twine(optimizer.getSumsPerMember()));
  return success();
}

// Follows factors back to the sums of this rank: they are updated once, from
// the sums of all ranks, in the order of the sums. Returns their update.
static FailureOr<UpdateFactorsOp> findFactors(Operation *user, Value factors,
                                              ClipScaleOp clip) {
  auto broken = [&](Operation *op, const Twine &what) {
    InFlightDiagnostic diag = op->emitOpError("breaks rule 'factors': ")
                              << what;
    diag.attachNote(user->getLoc()) << "the op that takes the factors";
    return diag;
  };
  auto update = factors.getDefiningOp<UpdateFactorsOp>();
  if (!update)
    return broken(user, "its factors are not an 'fsdp.update_factors'");
  auto reduction = update.getSums().getDefiningOp<AllReduceOp>();
  auto sums = reduction ? reduction.getInput().getDefiningOp<FactorSumsOp>()
                        : FactorSumsOp();
  if (!sums)
    return broken(update, "its sums are not an 'fsdp.all_reduce' of "
                          "'fsdp.factor_sums'");
  if (sums.getLayouts() != update.getLayouts())
    return broken(update, "it does not have the layouts of its sums in their "
                          "order");
  if (sums.getScale() != clip.getScale())
    return broken(sums, "its scale is not that of the norm");
  return update;
}

// The same for an optimizer and the sums that it takes.
LogicalResult OptimizerInputs::verifyFactors(OptimizerOp optimizer) {
  if (!optimizer.getFactors())
    return success();
  auto broken = [&](const Twine &what) {
    return optimizer.emitOpError("breaks rule 'factors': ") << what;
  };
  auto factors = findFactors(optimizer, optimizer.getFactors(), clip);
  if (failed(factors))
    return failure();
  std::optional<int64_t> first = placeIn(*factors, optimizer);
  if (!first)
    return broken("layout '" + optimizer.getLayout() + "' has no factors");
  if (*first != static_cast<int64_t>(*optimizer.getFirstFactor()))
    return broken("the factors of its layout begin at " + Twine(*first) +
                  ", not at " + Twine(*optimizer.getFirstFactor()));
  return success();
}

LogicalResult OptimizerInputs::verifyFactors(MemberSumsOp sums) {
  if (!sums.getFactors())
    return success();
  auto factors = findFactors(sums, sums.getFactors(), clip);
  if (failed(factors))
    return failure();
  if (factors->getLayouts() != sums.getLayouts())
    return sums.emitOpError("breaks rule 'factors': it does not have the "
                            "layouts of its factors in their order");
  return success();
}

// Follows the updates of an optimizer back to the momentum. All four ops are of
// its layout, whose owners they agree on.
static LogicalResult verifyUpdates(OptimizerOp optimizer, ClipScaleOp clip) {
  if (!optimizer.getUpdates())
    return success();
  auto broken = [&](Operation *op, const Twine &what) {
    InFlightDiagnostic diag = op->emitOpError("breaks rule 'updates': ")
                              << what;
    diag.attachNote(optimizer.getLoc())
        << "the optimizer that takes the updates";
    return diag;
  };
  auto spread = optimizer.getUpdates().getDefiningOp<SpreadMatricesOp>();
  if (!spread)
    return broken(optimizer, "its updates are not those of an "
                             "'fsdp.spread_matrices'");
  auto orthogonal = spread.getInput().getDefiningOp<OrthogonalizeOp>();
  if (!orthogonal)
    return broken(spread, "it does not take the result of an "
                          "'fsdp.orthogonalize'");
  auto whole = orthogonal.getUpdates().getDefiningOp<CollectMatricesOp>();
  auto part = whole ? whole.getInput().getDefiningOp<MomentumUpdatesOp>()
                    : MomentumUpdatesOp();
  if (!part)
    return broken(orthogonal, "its updates are not 'fsdp.momentum_updates' "
                              "collected by 'fsdp.collect_matrices'");
  StringRef wanted = optimizer.getLayout();
  for (auto [op, layout] :
       {std::pair<Operation *, StringRef>(spread, spread.getLayout()),
        {orthogonal, orthogonal.getLayout()},
        {whole, whole.getLayout()},
        {part, part.getLayout()}})
    if (layout != wanted)
      return broken(op, "it is of layout '" + layout + "', not of '" + wanted +
                            "'");
  if (part.getScale() != clip.getScale())
    return broken(part, "its scale is not that of the norm");
  return success();
}

// The state of a layout is updated once in a step.
static LogicalResult verifyFactorUpdates(Block &update) {
  DenseSet<Attribute> updated;
  for (auto factors : update.getOps<UpdateFactorsOp>())
    for (FlatSymbolRefAttr layout : factors.getLayoutRefs())
      if (!updated.insert(layout).second)
        return factors.emitOpError("breaks rule 'factors': it updates those of "
                                   "layout '")
               << layout.getValue() << "' a second time";
  return success();
}

// Sums that nobody takes, or that are taken twice over the ranks, are refused:
// an edit has left them behind. A layout has one optimizer, so it has its sums
// once.
LogicalResult OptimizerInputs::verifyMemberSums() {
  for (auto sums : update.getOps<MemberSumsOp>()) {
    if (failed(verifyFactors(sums)))
      return failure();
    DenseSet<Attribute> wanted;
    auto users = sums.getResult().getUsers();
    if (!llvm::hasSingleElement(users) || !isa<AllReduceOp>(*users.begin()))
      return sums.emitOpError("breaks rule 'sums': its only use is not an "
                              "'fsdp.all_reduce'");
    for (Operation *user : users.begin()->getResult(0).getUsers())
      if (auto optimizer = dyn_cast<OptimizerOp>(user))
        wanted.insert(optimizer.getLayoutAttr());
    for (FlatSymbolRefAttr layout : sums.getLayoutRefs())
      if (!wanted.erase(layout))
        return sums.emitOpError("breaks rule 'sums': no optimizer takes its "
                                "sums of layout '")
               << layout.getValue() << "', or it names the layout twice";
  }
  return success();
}

LogicalResult OptimizerInputs::verify(OptimizerOp optimizer) {
  return failure(
      failed(verifySums(optimizer)) || failed(verifyFactors(optimizer)) ||
      failed(verifyUpdates(optimizer, clip)) || failed(verifyTaken(optimizer)));
}

LogicalResult OptimizerInputs::verifyUsed() {
  return failure(failed(verifyMemberSums()) ||
                 failed(verifyFactorUpdates(update)));
}

} // namespace fsdpc::fsdp
