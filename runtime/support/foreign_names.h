// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Names that PyTorch, its trainers, FairScale and DeepSpeed use, and what to
// write here instead. The nearest word is a bad suggestion for a name that is
// right elsewhere: '--grad-clip' is near to nothing that clips. One table for
// fsdpc and for its programs, whose users pass flags to either.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace fsdpc {

/// Advice about a flag that this command does not have. Written without dashes
/// in front; underscores count as dashes and capitals as small letters.
struct ForeignFlag {
  const char *name;
  const char *advice; ///< continues a message: "write '--accumulate' of …"
};

/// Returns the table of flags, for tests.
const std::vector<ForeignFlag> &foreignFlags();
/// Returns the advice on a flag given as "--grad_clip=1", or "" if there is
/// none.
std::string adviceOnFlag(std::string_view flag);

/// Returns what the value of a flag is called here, such as "zero3" for
/// "ShardingStrategy.FULL_SHARD", "f32" for "torch.float32" and "adamw" for
/// "AdamW". A name that is in no table is returned in small letters with
/// underscores and without the module in front of it.
std::string nativeValue(std::string_view value);

} // namespace fsdpc
