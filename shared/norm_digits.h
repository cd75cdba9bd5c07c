// The form of a sum of squares between fsdp.sum_squares and fsdp.clip_scale.
#pragma once

namespace fsdpc {

// f64 per layout: the digits of an exact sum (runtime/core/square_sum.h).
constexpr int normDigits = 16;

} // namespace fsdpc
