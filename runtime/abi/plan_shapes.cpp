// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks the extents and the lengths of lists in library plans (plan_shapes.h).
// Code that divides by an extent or indexes a list by an axis relies on them:
// the sizes of scratch memory, and the plans of every backend.
#include "runtime/abi/plan_shapes.h"

#include "runtime/support/concat.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc {
namespace {

using List = std::vector<int64_t>;

// A list of a plan, with its key in the manifest.
using Named = std::pair<const char *, const List &>;

Status checkLengths(const char *what, size_t length,
                    std::initializer_list<Named> lists) {
  for (auto &[name, list] : lists)
    if (list.size() != length)
      return inputError(concat(std::string(what), " whose '", name, "' has ",
                               list.size(), " entries instead of ", length));
  return {};
}

// The largest stride, padding, dilation or extent along which windows move.
// Its square fits 64 bits.
constexpr int64_t mostEntry = int64_t(1) << 30;
constexpr int64_t mostQueries = int64_t(1) << 26;

// Checks that every entry of the lists is in [least, most].
Status checkEntries(const char *what, int64_t least,
                    std::initializer_list<Named> lists,
                    int64_t most = mostEntry) {
  for (auto &[name, list] : lists)
    for (int64_t entry : list)
      if (entry < least || entry > most)
        return inputError(concat(std::string(what), " whose '", name,
                                 "' has the entry ", entry));
  return {};
}

Status checkExtents(const char *what, std::initializer_list<int64_t> extents) {
  if (std::min(extents) < 1)
    return inputError(std::string(what) + " with an empty dimension");
  return {};
}

// Libraries have epilogues for products that are not batched, and GELU's input
// lies in rows of multiples of 8 elements.
Status checkEpilogue(const MatmulPlan &p) {
  const std::string &e = p.epilogue;
  bool isGelu = e == "gelu" || e == "gelu_extra" || e == "gelu_grad";
  bool isSum = e == "sum_lhs" || e == "sum_rhs";
  if (!e.empty() && !isGelu && !isSum)
    return inputError("matrix product with the unknown epilogue '" + e + "'");
  bool adds = p.bias || p.addend;
  if ((!e.empty() || p.addend) && (p.accumulate || !p.batch.empty()))
    return inputError("matrix product with the epilogue '" + e +
                      "' that accumulates or is batched");
  if ((isSum || e == "gelu_grad") && adds)
    return inputError("matrix product with the epilogue '" + e +
                      "' and a bias or an addend");
  if (isGelu && p.n % 8)
    return inputError(concat("matrix product with the epilogue '", e,
                             "' and rows of ", p.n,
                             " elements, which is not a multiple of 8"));
  return {};
}

// Checks the number of elements of tensors, of which some are only made while
// the plan runs.
Status checkTensors(const char *what, std::initializer_list<List> shapes) {
  for (const List &shape : shapes)
    if (elementsOf(shape, 1) < 0)
      return inputError(std::string(what) + " of too many elements");
  return {};
}

} // namespace

int64_t elementsOf(const List &shape, int64_t least) {
  int64_t elements = 1;
  for (int64_t extent : shape)
    if (extent < least || __builtin_mul_overflow(elements, extent, &elements) ||
        elements > mostElements)
      return -1;
  return elements;
}

Status checkShape(const MatmulPlan &p) {
  const char *what = "matrix product";
  FSDPC_TRY(checkExtents(what, {p.m, p.n, p.k}));
  FSDPC_TRY(checkEpilogue(p));
  List a = p.batch, b = p.batch, c = p.batch;
  a.insert(a.end(), {p.m, p.k});
  b.insert(b.end(), {p.k, p.n});
  c.insert(c.end(), {p.m, p.n});
  FSDPC_TRY(checkTensors(what, {a, b, c}));
  return checkLengths(
      what, p.batch.size(),
      {{"strideA", p.strideA}, {"strideB", p.strideB}, {"strideC", p.strideC}});
}

