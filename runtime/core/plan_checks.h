// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Checks of library plans that are the same for every backend. A manifest can
// come from an edited dump, so no backend may trust it: each calls these before
// it sizes memory or builds a primitive.
#pragma once

#include "runtime/abi/element_type.h"
#include "runtime/abi/manifest.h"
#include "runtime/abi/plan_shapes.h"
#include "runtime/support/concat.h"
#include "runtime/support/status.h"

#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime {

/// The types that library calls compute in.
inline bool isFloatType(const std::string &dtype) {
  return dtype == "f32" || dtype == "bf16" || dtype == "f16";
}

/// Fails if no backend can run the pooling: an element type, a kind or extents
/// that the compiler never writes. The error quotes the value.
inline Status checkPooling(const PoolingPlan &p) {
  if (!isFloatType(p.dtype))
    return inputError("pooling of type '" + p.dtype + "' is not supported");
  if (p.kind != "max" && p.kind != "average" && p.kind != "max_grad" &&
      p.kind != "average_grad")
    return inputError("unknown pooling kind '" + p.kind + "'");
  return checkShape(p);
}

/// Fails if no backend can run the attention.
inline Status checkAttention(const AttentionPlan &p) {
  bool knownMask =
      p.dtypeMask.empty() || p.dtypeMask == "i1" || isFloatType(p.dtypeMask);
  if (!isFloatType(p.dtype) || !knownMask)
    return inputError("attention of type '" + p.dtype + "' with a mask of '" +
                      p.dtypeMask + "' is not supported");
  return checkShape(p);
}

/// Returns why libraries that load 16 bytes at a time do not take the strides
/// of an attention, or "". Calls are passed addresses that are aligned.
inline std::string whyUnaligned(const AttentionPlan &p) {
  const std::pair<const char *, const std::vector<int64_t> &> lists[] = {
      {"query", p.strideQuery}, {"key", p.strideKey},
      {"value", p.strideValue}, {"output", p.strideOutput},
      {"grad", p.strideGrad},   {"dquery", p.strideDQuery},
      {"dkey", p.strideDKey},   {"dvalue", p.strideDValue}};
  int64_t bytes = dtypeBytes(p.dtype);
  for (auto &[name, list] : lists)
    for (int64_t stride : list)
      if (stride * bytes % 16 != 0)
        return concat("a stride of its ", name, ", ", stride,
                      " elements, is not a multiple of 16 bytes");
  return "";
}

} // namespace fsdpc::runtime
