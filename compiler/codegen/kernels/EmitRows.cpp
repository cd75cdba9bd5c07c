// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The stages of a row that reduce it. Which running value takes an element is
// fixed by the reduction alone (ReductionOrder.h). The vectors in which
// elements are computed are as wide as what the stage computes makes
// worthwhile: if they are narrower than a part of the row has running values, a
// step of the loop computes several vectors, one after the other.
#include "compiler/analysis/kernels/ReductionOrder.h"
#include "compiler/codegen/kernels/LoopEmitter.h"

#include "compiler/dialects/nn/Build.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::codegen;
using namespace fsdpc::codegen::kernels;
using analysis::RowPart;
using nn::tensorType;

namespace {

// Returns the parts of the lanes' loop. A loop that is shorter than the run has
// whole vectors of the run's only part.
SmallVector<RowPart, 3> partsOf(const Stage &stage, int64_t lanes) {
  SmallVector<RowPart, 3> parts = analysis::rowParts(stage.run, lanes);
  if (stage.lanes != stage.run)
    parts = {{0, stage.lanes, parts.front().width}};
  return parts;
}

// Divides a part where conditions on the lane change, so that they are decided
// in each piece. A vector of running values that such a lane divides is a piece
// of its own, in which elements are selected lane by lane.
SmallVector<std::pair<int64_t, int64_t>> piecesOf(const RowPart &part,
                                                  ArrayRef<int64_t> cuts) {
  SmallVector<int64_t> bounds = {part.begin, part.end};
  for (int64_t cut : cuts) {
    if (cut <= part.begin || cut >= part.end)
      continue;
    int64_t before = part.begin + (cut - part.begin) / part.width * part.width;
    bounds.push_back(before);
    if (before != cut)
      bounds.push_back(before + part.width);
  }
  llvm::sort(bounds);
  bounds.erase(llvm::unique(bounds), bounds.end());
  SmallVector<std::pair<int64_t, int64_t>> pieces;
  for (size_t i = 0; i + 1 < bounds.size(); ++i)
    pieces.push_back({bounds[i], bounds[i + 1]});
  return pieces;
}

} // namespace

// Emits the lanes' loops of one run: one per part and piece of it. `sums` are
// the running values of the parts.
void LoopEmitter::emitRun(Stage &stage, Accumulators &sums) {
  if (stage.lanes == 1) {
    width = 1;
    SmallVector<Value> results = step(stage, sums.front());
    llvm::copy(results, sums.front().begin());
    return;
  }
  for (auto [part, values] :
       llvm::zip_equal(partsOf(stage, target.lanes), sums)) {
    // A step covers `part.width` elements in vectors of `lanes`, each with its
    // own running values.
    int64_t lanes = std::min(part.width, widest(stage));
    auto body = [&](ValueRange carried) {
      Value first = variables.lookup(stage.laneVariable.terms.front().first);
      // The running values are ordered by vector, then by reduction.
      size_t each = carried.size() * lanes / part.width;
      SmallVector<Value> results;
      for (int64_t lane = 0; lane < part.width; lane += lanes) {
        // The next vector of the same step: only what depends on the lane is
        // built again.
        if (lane > 0) {
          forget(2);
          insertAt(2);
          setVariable(stage.laneVariable,
                      make<arith::AddIOp>(first, i64(lane)));
        }
        llvm::append_range(results,
                           step(stage, carried.slice(results.size(), each)));
      }
      return results;
    };
    for (auto [begin, end] : piecesOf(part, stage.cuts)) {
      space.setRange(stage.laneVariable, {begin, end - 1});
      forgetLanes();
      insertAt(1);
      width = lanes;
      SmallVector<Value> results = loop(2, stage.laneVariable, i64(begin),
                                        i64(end), part.width, values, body);
      llvm::copy(results, values.begin());
    }
  }
  space.setRange(stage.laneVariable, {0, stage.lanes - 1});
  width = 1;
}

// Emits the loops over the runs of a row, then combines the running values.
void LoopEmitter::emitReducingStage(Stage &stage) {
  insertAt(0);
  SmallVector<nn::ReduceOp, 2> reductions;
  // Sums over blocks of rows are not the row's: they go to memory (addsRows).
  for (Root &root : stage.roots)
    if (root.reduce && !root.addsRows())
      reductions.push_back(root.reduce);
  Accumulators sums;
  SmallVector<Value> carried;
  for (const RowPart &part : partsOf(stage, target.lanes)) {
    auto &values = sums.emplace_back();
    int64_t lanes = std::min(part.width, widest(stage));
    for (int64_t lane = 0; lane < part.width; lane += lanes)
      for (nn::ReduceOp op : reductions) {
        Type type = scalarType(tensorType(op.getInput()).getElementType());
        if (lanes > 1)
          type = VectorType::get({lanes}, type);
        values.push_back(neutral(op, type));
      }
    llvm::append_range(carried, values);
  }
  // Gives the parts their running values back, in the order in which they were
  // listed.
  auto setSums = [&](ValueRange values) {
    for (auto &own : sums) {
      llvm::copy(values.take_front(own.size()), own.begin());
      values = values.drop_front(own.size());
    }
  };
  if (stage.outer == 1)
    emitRun(stage, sums);
  else
    setSums(loop(1, stage.outerVariable, i64(0), i64(stage.outer), 1, carried,
                 [&](ValueRange arguments) {
                   setSums(arguments);
                   emitRun(stage, sums);
                   SmallVector<Value> results;
                   for (auto &values : sums)
                     llvm::append_range(results, values);
                   return results;
                 }));

  insertAt(0);
  for (auto [number, op] : llvm::enumerate(reductions)) {
    Value total;
    // Picks the values of this reduction from those of all.
    for (auto &values : sums) {
      SmallVector<Value, 4> own;
      for (size_t i = number; i < values.size(); i += reductions.size())
        own.push_back(values[i]);
      // The halves of a vector that lies in several registers.
      for (; own.size() > 1; own.truncate(own.size() / 2))
        for (size_t i = 0; i < own.size() / 2; ++i)
          own[i] = combine(op, own[i], own[i + own.size() / 2]);
      Value sum = foldLanes(op, own.front());
      total = total ? combine(op, total, sum) : sum;
    }
    reduced[op.getResult()] = {roundResult(op, total), 0};
  }
  for (Root &root : stage.roots)
    if (!root.reduce && root.output >= 0)
      storedRows[root.value] = root.output;
}
