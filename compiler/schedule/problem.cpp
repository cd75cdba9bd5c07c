// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Problem::check: what must hold before a solver sees a problem. Solvers rely
// on it and repeat none of these checks. Messages quote the labels that the
// caller gave, since nothing here knows ops.
#include "compiler/schedule/problem.h"

#include "runtime/support/concat.h"

#include <cmath>

namespace fsdpc::schedule {

namespace {

std::string quoted(const std::string &label) { return "'" + label + "'"; }

// Infinite or negative times would make the timeline meaningless.
bool validDuration(double us) { return std::isfinite(us) && us >= 0; }

// Returns what is wrong with a size or an alignment, or "".
std::string checkBuffer(int64_t bytes, int64_t alignment) {
  if (bytes < 0)
    return concat(" has ", bytes, " bytes");
  if (alignment < 1)
    return concat(" has alignment ", alignment);
  return "";
}

std::string checkTensor(const Tensor &tensor, int n) {
  if (std::string message = checkBuffer(tensor.bytes, tensor.alignment);
      !message.empty())
    return message;
  if (tensor.begin < 0 || tensor.begin > tensor.end || tensor.end >= n)
    return concat(" is live from ", tensor.begin, " to ", tensor.end,
                  ", outside of ops 0 to ", n - 1);
  return "";
}

// A window must not be empty, and a buffer must be alive when its collective
// runs.
std::string checkCollective(const Collective &c, int n) {
  if (!validDuration(c.durationUs))
    return " has a negative or non-finite duration";
  for (const Buffer &buffer : c.buffers)
    if (std::string message = checkBuffer(buffer.bytes, buffer.alignment);
        !message.empty())
      return message;
  // latest may be n, the end of the function; lastUse is an op.
  if (c.earliest < 0 || c.earliest > c.latest || c.latest > n)
    return concat(" has an empty or out-of-range window [", c.earliest, ", ",
                  c.latest, "]");
  if (c.kind == CollectiveKind::Gather) {
    if (c.lastUse && (*c.lastUse < c.latest || *c.lastUse >= n))
      return concat(" is last used at ", *c.lastUse,
                    ", which is before its first use at ", c.latest,
                    " or after the end of the function");
    return "";
  }
  if (c.lastUse)
    return " is a reduction, which must not have a last use";
  // The definition lies before `earliest`, since the reduction reads what it
  // wrote.
  for (const Buffer &buffer : c.buffers)
    if (buffer.definition < 0 || buffer.definition >= c.earliest)
      return concat(" is ready at ", c.earliest,
                    ", but its buffer is first written by op ",
                    buffer.definition);
  return "";
}

} // namespace

std::string Problem::check() const {
  int n = numOps();
  for (int p = 0; p < n; ++p)
    if (!validDuration(ops[p].durationUs))
      return concat("op ", p, " has a negative or non-finite duration");
  for (const Tensor &tensor : tensors)
    if (std::string message = checkTensor(tensor, n); !message.empty())
      return "tensor " + quoted(tensor.label) + message;
  for (const Collective &c : collectives)
    if (std::string message = checkCollective(c, n); !message.empty())
      return "collective " + quoted(c.label) + message;
  // Binary searches over segments rely on their order.
  int previousEnd = 0;
  for (const Segment &segment : segments) {
    if (segment.begin < previousEnd || segment.end <= segment.begin ||
        segment.end > n)
      return concat(
          "segment ", quoted(segment.label), " [", segment.begin, ", ",
          segment.end,
          ") is empty, overlaps the previous segment, or ends after the "
          "function");
    previousEnd = segment.end;
  }
  if (baseBytes < 0)
    return concat("base bytes must not be negative: ", baseBytes);
  if (!validDuration(contention.ofCompute))
    return "the slowdown of compute must be finite and not negative";
  if (!validDuration(contention.ofCommunication))
    return "the slowdown of communication must be finite and not negative";
  if (options.limitAllGathers < 0)
    return concat("the limit of live gathers must not be negative: ",
                  options.limitAllGathers);
  return "";
}

} // namespace fsdpc::schedule
