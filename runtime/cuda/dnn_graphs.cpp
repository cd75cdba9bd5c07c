// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Describes convolutions and attention as cuDNN graphs. Extents and strides are
// in elements. Sums and intermediate values are f32 whatever the operands'
// type.
#include "runtime/cuda/dnn_graphs.h"

namespace fsdpc::runtime {

namespace {

namespace fe = cudnn_frontend;
namespace fg = cudnn_frontend::graph;

using Graph = fg::Graph;
using Tensor = std::shared_ptr<fg::Tensor_attributes>;

// A fixed number (uid) per tensor lets a call pass its pointers by number.
Tensor operand(Graph &graph, int64_t number,
               const std::vector<int64_t> &extents,
               const std::vector<int64_t> &strides) {
  return graph.tensor(
      fg::Tensor_attributes().set_uid(number).set_dim(extents).set_stride(
          strides));
}

// A result is made by its node; this gives it a number and a place in memory.
void makeResult(const Tensor &result, int64_t number,
                const std::vector<int64_t> &extents,
                const std::vector<int64_t> &strides) {
  result->set_output(true).set_uid(number).set_dim(extents).set_stride(strides);
}

void setTypes(Graph &graph, const std::string &dtype) {
  graph
      .set_io_data_type(dtype == "bf16"  ? fe::DataType_t::BFLOAT16
                        : dtype == "f16" ? fe::DataType_t::HALF
                                         : fe::DataType_t::FLOAT)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
}

// Returns row-major strides.
std::vector<int64_t> dense(const std::vector<int64_t> &extents) {
  std::vector<int64_t> strides(extents.size(), 1);
  for (size_t i = extents.size() - 1; i > 0; --i)
    strides[i - 1] = strides[i] * extents[i];
  return strides;
}

template <typename Attributes> Attributes windowsOf(const ConvolutionPlan &p) {
  return Attributes()
      .set_pre_padding(p.padsBegin)
      .set_post_padding(p.padsEnd)
      .set_stride(p.strides)
      .set_dilation(p.dilations);
}

} // namespace

// x, w and y are operands 1, 2 and 3 for each kind. cuDNN derives the groups
// from the channels of the filters.
int describeConvolution(Graph &graph, const ConvolutionPlan &p) {
  std::vector<int64_t> image{p.batch, p.channels, p.height, p.width};
  std::vector<int64_t> filters{p.filters, p.channels / p.groups, p.kernelHeight,
                               p.kernelWidth};
  std::vector<int64_t> result{p.batch, p.filters, p.outHeight, p.outWidth};
  setTypes(graph, p.dtype);
  if (p.kind == "forward") {
    Tensor x = operand(graph, 1, image, dense(image));
    Tensor w = operand(graph, 2, filters, dense(filters));
    Tensor y = graph.conv_fprop(x, w, windowsOf<fg::Conv_fprop_attributes>(p));
    makeResult(y, 3, result, dense(result));
  } else if (p.kind == "input") {
    Tensor dy = operand(graph, 1, result, dense(result));
    Tensor w = operand(graph, 2, filters, dense(filters));
    Tensor dx =
        graph.conv_dgrad(dy, w, windowsOf<fg::Conv_dgrad_attributes>(p));
    makeResult(dx, 3, image, dense(image));
  } else {
    Tensor x = operand(graph, 1, image, dense(image));
    Tensor dy = operand(graph, 2, result, dense(result));
    Tensor dw =
        graph.conv_wgrad(dy, x, windowsOf<fg::Conv_wgrad_attributes>(p));
    makeResult(dw, 3, filters, dense(filters));
  }
  return 3;
}

int describeAttention(Graph &graph, const AttentionPlan &p,
                      bool deterministic) {
  setTypes(graph, p.dtype);
  auto rows = [](int64_t batch, int64_t heads, int64_t count, int64_t width) {
    return std::vector<int64_t>{batch, heads, count, width};
  };
  // Plans have strides of batch, head and row; elements of a row are adjacent.
  auto apart = [](std::vector<int64_t> strides) {
    strides.push_back(1);
    return strides;
  };
  auto queries = rows(p.batch, p.heads, p.queries, p.width);
  auto keys = rows(p.batch, p.groups, p.keys, p.width);
  auto values = rows(p.batch, p.groups, p.keys, p.valueWidth);
  auto outputs = rows(p.batch, p.heads, p.queries, p.valueWidth);
  auto sums = rows(p.batch, p.heads, p.queries, 1);
  // Forward and backward take the same attributes. A square mask has the same
  // meaning aligned top left or bottom right, and more kernels support top
  // left.
  auto mask = [&](auto &attributes) {
    attributes.set_attn_scale(float(p.scale));
    if (!p.causal)
      return;
    attributes
        .set_diagonal_alignment(p.queries == p.keys
                                    ? fe::DiagonalAlignment_t::TOP_LEFT
                                    : fe::DiagonalAlignment_t::BOTTOM_RIGHT)
        .set_diagonal_band_right_bound(0);
  };
  // The number of the query. In the backward call the cotangent comes first.
  int number = p.backward ? 2 : 1;
  Tensor query = operand(graph, number, queries, apart(p.strideQuery));
  Tensor key = operand(graph, number + 1, keys, apart(p.strideKey));
  Tensor value = operand(graph, number + 2, values, apart(p.strideValue));
  if (!p.backward) {
    // The log-sum-exp (stats) is always asked for, because the backward pass
    // recomputes the weights from it.
    auto attributes = fg::SDPA_attributes().set_generate_stats(true);
    mask(attributes);
    auto [output, lse] = graph.sdpa(query, key, value, attributes);
    makeResult(output, 4, outputs, apart(p.strideOutput));
    makeResult(lse, 5, sums, dense(sums));
    lse->set_data_type(fe::DataType_t::FLOAT);
    return 5;
  }
  // The mask, the seventh of the ABI's backward operands, is left out, so the
  // results begin at 7.
  Tensor grad = operand(graph, 1, outputs, apart(p.strideGrad));
  Tensor output = operand(graph, 5, outputs, apart(p.strideOutput));
  Tensor lse = operand(graph, 6, sums, dense(sums));
  lse->set_data_type(fe::DataType_t::FLOAT);
  auto attributes =
      fg::SDPA_backward_attributes().set_deterministic_algorithm(deterministic);
  mask(attributes);
  auto [dquery, dkey, dvalue] =
      graph.sdpa_backward(query, key, value, output, grad, lse, attributes);
  makeResult(dquery, 7, queries, apart(p.strideDQuery));
  makeResult(dkey, 8, keys, apart(p.strideDKey));
  makeResult(dvalue, 9, values, apart(p.strideDValue));
  return 9;
}

} // namespace fsdpc::runtime
