// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The network interfaces of this machine. A machine may have several, and not
// all of them lead to the other machines of a job: bridges of containers have
// the same address everywhere, and the machine's host name may resolve to a
// loopback address. --interface chooses one.
#pragma once

#include "runtime/comm/socket.h"
#include "runtime/support/status.h"

#include <string>
#include <vector>

namespace fsdpc::runtime {

/// Returns the addresses of an interface, with port 0, at least one. The error
/// names the interfaces that there are.
Result<std::vector<Endpoint>> addressesOf(const std::string &interface);

/// Returns an address, with port 0, by which other machines most likely reach
/// this one: that of the interface, or if none is chosen the one that the own
/// host name has, or the first one. Loopback only if there is no other.
Result<Endpoint> ownAddress(const std::string &interface);

/// Returns the interfaces with their addresses, for messages, without the
/// loopback: "'eth0' (10.0.0.2), 'docker0' (172.17.0.1)".
std::string listOfInterfaces();

/// Lets Open MPI and NCCL use this interface too, unless their own variables
/// are set. Call it before either is loaded.
void chooseForLibraries(const std::string &interface);

} // namespace fsdpc::runtime
