// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// cuDNN accepts the graphs that plans become, for an H200 that this machine
// does not have. cuDNN plans for a device that is only described to it. Its
// header library asks cudart about the device, and this program answers. The
// compiler of cuDNN's fused kernels loads libcuda, for which the toolkit's stub
// is enough.
//
// So convolutions are planned, attention is all but planned, and nothing runs.
#include "runtime/cuda/dnn_graphs.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

using namespace fsdpc;
using namespace fsdpc::runtime;

extern "C" {
cudaError_t cudaGetDevice(int *device) {
  *device = 0;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp *properties, int) {
  *properties = {};
  properties->major = 9;
  return cudaSuccess;
}
}

namespace {

using cudnn_frontend::HeurMode_t;
using cudnn_frontend::graph::Graph;

constexpr char h200[] =
    R"({"deviceName":"NVIDIA H200","deviceVer":900,"driverVer":13000,
"cudaDeviceId":0,"pciDeviceId":0,"isTccDriver":0,"supportCoopLaunch":1,
"multiProcessorCount":132,"warpSize":32,"maxThreadsPerBlock":1024,
"maxThreadsPerSM":2048,"maxCtasPerSM":32,"regsPerBlock":65536,
"maxRegistersPerSM":65536,"maxGridSize":[2147483647,65535,65535],
"maxBlockSize":[1024,1024,64],"maxSharedMemoryPerBlock":49152,
"maxSharedMemoryPerBlockOptin":232448,"reservedSharedMemoryPerBlock":1024,
"totalGlobalMem":150754820096,"l2CacheSize":62914560,
"smClockRateKHz":1980000,"memClockRateKHz":3201000})";

// Returns cuDNN's objection to a graph, or "" if it has an engine for it.
std::string problemOf(Graph &graph) {
  auto device = std::make_shared<cudnn_frontend::DeviceProperties>();
  auto error = device->deserialize({h200, h200 + sizeof(h200) - 1});
  graph.set_device_properties(device);
  if (error.is_good())
    error = graph.validate();
  if (error.is_good())
    error = graph.build_operation_graph();
  if (error.is_good())
    error = graph.create_execution_plans({HeurMode_t::A, HeurMode_t::FALLBACK});
  if (error.is_good())
    error = graph.check_support();
  return error.get_message();
}

// A strided convolution with uneven padding, with and without groups, in both
// types and all kinds.
TEST(DnnConvolution, IsPlanned) {
  ConvolutionPlan plan;
  plan.batch = 8, plan.channels = 32, plan.height = plan.width = 28;
  plan.filters = 64, plan.kernelHeight = plan.kernelWidth = 3;
  plan.outHeight = plan.outWidth = 14;
  plan.strides = {2, 2}, plan.dilations = {1, 1};
  plan.padsBegin = {0, 0}, plan.padsEnd = {1, 1}; // as TensorFlow pads
  for (int64_t groups : {1, 4, 32})
    for (const char *dtype : {"f32", "bf16", "f16"})
      for (const char *kind : {"forward", "input", "weight"}) {
        plan.kind = kind, plan.dtype = dtype, plan.groups = groups;
        Graph graph;
        EXPECT_EQ(describeConvolution(graph, plan), 3);
        EXPECT_EQ(problemOf(graph), "") << kind << " " << dtype;
        EXPECT_EQ(graph.build_plans().get_message(), "");
      }
}

// Queries, keys and values side by side in one matrix, as in GPT-2.
AttentionPlan attentionOf(int64_t heads, int64_t groups, bool causal) {
  AttentionPlan plan;
  plan.batch = 2, plan.heads = heads, plan.groups = groups;
  plan.queries = plan.keys = 256, plan.width = plan.valueWidth = 64;
  plan.scale = 0.125, plan.causal = causal, plan.dtype = "bf16";
  int64_t row = (heads + 2 * groups) * 64, out = heads * 64;
  plan.strideQuery = plan.strideKey = plan.strideValue = {256 * row, 64, row};
  plan.strideDQuery = plan.strideDKey =
      plan.strideDValue = {256 * row, 64, row};
  plan.strideOutput = plan.strideGrad = {256 * out, 64, out};
  return plan;
}

class DnnAttention : public testing::Test {
protected:
  void SetUp() override {
    if (!dlopen("libcuda.so.1", RTLD_LAZY))
      GTEST_SKIP() << "no libcuda, not even the toolkit's stub";
  }
};

// With all heads of their own, and with groups of heads that share keys.
TEST_F(DnnAttention, IsDescribed) {
  for (bool causal : {false, true})
    for (int64_t groups : {4, 12}) {
      AttentionPlan plan = attentionOf(12, groups, causal);
      Graph graph;
      EXPECT_EQ(describeAttention(graph, plan, false), 5);
      EXPECT_EQ(problemOf(graph), "");
    }
}

// Deterministic or not, with more keys than queries too.
TEST_F(DnnAttention, IsDescribedBackward) {
  for (bool deterministic : {false, true})
    for (int64_t keys : {256, 320}) {
      AttentionPlan plan = attentionOf(12, 4, true);
      plan.backward = true;
      plan.keys = keys;
      Graph graph;
      EXPECT_EQ(describeAttention(graph, plan, deterministic), 9);
      EXPECT_EQ(problemOf(graph), "");
    }
}

} // namespace
