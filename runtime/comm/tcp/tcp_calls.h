// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The calling side of conversations (wire.h) with several ranks at once, for
// links that have no connection yet, or a broken one. No call waits for another
// one, since a machine that is gone does not answer.
#pragma once

#include "runtime/comm/socket.h"
#include "runtime/comm/wire.h"

#include <functional>
#include <optional>
#include <poll.h>
#include <string>
#include <vector>

namespace fsdpc::runtime {

/// A conversation under way.
struct Call {
  Greeting greeting; ///< its `to` and `link` tell calls apart
  Conversation conversation;
  Socket socket;
  Deadline deadline;
  enum Stage { connecting, saidHello, greeted } stage = connecting;
  size_t filled = 0;
  std::array<uint8_t, std::max(sizeof(Challenge), sizeof(Answer))> bytes = {};
};

/// For one thread.
class Calls {
public:
  struct End {
    std::optional<Answer> answer;
    bool isRefused = false;        ///< nobody listens there
    bool lacksDescriptors = false; ///< the limit of open files is reached
    std::string why;               ///< without an answer
  };
  /// Hears how a call has ended.
  using Ended = std::function<void(Call &call, const End &end)>;

  /// Calls that have not ended after `seconds` are given up.
  Calls(const Bytes32 &key, double seconds, double silence,
        const std::vector<Endpoint> &own, Ended ended)
      : key(key), seconds(seconds), silence(silence), own(own),
        ended(std::move(ended)) {}

  /// Calls the process that listens at `place`. The greeting has no seal yet.
  void begin(const Greeting &greeting, const Endpoint &place);
  bool isCalling(int link, int peer) const;
  /// Returns when the first call is to be given up.
  Deadline next() const;
  /// Appends what poll() is to wait for: one entry per call.
  void addTo(std::vector<pollfd> &entries) const;
  /// Goes on with the calls whose entries, in the same order, are ready.
  void advance(std::span<const pollfd> entries);

private:
  bool step(Call &call, End &end);
  bool hear(Call &call, size_t bytes);

  const Bytes32 &key;
  const double seconds, silence;
  const std::vector<Endpoint> &own;
  const Ended ended;
  std::vector<Call> calls;
};

} // namespace fsdpc::runtime