Status checkShape(const ConvolutionPlan &p) {
  const char *what = "convolution";
  FSDPC_TRY(checkExtents(what, {p.batch, p.channels, p.height, p.width,
                                p.filters, p.kernelHeight, p.kernelWidth,
                                p.outHeight, p.outWidth}));
  FSDPC_TRY(checkLengths(what, 2,
                         {{"strides", p.strides},
                          {"padsBegin", p.padsBegin},
                          {"padsEnd", p.padsEnd},
                          {"dilations", p.dilations}}));
  FSDPC_TRY(checkEntries(what, 1,
                         {{"strides", p.strides}, {"dilations", p.dilations}}));
  if (p.groups < 1 || p.channels % p.groups || p.filters % p.groups)
    return inputError(concat("convolution with ", p.groups,
                             " groups, which do not divide its channels"));
  // The last one is the matrix of windows.
  FSDPC_TRY(checkTensors(
      what,
      {{p.batch, p.channels, p.height, p.width},
       {p.batch, p.filters, p.outHeight, p.outWidth},
       {p.channels, p.filters, p.kernelHeight, p.kernelWidth},
       {p.channels, p.kernelHeight, p.kernelWidth, p.outHeight, p.outWidth}}));
  FSDPC_TRY(checkEntries(what, 1,
                         {{"kernel", {p.kernelHeight, p.kernelWidth}},
                          {"height", {p.height, p.outHeight}},
                          {"width", {p.width, p.outWidth}}}));
  return checkEntries(what, 0,
                      {{"padsBegin", p.padsBegin}, {"padsEnd", p.padsEnd}});
}

Status checkShape(const PoolingPlan &p) {
  const char *what = "pooling";
  FSDPC_TRY(checkExtents(
      what, {p.batch, p.channels, p.height, p.width, p.outHeight, p.outWidth}));
  FSDPC_TRY(
      checkTensors(what, {{p.batch, p.channels, p.height, p.width},
                          {p.batch, p.channels, p.outHeight, p.outWidth}}));
  FSDPC_TRY(checkLengths(what, 2,
                         {{"kernel", p.kernel},
                          {"strides", p.strides},
                          {"padsBegin", p.padsBegin},
                          {"padsEnd", p.padsEnd}}));
  FSDPC_TRY(
      checkEntries(what, 1, {{"kernel", p.kernel}, {"strides", p.strides}}));
  return checkEntries(what, 0,
                      {{"padsBegin", p.padsBegin}, {"padsEnd", p.padsEnd}});
}

// Only the backward plan has the strides of cotangents, only a mask has
// strides.
Status checkShape(const AttentionPlan &p) {
  const char *what = "attention";
  FSDPC_TRY(checkExtents(what, {p.batch, p.heads, p.groups, p.queries, p.keys,
                                p.width, p.valueWidth}));
  // The blocks of queries are listed.
  FSDPC_TRY(checkEntries(what, 1, {{"queries", {p.queries}}}, mostQueries));
  // Libraries pad rows and columns to their tiles. The last one is the scores.
  auto tiles = [](int64_t extent) { return (extent + 127) / 128 * 128; };
  FSDPC_TRY(checkTensors(what, {{p.keys}, {p.width}, {p.valueWidth}}));
  int64_t queries = tiles(p.queries), keys = tiles(p.keys),
          width = tiles(std::max(p.width, p.valueWidth));
  FSDPC_TRY(checkTensors(what, {{p.batch, p.heads, queries, width},
                                {p.batch, p.heads, keys, width},
                                {p.batch, p.heads, queries, keys}}));
  if (p.heads % p.groups != 0)
    return inputError(concat("attention with ", p.heads, " heads for ",
                             p.groups, " key heads"));
  FSDPC_TRY(checkLengths(what, 3,
                         {{"strideQuery", p.strideQuery},
                          {"strideKey", p.strideKey},
                          {"strideValue", p.strideValue},
                          {"strideOutput", p.strideOutput}}));
  if (!p.dtypeMask.empty())
    FSDPC_TRY(checkLengths(what, 4, {{"strideMask", p.strideMask}}));
  if (!p.backward)
    return {};
  return checkLengths(what, 3,
                      {{"strideGrad", p.strideGrad},
                       {"strideDQuery", p.strideDQuery},
                       {"strideDKey", p.strideDKey},
                       {"strideDValue", p.strideDValue}});
}

} // namespace fsdpc
