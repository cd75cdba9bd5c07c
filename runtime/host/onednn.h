// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// oneDNN's C interface in classes that own their handles. The C++ interface
// builds a hash map in every call. Here the memory objects are made once per
// thread, and a call only sets their addresses.
#pragma once

#include "runtime/abi/host_scratch.h"
#include "runtime/comm/failure.h"
#include "runtime/host/openmp.h"
#include "runtime/support/concat.h"
#include "runtime/support/round_up.h"

#include <cstddef>
#include <cstdint>
#include <dnnl.h>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace fsdpc::runtime::onednn {

/// One engine for the process, never destroyed: primitives use it to the end.
inline dnnl_engine_t cpuEngine() {
  static dnnl_engine_t engine = [] {
    dnnl_engine_t result = nullptr;
    if (dnnl_engine_create(&result, dnnl_cpu, 0) != dnnl_success)
      fail(runError("oneDNN cannot create a CPU engine"));
    return result;
  }();
  return engine;
}

/// oneDNN chooses a primitive's blocking by the number of OpenMP threads of the
/// thread that creates it. One thread gives the same blocking, and so the same
/// bits, for every --threads.
class SingleThreadedOpenMp {
public:
  SingleThreadedOpenMp() : before(omp_get_max_threads()) {
    omp_set_num_threads(1);
  }
  ~SingleThreadedOpenMp() { omp_set_num_threads(before); }

private:
  int before;
};

inline void check(dnnl_status_t status, const char *what) {
  if (status != dnnl_success)
    fail(runError(
        concat("oneDNN: ", what, " failed with status ", int(status))));
}

inline dnnl_data_type_t dataType(ElementType type) {
  return type == ElementType::f32    ? dnnl_f32
         : type == ElementType::bf16 ? dnnl_bf16
                                     : dnnl_f16;
}

/// Strides are in elements. A transposed matrix is one whose row stride is 1.
inline dnnl_memory_desc_t describe(int64_t rows, int64_t columns,
                                   int64_t rowStride, int64_t columnStride,
                                   ElementType type) {
  dnnl_memory_desc_t desc;
  dnnl_dims_t dims = {rows, columns}, strides = {rowStride, columnStride};
  check(
      dnnl_memory_desc_init_by_strides(&desc, 2, dims, dataType(type), strides),
      "describing a matrix");
  return desc;
}

/// The same as a batch of `pieces` matrices side by side.
inline dnnl_memory_desc_t describePieces(int64_t rows, int64_t columns,
                                         int64_t rowStride,
                                         int64_t columnStride, int64_t pieces,
                                         ElementType type) {
  dnnl_memory_desc_t desc;
  int64_t width = columns / pieces, all = rows * columns;
  dnnl_dims_t dims = {1, pieces, rows, width},
              strides = {all, pieces > 1 ? width * columnStride : all,
                         rowStride, columnStride};
  check(
      dnnl_memory_desc_init_by_strides(&desc, 4, dims, dataType(type), strides),
      "describing a batch of matrices");
  return desc;
}

inline size_t scratchOf(const_dnnl_primitive_desc_t desc) {
  return dnnl_memory_desc_get_size(
      dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0));
}

/// A primitive of up to three matrices and a scratchpad, with one set of memory
/// objects per thread.
class Primitive {
public:
  /// Takes ownership of `desc`. `operands` are the execution arguments and
  /// their matrices.
  Primitive(dnnl_primitive_desc_t desc, int threads,
            std::vector<std::pair<int, dnnl_memory_desc_t>> operands)
      : desc(desc), threads(threads), operands(std::move(operands)) {
    // The scratchpad is an operand like the matrices, always the last one.
    this->operands.push_back(
        {DNNL_ARG_SCRATCHPAD,
         *dnnl_primitive_desc_query_md(desc, dnnl_query_scratchpad_md, 0)});
  }
  Primitive(const Primitive &) = delete;
  ~Primitive() {
    for (Call &call : calls) {
      for (dnnl_exec_arg_t &argument : call.arguments)
        dnnl_memory_destroy(argument.memory);
      dnnl_stream_destroy(call.stream);
    }
    if (primitive)
      dnnl_primitive_destroy(primitive);
    dnnl_primitive_desc_destroy(desc);
  }

