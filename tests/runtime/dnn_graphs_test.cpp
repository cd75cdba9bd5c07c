// Whether cuDNN's header library takes the graphs that plans become, for an
// H100's kind of GPU. It asks cudart for the device: this program answers. What
// cuDNN's own heuristics say takes a device.
#include "runtime/cuda/dnn_graphs.h"

#include <gtest/gtest.h>

using namespace fsdpc;

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

std::string problemOf(cudnn_frontend::graph::Graph &graph) {
  return graph.validate().get_message();
}

TEST(DnnGraphs, DescribesConvolutions) {
  ConvolutionPlan plan;
  plan.batch = 8, plan.channels = 32, plan.height = plan.width = 28;
  plan.filters = 64, plan.kernelHeight = plan.kernelWidth = 3;
  plan.outHeight = plan.outWidth = 14;
  plan.strides = {2, 2}, plan.dilations = {1, 1};
  plan.padsBegin = {0, 0}, plan.padsEnd = {1, 1}; // as TensorFlow pads
  for (int64_t groups : {1, 4, 32})
    for (const char *dtype : {"f32", "bf16"})
      for (const char *kind : {"forward", "input", "weight"}) {
        plan.kind = kind, plan.dtype = dtype, plan.groups = groups;
        cudnn_frontend::graph::Graph graph;
        EXPECT_EQ(describeConvolution(graph, plan), 3);
        EXPECT_EQ(problemOf(graph), "") << kind << " " << dtype;
      }
}

// Queries, keys and values beside one another in one matrix, as GPT-2 has them.
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

TEST(DnnGraphs, DescribesAttention) {
  for (bool causal : {false, true})
    for (int64_t groups : {4, 12}) {
      AttentionPlan plan = attentionOf(12, groups, causal);
      cudnn_frontend::graph::Graph graph;
      EXPECT_EQ(describeAttention(graph, plan, false), 5);
      EXPECT_EQ(problemOf(graph), "");
    }
}

TEST(DnnGraphs, DescribesTheGradientOfAttention) {
  for (bool deterministic : {false, true})
    for (int64_t keys : {256, 320}) {
      AttentionPlan plan = attentionOf(12, 4, true);
      plan.backward = true;
      plan.keys = keys;
      cudnn_frontend::graph::Graph graph;
      EXPECT_EQ(describeAttention(graph, plan, deterministic), 9);
      EXPECT_EQ(problemOf(graph), "");
    }
}

} // namespace
