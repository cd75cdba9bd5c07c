// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Asks NCCL for features that not every version has: memory that it need not
// copy, gathers without multiprocessors, and an order between the two
// communicators. All ranks must ask for the same.
#pragma once

#include "runtime/cuda/collectives.h"

namespace fsdpc::runtime {

/// The same on all ranks.
struct NcclUse {
  bool windows = false; ///< memory is registered as symmetric windows
  NcclConfig config;    ///< of gathers
  std::string note;     ///< a line for the log
};

/// Agrees on what NCCL is asked for. All ranks call it together. Prints a
/// warning if NCCL is too old to order communicators, and fails if its version
/// is unknown.
Result<NcclUse> agreeOnNccl(CudaApi &api, Job &job,
                            const DeviceOptions &options,
                            const CollectiveResources &resources);

/// Memory that is registered with communicators while the object lives. Memory
/// that cannot be registered is slower, but works.
class NcclRegistrations {
public:
  explicit NcclRegistrations(CudaApi &api) : api(api) {}
  ~NcclRegistrations();
  NcclRegistrations(const NcclRegistrations &) = delete;

  /// Returns the status of a window that NCCL refuses with an error.
  CudaStatus add(CudaCommunicator communicator,
                 const CollectiveResources &resources, bool asWindow);

private:
  struct Registration {
    CudaCommunicator communicator;
    void *handle;
    bool isWindow;
  };
  CudaApi &api;
  std::vector<Registration> registrations;
};

} // namespace fsdpc::runtime
