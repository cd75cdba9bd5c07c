// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reads the interfaces from the system on each call, since a job calls this
// once, and again only for messages. Leaves out link-local addresses of IPv6:
// they need the interface's number, which another machine does not know.
#include "runtime/comm/interfaces.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <unistd.h>

namespace fsdpc::runtime {

namespace {

struct Interface {
  std::string name;
  std::vector<Endpoint> addresses;
};
using Interfaces = std::vector<Interface>;

// The interfaces that are up, in the system's order.
Interfaces findInterfaces(bool loopback) {
  Interfaces found;
  ifaddrs *first = nullptr;
  if (getifaddrs(&first) != 0)
    return found;
  for (const ifaddrs *at = first; at; at = at->ifa_next) {
    if (!(at->ifa_flags & IFF_UP) ||
        (!loopback && (at->ifa_flags & IFF_LOOPBACK)))
      continue;
    auto own = std::ranges::find(found, at->ifa_name, &Interface::name);
    if (own == found.end())
      own = found.insert(own, {at->ifa_name, {}});
    Endpoint endpoint;
    if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET) {
      endpoint.family = AF_INET;
      memcpy(endpoint.address.data(),
             &reinterpret_cast<const sockaddr_in *>(at->ifa_addr)->sin_addr, 4);
    } else if (at->ifa_addr && at->ifa_addr->sa_family == AF_INET6) {
      const in6_addr &address =
          reinterpret_cast<const sockaddr_in6 *>(at->ifa_addr)->sin6_addr;
      if (IN6_IS_ADDR_LINKLOCAL(&address))
        continue;
      endpoint.family = AF_INET6;
      memcpy(endpoint.address.data(), &address, 16);
    } else {
      continue;
    }
    own->addresses.push_back(endpoint);
  }
  freeifaddrs(first);
  return found;
}

std::string textOf(const Interfaces &interfaces) {
  std::string text;
  for (const auto &[name, addresses] : interfaces) {
    text += (text.empty() ? "'" : ", '") + name + "' (";
    for (size_t i = 0; i < addresses.size(); ++i)
      text += (i ? ", " : "") + addressText(addresses[i]);
    text += addresses.empty() ? "no address)" : ")";
  }
  return text.empty() ? "none" : text;
}

} // namespace

Result<std::vector<Endpoint>> addressesOf(const std::string &interface) {
  Interfaces all = findInterfaces(true);
  auto found = std::ranges::find(all, interface, &Interface::name);
  if (found == all.end() || found->addresses.empty())
    return inputError("--interface: '" + interface +
                      "' is no interface of this machine that is up and has "
                      "an address; it has " +
                      textOf(all));
  return found->addresses;
}

// The host's name may mean a loopback address here, or another machine's.
Result<Endpoint> ownAddress(const std::string &interface) {
  if (!interface.empty()) {
    Result<std::vector<Endpoint>> chosen = addressesOf(interface);
    FSDPC_TRY(chosen);
    return chosen->front();
  }
  char host[256] = "";
  gethostname(host, sizeof host - 1);
  if (Result<std::vector<Socket>> named = listenOn(host, 0))
    for (const Socket &each : *named)
      if (!isLoopback(each)) {
        Result<Endpoint> own = each.ownEndpoint();
        FSDPC_TRY(own);
        own->port = 0;
        return own;
      }
  for (bool loopback : {false, true})
    for (const Interface &each : findInterfaces(loopback))
      if (!each.addresses.empty())
        return each.addresses.front();
  return machineError("this machine has no network interface that is up");
}

std::string listOfInterfaces() { return textOf(findInterfaces(false)); }

void chooseForLibraries(const std::string &interface) {
  setenv("OMPI_MCA_btl_tcp_if_include", interface.c_str(), 0);
  setenv("OMPI_MCA_oob_tcp_if_include", interface.c_str(), 0);
  // Without the sign NCCL would also take names that only begin like this.
  setenv("NCCL_SOCKET_IFNAME", ("=" + interface).c_str(), 0);
}

} // namespace fsdpc::runtime
