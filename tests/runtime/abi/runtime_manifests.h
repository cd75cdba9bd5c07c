// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A manifest for tests, and the errors of texts that have been changed.
#pragma once

#include "runtime/abi/manifest.h"

namespace fsdpc {

inline Manifest sample() {
  Manifest manifest;
  manifest.compiler = "0.1 \"quoted\" µ";
  manifest.computeDtype = manifest.reduceDtype = "f32";
  manifest.lr = 0.1;
  manifest.inputs.push_back({"ids", {2, 8}, "i64", 100, 0, -100, true});
  Layout layout;
  layout.name = "h.0";
  layout.elements = 1000;
  layout.states = 2;
  Member weight;
  weight.name = "h.0.weight";
  weight.aliases = {"tied"};
  weight.shape = {30, 32};
  weight.elements = 960;
  weight.source.kind = "file";
  weight.source.offset = uint64_t(1) << 63;
  layout.members.push_back(weight);
  manifest.layouts.push_back(layout);
  Buffer buffer;
  buffer.shape = {16};
  buffer.dtype = "f32";
  manifest.buffers.push_back(buffer);
  MatmulPlan product;
  product.m = product.n = product.k = 2;
  manifest.matmuls = {product, product};
  ConvolutionPlan convolution;
  convolution.batch = convolution.channels = convolution.filters = 1;
  convolution.height = convolution.width = 4;
  convolution.kernelHeight = convolution.kernelWidth = 1;
  convolution.outHeight = convolution.outWidth = 4;
  convolution.strides = convolution.dilations = {1, 1};
  convolution.padsBegin = convolution.padsEnd = {0, 0};
  manifest.convolutions = {convolution};
  PoolingPlan pooling;
  pooling.batch = pooling.channels = 1;
  pooling.height = pooling.width = pooling.outHeight = pooling.outWidth = 4;
  pooling.kernel = pooling.strides = {1, 1};
  pooling.padsBegin = pooling.padsEnd = {0, 0};
  manifest.poolings = {pooling};
  manifest.commands = {{"launch", "add_4", 48, 4, 0, -1, {}},
                       {"all_gather", "h.0", 0, 0, 0, -1, {0}}};
  manifest.sequences = {{"microbatch", 0, {{0, "h.0", true, "node_add"}}}};
  return manifest;
}

inline std::string readError(const std::string &text) {
  auto manifest = fromJson(text.data(), text.size());
  return manifest ? "" : manifest.error().message;
}

inline std::string replaced(std::string text, const std::string &from,
                            const std::string &to) {
  text.replace(text.find(from), from.size(), to);
  return text;
}

} // namespace fsdpc
