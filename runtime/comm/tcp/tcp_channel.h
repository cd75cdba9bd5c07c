// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The collectives of one channel of a TCP job. Every two ranks have a link
// (tcp_link.h), and data goes from the rank that has it to the one that needs
// it.
#pragma once

#include "runtime/comm/communicator.h"
#include "runtime/comm/tcp/tcp_session.h"

namespace fsdpc::runtime {

/// Makes one channel. `all` has its links. It and the session must outlive the
/// channel. `nodes` are those of the ranks: ranks of one node share memory.
/// Collective.
std::unique_ptr<Communicator> makeTcpChannel(int rank, Channel channel,
                                             Links &all, TcpSession &session,
                                             const std::vector<int> &nodes);

} // namespace fsdpc::runtime
