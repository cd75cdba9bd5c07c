// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// See hosts.h. A host answers if the remote shell can run a command there,
// which is what a start needs. A ping would not tell that, and needs rights
// that a user may lack.
#include "tools/run/hosts.h"

#include "runtime/support/concat.h"
#include "tools/run/child.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <set>
#include <sys/socket.h>
#include <thread>
#include <unistd.h>

namespace fsdpc::run {
namespace {

constexpr std::chrono::seconds answerLimit(10);
constexpr int64_t mostSlots = 1 << 16;

// Returns the address as a number in text, such as "10.0.0.1"; "" if it is of
// no family of the internet. A link's scope is not part of it.
std::string numberOf(const sockaddr *address) {
  if (!address ||
      (address->sa_family != AF_INET && address->sa_family != AF_INET6))
    return "";
  char text[NI_MAXHOST];
  socklen_t size = address->sa_family == AF_INET ? sizeof(sockaddr_in)
                                                 : sizeof(sockaddr_in6);
  if (getnameinfo(address, size, text, sizeof text, nullptr, 0,
                  NI_NUMERICHOST) != 0)
    return "";
  std::string number = text;
  return number.substr(0, number.find('%'));
}

// Names are words of a command that a shell reads on the other host.
bool isPlain(const std::string &name) {
  return !name.empty() && name[0] != '-' &&
         std::ranges::all_of(name, [](char c) {
           return isalnum(static_cast<unsigned char>(c)) || c == '.' ||
                  c == '-' || c == '_' || c == ':' || c == '@' || c == '%';
         });
}

Result<Host> parseHost(const std::string &text) {
  Error fault = commandLineError("--hosts: '" + text +
                                 "' is not HOST or HOST:SLOTS, such as "
                                 "'node1:4' or '[fd00::1]:4'");
  Host host;
  std::string slots;
  size_t bracket = text.find('['), end = text.find(']');
  if (bracket != std::string::npos && end != std::string::npos) {
    host.name =
        text.substr(0, bracket) + text.substr(bracket + 1, end - bracket - 1);
    std::string rest = text.substr(end + 1);
    if (!rest.empty() && (rest[0] != ':' || rest.size() == 1))
      return fault;
    slots = rest.empty() ? "" : rest.substr(1);
  } else {
    size_t colon = text.find(':');
    host.name = text.substr(0, colon);
    if (colon != std::string::npos && (slots = text.substr(colon + 1)).empty())
      return fault;
  }
  if (!isPlain(host.name))
    return fault;
  if (slots.empty())
    return host;
  auto [at, code] =
      std::from_chars(slots.data(), slots.data() + slots.size(), host.slots);
  if (code != std::errc() || at != slots.data() + slots.size() ||
      host.slots < 1 || host.slots > mostSlots)
    return fault;
  return host;
}

} // namespace

std::string Host::address() const { return name.substr(name.find('@') + 1); }

Result<std::vector<Host>> parseHosts(const std::string &text) {
  std::vector<Host> hosts;
  std::set<std::string> seen;
  for (size_t begin = 0; begin <= text.size();) {
    size_t end = std::min(text.find(',', begin), text.size());
    Result<Host> host = parseHost(text.substr(begin, end - begin));
    FSDPC_TRY(host);
    if (!seen.insert(host->name).second)
      return commandLineError("--hosts: '" + host->name +
                              "' is given twice; write it once with ':SLOTS'");
    hosts.push_back(*host);
    begin = end + 1;
  }
  return hosts;
}

bool isThisHost(const Host &host) {
  std::string name = host.address();
  char own[256] = "";
  gethostname(own, sizeof own - 1);
  std::string full = own;
  if (name == full || name == full.substr(0, full.find('.')) ||
      name == "localhost")
    return true;
  addrinfo *found = nullptr;
  if (getaddrinfo(name.c_str(), nullptr, nullptr, &found) != 0)
    return false;
  std::set<std::string> numbers;
  for (addrinfo *at = found; at; at = at->ai_next)
    numbers.insert(numberOf(at->ai_addr));
  freeaddrinfo(found);
  numbers.erase("");
  ifaddrs *interfaces = nullptr;
  if (getifaddrs(&interfaces) != 0)
    return false;
  bool own_address = false;
  for (ifaddrs *at = interfaces; at; at = at->ifa_next)
    own_address |= numbers.contains(numberOf(at->ifa_addr));
  freeifaddrs(interfaces);
  return own_address;
}

std::vector<Host> answering(const std::vector<Host> &hosts,
                            const std::string &agent) {
  std::vector<Child> probes(hosts.size());
  std::vector<bool> there(hosts.size());
  for (size_t i = 0; i < hosts.size(); ++i) {
    there[i] = isThisHost(hosts[i]);
    if (there[i])
      continue;
    std::vector<std::string> words = agentWords(agent);
    words.insert(words.end(), {hosts[i].name, "true"});
    // An agent that cannot be started finds no host.
    if (Result<Child> probe = Child::start(words, {.quiet = true}))
      probes[i] = std::move(*probe);
  }
  auto deadline = std::chrono::steady_clock::now() + answerLimit;
  for (bool waiting = true; waiting;) {
    waiting = false;
    for (size_t i = 0; i < hosts.size(); ++i) {
      if (!probes[i].isRunning())
        continue;
      if (std::optional<int> code = probes[i].poll())
        there[i] = *code == 0;
      else
        waiting = true;
    }
    if (std::chrono::steady_clock::now() > deadline)
      break;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::vector<Host> found;
  for (size_t i = 0; i < hosts.size(); ++i)
    if (there[i])
      found.push_back(hosts[i]);
  return found;
}

std::optional<int64_t> ranksFor(int64_t slots, const RankRule &rule) {
  for (int64_t ranks = std::min(slots, rule.ranks);
       ranks >= std::max<int64_t>(rule.least, 1); --ranks)
    if (rule.microbatches % ranks == 0 && ranks % rule.group == 0)
      return ranks;
  return std::nullopt;
}

std::vector<Host> place(const std::vector<Host> &hosts, int64_t ranks) {
  std::vector<Host> placed;
  for (const Host &host : hosts) {
    int64_t here = std::min(host.slots, ranks);
    ranks -= here;
    if (here > 0)
      placed.push_back({host.name, here});
  }
  return placed;
}

int64_t slotsOf(const std::vector<Host> &hosts) {
  int64_t sum = 0;
  for (const Host &host : hosts)
    sum += host.slots;
  return sum;
}

std::string listOf(const std::vector<Host> &hosts) {
  std::string list;
  for (const Host &host : hosts) {
    bool six = host.name.find(':') != std::string::npos;
    list += concat(list.empty() ? "" : ",",
                   six ? "[" + host.name + "]" : host.name, ":", host.slots);
  }
  return list;
}

} // namespace fsdpc::run
