// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Removes folders of checkpoints and keeps what is not theirs. A folder of
// --checkpoint is the user's: a name in it may be a link, or a folder into
// which somebody has put files.
#pragma once

#include "runtime/support/folder.h"
#include "runtime/support/status.h"

#include <string>

namespace fsdpc::runtime {

/// Removes the checkpoint that is called `name` in `in`: the files that its
/// manifest names, their temporary files, and the folder; without a readable
/// manifest all files that have such names. A link is removed itself, whether
/// it is the checkpoint or a file of it. Anything else stays: it moves with its
/// folder to "TITLE.kept/TITLE" ("TITLE.kept-2/TITLE" if that is taken), and a
/// warning says so. Succeeds if there is nothing of the name.
Status removeCheckpoint(const Folder &in, const std::string &name,
                        const std::string &title);

} // namespace fsdpc::runtime