  size_t scratchBytes() const {
    return roundUp64(dnnl_memory_desc_get_size(&operands.back().second));
  }

  /// Kept apart from the constructor: the memory table makes products but never
  /// runs them.
  void prepare() {
    if (primitive)
      return;
    SingleThreadedOpenMp single;
    // Generates and compiles the kernel, which takes milliseconds.
    check(dnnl_primitive_create(&primitive, desc), "creating a primitive");
    // oneDNN may return a cached primitive that it made from another
    // description.
    const_dnnl_primitive_desc_t made = nullptr;
    check(dnnl_primitive_get_primitive_desc(primitive, &made),
          "describing a primitive");
    if (scratchOf(made) > scratchBytes())
      fail(runError("oneDNN needs more scratch memory for a primitive than it "
                    "asked for"));
    // A memory object holds one address, so each thread needs its own.
    calls.resize(threads);
    for (Call &call : calls) {
      check(dnnl_stream_create(&call.stream, cpuEngine(),
                               dnnl_stream_default_flags),
            "creating a stream");
      // DNNL_MEMORY_NONE: without memory of its own; `run` sets the address.
      for (auto &[argument, matrix] : operands) {
        call.arguments.push_back({argument, nullptr});
        check(dnnl_memory_create(&call.arguments.back().memory, &matrix,
                                 cpuEngine(), DNNL_MEMORY_NONE),
              "creating an operand");
      }
    }
  }

  /// Runs the primitive. `addresses` are in the order of the operands, with the
  /// scratchpad last.
  void run(int thread, std::initializer_list<const void *> addresses) {
    Call &call = calls[thread];
    auto argument = call.arguments.begin();
    for (const void *address : addresses)
      dnnl_memory_set_data_handle((argument++)->memory,
                                  const_cast<void *>(address));
    check(dnnl_primitive_execute(primitive, call.stream,
                                 int(call.arguments.size()),
                                 call.arguments.data()),
          "a primitive");
  }

private:
  /// The arguments with which one thread calls the primitive.
  struct Call {
    dnnl_stream_t stream = nullptr;
    std::vector<dnnl_exec_arg_t> arguments;
  };

  /// Owned, as all of oneDNN's handles here.
  dnnl_primitive_desc_t desc;
  int threads;
  std::vector<std::pair<int, dnnl_memory_desc_t>> operands;
  dnnl_primitive_t primitive = nullptr;
  std::vector<Call> calls;
};

/// The attributes of every primitive: the caller provides scratch memory, and
/// the result is added to the destination if `accumulate`.
class Attributes {
public:
  explicit Attributes(bool accumulate) {
    check(dnnl_primitive_attr_create(&attributes), "creating attributes");
    dnnl_primitive_attr_set_scratchpad_mode(attributes,
                                            dnnl_scratchpad_mode_user);
    check(dnnl_post_ops_create(&sum), "creating post-ops");
    if (accumulate) {
      // dst = result + 1 · dst.
      dnnl_post_ops_append_sum(sum, 1);
      dnnl_primitive_attr_set_post_ops(attributes, sum);
    }
  }
  Attributes(const Attributes &) = delete;
  ~Attributes() {
    dnnl_post_ops_destroy(sum);
    dnnl_primitive_attr_destroy(attributes);
  }
  operator const_dnnl_primitive_attr_t() const { return attributes; }

private:
  dnnl_primitive_attr_t attributes;
  dnnl_post_ops_t sum;
};

} // namespace fsdpc::runtime::onednn
