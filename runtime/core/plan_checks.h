// Checks of library plans that are the same for every backend. A manifest can
// come from an edited dump, so no backend may trust it: each calls these before
// it sizes memory or builds a primitive.
#pragma once

#include "shared/manifest.h"
#include "shared/plan_shapes.h"
#include "shared/status.h"

#include <string>

namespace fsdpc::runtime {

// The types that library calls compute in.
inline bool isFloatType(const std::string &dtype) {
  return dtype == "f32" || dtype == "bf16" || dtype == "f16";
}

// Fails if no backend can run the pooling: an element type, a kind or extents
// that the compiler never writes. The error quotes the value.
inline Status checkPooling(const PoolingPlan &p) {
  if (!isFloatType(p.dtype))
    return Error{"pooling of type '" + p.dtype + "' is not supported"};
  if (p.kind != "max" && p.kind != "average" && p.kind != "max_grad" &&
      p.kind != "average_grad")
    return Error{"unknown pooling kind '" + p.kind + "'"};
  return checkShape(p);
}

// Fails if no backend can run the attention.
inline Status checkAttention(const AttentionPlan &p) {
  bool knownMask =
      p.dtypeMask.empty() || p.dtypeMask == "i1" || isFloatType(p.dtypeMask);
  if (!isFloatType(p.dtype) || !knownMask)
    return Error{"attention of type '" + p.dtype + "' with a mask of '" +
                 p.dtypeMask + "' is not supported"};
  return checkShape(p);
}

} // namespace fsdpc::runtime
