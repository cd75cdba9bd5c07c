// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Keeps the host's threads of a rank on cores near its GPU.
#pragma once

#include <sched.h>
#include <string>

namespace fsdpc::runtime {

/// Parses a list of processors as sysfs writes it: "0-3,8,10-11". Returns an
/// empty set if the text is not one.
cpu_set_t parseProcessors(const std::string &text);

/// Keeps the calling thread, and those that it starts later, on the processors
/// near the device at a PCI address ("0000:3b:00.0"), as far as the launcher
/// allows them. Memory that the thread touches first then lies near the GPU
/// too. Returns the list of processors, or "" if nothing was changed: the
/// system does not say what is near, nothing of it is allowed, or all that is
/// allowed is near. `devices` is the folder of PCI devices.
std::string stayNear(const std::string &pciAddress,
                     const std::string &devices = "/sys/bus/pci/devices");

} // namespace fsdpc::runtime
