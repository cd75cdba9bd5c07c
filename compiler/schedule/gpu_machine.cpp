// Figures from NVIDIA's data sheets: dense products (without sparsity) in bf16
// on tensor cores and in f32 outside them (TF32 stays off), memory, and one
// direction of NVLink, or of PCIe x16 if there is no NVLink.

#include "compiler/schedule/gpu_machine.h"

#include <iterator>

namespace fsdpc::schedule {

namespace {

// Rates of one GPU: tera-flops and 10⁹ bytes per second.
struct Gpu {
  std::string_view arch;
  double f32Tflops, bf16Tflops, memoryGBs, linkGBs;
};

constexpr Gpu gpus[] = {
    {"sm_80", 19.5, 312, 2039, 300}, // A100 80GB SXM, NVLink 3
    {"sm_86", 37.4, 149.7, 696, 32}, // A40, PCIe 4
    {"sm_89", 91.6, 362, 864, 32},   // L40S, PCIe 4
    {"sm_90", 67, 989, 4800, 450},   // H200 SXM, NVLink 4
    {"sm_100", 75, 2250, 8000, 900}, // B200 (HGX), NVLink 5
    {"sm_120", 125, 503, 1792, 64},  // RTX PRO 6000 Blackwell, PCIe 5
};

constexpr double collectiveLatencyUs = 20; // a small NCCL collective in a node

} // namespace

Machine gpuMachine(std::string_view arch) {
  // The entry of sm_90.
  const Gpu *gpu = std::begin(gpus) + 3;
  for (const Gpu &known : gpus)
    if (known.arch == arch)
      gpu = &known;
  Machine machine;
  machine.f32Gflops = gpu->f32Tflops * 1e3;
  machine.bf16Gflops = gpu->bf16Tflops * 1e3;
  machine.memoryGBs = gpu->memoryGBs;
  machine.collectiveGBs = gpu->linkGBs;
  machine.collectiveLatencyUs = collectiveLatencyUs;
  return machine;
}

} // namespace fsdpc::schedule
