// What ranks send in collectives to and from owners.
#include "runtime/comm/owned.h"

namespace fsdpc::runtime {

void Communicator::countSent(std::span<const OwnedGradient> gradients,
                             WireType wire) {
  for (const OwnedGradient &part : gradients)
    if (part.owner != rank())
      sent += bytesOf(part, wire);
}

void Communicator::countSent(std::span<const OwnedValues> values) {
  for (const OwnedValues &part : values)
    if (part.owner == rank())
      countSent(part.bytes);
}

} // namespace fsdpc::runtime
