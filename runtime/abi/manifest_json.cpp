// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The manifest as JSON. Each struct lists its fields once, and writing and
// reading are two visitors of that list, so they cannot diverge.
//
// The reader is strict: the compiler and the runtime of a program are of the
// same version, so an unknown or a missing key, or one that stands twice, means
// that the text is damaged. After reading, checkManifest tests what later code
// relies on (manifest_checks.cpp).
#include "runtime/abi/manifest_checks.h"
#include "runtime/support/concat.h"
#include "runtime/support/json_text.h"
#include "runtime/support/spelling.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <type_traits>
#include <utility>

namespace fsdpc {
namespace {

using Json = nlohmann::ordered_json;

// The field lists. A name here is the key in the JSON, and the order here is
// the order of the keys, so a manifest reads the same for every compile. A
// field that is missing here would be lost on its way to the runtime without an
// error.
template <class V> void fields(V &v, Input &x) {
  v("name", x.name), v("shape", x.shape), v("dtype", x.dtype);
  v("bound", x.bound), v("lower", x.lower), v("ignored", x.ignored);
  v("hasIgnored", x.hasIgnored), v("bucketShapes", x.bucketShapes);
}

template <class V> void fields(V &v, Output &x) {
  v("name", x.name), v("shape", x.shape), v("dtype", x.dtype);
}

template <class V> void fields(V &v, Source &x) {
  v("kind", x.kind), v("file", x.file), v("offset", x.offset);
  v("length", x.length), v("hash", x.hash), v("dtype", x.dtype);
  v("rule", x.rule);
}

template <class V> void fields(V &v, Member &x) {
  v("name", x.name), v("aliases", x.aliases), v("shape", x.shape);
  v("dtype", x.dtype);
  v("offset", x.offset), v("elements", x.elements), v("rate", x.rate);
  v("decay", x.decay), v("position", x.position);
  v("source", x.source);
}

template <class V> void fields(V &v, Compression &x) {
  v("kind", x.kind), v("amount", x.amount);
}

template <class V> void fields(V &v, Layout &x) {
  v("name", x.name), v("unit", x.unit), v("trainable", x.trainable);
  v("inGroups", x.inGroups), v("secondary", x.secondary);
  v("owned", x.owned);
  v("elements", x.elements), v("noMaster", x.noMaster);
  v("masterWhole", x.masterWhole);
  v("gradientWhole", x.gradientWhole), v("unsummed", x.unsummed);
  v("stateWhole", x.stateWhole);
  v("computeWhole", x.computeWhole), v("keptF32", x.keptF32);
  v("ofBytes", x.ofBytes);
  v("wire", x.wire), v("compression", x.compression);
  v("states", x.states), v("average", x.average);
  v("statesOffloaded", x.statesOffloaded);
  v("gradientOffloaded", x.gradientOffloaded);
  v("parametersOffloaded", x.parametersOffloaded);
  v("optimizer", x.optimizer), v("stateNames", x.stateNames);
  v("sums", x.sums), v("factored", x.factored), v("orthogonal", x.orthogonal);
  v("members", x.members);
}

template <class V> void fields(V &v, Buffer &x) {
  v("name", x.name), v("aliases", x.aliases), v("shape", x.shape);
  v("dtype", x.dtype), v("addEachMicrobatch", x.addEachMicrobatch);
  v("countsOneRank", x.countsOneRank);
  v("optimizerState", x.optimizerState);
  v("source", x.source);
}

template <class V> void fields(V &v, MatmulPlan &x) {
  v("library", x.library);
  v("batch", x.batch), v("strideA", x.strideA), v("strideB", x.strideB);
  v("strideC", x.strideC), v("m", x.m), v("n", x.n), v("k", x.k);
  v("transposeA", x.transposeA), v("transposeB", x.transposeB);
  v("lda", x.lda), v("ldb", x.ldb), v("ldc", x.ldc);
  v("dtypeA", x.dtypeA), v("dtypeB", x.dtypeB), v("dtypeC", x.dtypeC);
  v("accumulate", x.accumulate), v("bias", x.bias);
  v("addend", x.addend), v("epilogue", x.epilogue);
}

template <class V> void fields(V &v, ConvolutionPlan &x) {
  v("library", x.library);
  v("kind", x.kind), v("dtype", x.dtype), v("batch", x.batch);
  v("channels", x.channels), v("height", x.height), v("width", x.width);
  v("filters", x.filters), v("kernelHeight", x.kernelHeight);
  v("kernelWidth", x.kernelWidth), v("groups", x.groups);
  v("outHeight", x.outHeight), v("outWidth", x.outWidth);
  v("strides", x.strides), v("padsBegin", x.padsBegin);
  v("padsEnd", x.padsEnd), v("dilations", x.dilations);
}

template <class V> void fields(V &v, PoolingPlan &x) {
  v("library", x.library);
  v("kind", x.kind), v("dtype", x.dtype), v("batch", x.batch);
  v("channels", x.channels), v("height", x.height), v("width", x.width);
  v("outHeight", x.outHeight), v("outWidth", x.outWidth);
  v("kernel", x.kernel), v("strides", x.strides);
  v("padsBegin", x.padsBegin), v("padsEnd", x.padsEnd);
  v("countPadding", x.countPadding);
}

template <class V> void fields(V &v, AttentionPlan &x) {
  v("library", x.library);
  v("backward", x.backward), v("batch", x.batch), v("heads", x.heads);
  v("groups", x.groups), v("queries", x.queries), v("keys", x.keys);
  v("width", x.width), v("valueWidth", x.valueWidth), v("scale", x.scale);
  v("causal", x.causal), v("dtype", x.dtype), v("dtypeMask", x.dtypeMask);
  v("strideQuery", x.strideQuery), v("strideKey", x.strideKey);
  v("strideValue", x.strideValue), v("strideOutput", x.strideOutput);
  v("strideMask", x.strideMask), v("strideGrad", x.strideGrad);
  v("strideDQuery", x.strideDQuery), v("strideDKey", x.strideDKey);
  v("strideDValue", x.strideDValue);
}

template <class V> void fields(V &v, CommandInfo &x) {
  v("op", x.op), v("name", x.name), v("bytes", x.bytes);
  v("flops", x.flops), v("exps", x.exps), v("plan", x.plan);
  v("layouts", x.layouts);
}

template <class V> void fields(V &v, Call &x) {
  v("command", x.command), v("unit", x.unit), v("backward", x.backward);
  v("node", x.node);
}

template <class V> void fields(V &v, CallSequence &x) {
  v("entry", x.entry), v("stream", x.stream), v("calls", x.calls);
}

template <class V> void fields(V &v, LossScale &x) {
  v("init", x.init), v("growth", x.growth), v("backoff", x.backoff);
  v("interval", x.interval);
}

template <class V> void fields(V &v, WeightStep &x) {
  v("op", x.op), v("operands", x.operands), v("shape", x.shape);
  v("numbers", x.numbers), v("kind", x.kind), v("values", x.values);
}

template <class V> void fields(V &v, WeightProgram &x) { v("steps", x.steps); }

template <class V> void fields(V &v, LossWeight &x) {
  v("name", x.name), v("atLeast", x.atLeast), v("plus", x.plus);
  v("perMicrobatch", x.perMicrobatch), v("programs", x.programs);
}

template <class V> void fields(V &v, PredictedStep &x) {
  v("ranks", x.ranks), v("microbatchUs", x.microbatchUs);
  v("updateUs", x.updateUs);
}

template <class V> void fields(V &v, Manifest &x) {
  v("version", x.version), v("compiler", x.compiler);
  v("commandLine", x.commandLine), v("scheduleHash", x.scheduleHash);
  v("programHash", x.programHash), v("strategy", x.strategy);
  v("optimizer", x.optimizer), v("target", x.target);
  v("gpuArchs", x.gpuArchs), v("cpu", x.cpu);
  v("cpuFeatures", x.cpuFeatures), v("computeDtype", x.computeDtype);
  v("reduceDtype", x.reduceDtype), v("lr", x.lr), v("maxNorm", x.maxNorm);
  v("lossScale", x.lossScale), v("predivided", x.predivided);
  v("averagedBefore", x.averagedBefore), v("countsZeroed", x.countsZeroed);
  v("maxRanks", x.maxRanks), v("planRanks", x.planRanks);
  v("planThreads", x.planThreads);
  v("planRanksPerNode", x.planRanksPerNode);
  v("reshardTo", x.reshardTo), v("maxAccumulate", x.maxAccumulate);
  v("shardAlignment", x.shardAlignment);
  v("memoryLimit", x.memoryLimit), v("arenaBytes", x.arenaBytes);
  v("arenaGathered", x.arenaGathered), v("arenaGradients", x.arenaGradients);
  v("arenaActivations", x.arenaActivations);
  v("activationFileBytes", x.activationFileBytes);
  v("constantBytes", x.constantBytes), v("events", x.events);
  v("stackBytes", x.stackBytes), v("tokensInput", x.tokensInput);
  v("evaluatesMeans", x.evaluatesMeans);
  v("lossMean", x.lossMean), v("lossWeights", x.lossWeights);
  v("predictions", x.predictions), v("buckets", x.buckets);
  v("inputs", x.inputs), v("outputs", x.outputs), v("layouts", x.layouts),
      v("buffers", x.buffers);
  v("matmuls", x.matmuls), v("convolutions", x.convolutions);
  v("poolings", x.poolings), v("attentions", x.attentions);
  v("commands", x.commands), v("sequences", x.sequences);
}

// Writer and Reader treat three kinds of types: leaves (numbers, booleans and
// strings), vectors, and structs with a field list.
template <class T> struct IsVector : std::false_type {};
template <class T> struct IsVector<std::vector<T>> : std::true_type {};
template <class T>
constexpr bool isLeaf =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::string>;

// Functions that a type has once, and not each of the fields of that type: the
// optimizer would copy them to all of these, and take twice as long.
#define FSDPC_ONCE [[gnu::noinline]]

// Builds the JSON object of one struct; nested structs get a Writer of their
// own.
class Writer {
public:
  template <class T> void operator()(const char *key, T &value) {
    put(key, write(value));
  }
  template <class T> FSDPC_ONCE static Json write(T &value) {
    if constexpr (std::is_same_v<T, std::string>) {
      // JSON holds UTF-8 alone, but a name or a path may have any bytes.
      if (!runtime::isUtf8(value))
        return std::vector<uint8_t>(value.begin(), value.end());
      return value;
    } else if constexpr (isLeaf<T>) {
      return value;
    } else if constexpr (IsVector<T>::value) {
      Json list = Json::array();
      for (auto &item : value)
        list.push_back(write(item));
      return list;
    } else {
      Writer writer;
      // A struct. Moving the object out of the writer avoids a copy of the
      // whole tree at each level.
      fields(writer, value);
      return std::move(writer.object);
    }
  }

private:
  FSDPC_ONCE void put(const char *key, Json value) {
    object[key] = std::move(value);
  }

  Json object = Json::object();
};

// Reports the first error by an exception, which fromJson catches: nested
// visitors then need no error paths. `path` names the place in the document for
// messages, as in "layouts[2].members[0].offset"; it is empty for the whole
// manifest.
class Reader {
public:
  Reader(const Json &object, std::string path)
      : object(object), path(std::move(path)) {}

  template <class T> void operator()(const char *key, T &value) {
    std::string here;
    const Json &json = get(key, here);
    parse(json, here, value);
  }

  template <class T>
  FSDPC_ONCE static void parse(const Json &json, const std::string &path,
                               T &value) {
    auto expect = [&](bool ok, const char *what) {
      if (!ok)
        refuse(json, path, what);
    };
    // bool comes first, since it is an integral type too.
    if constexpr (std::is_same_v<T, bool>) {
      expect(json.is_boolean(), "true or false");
      value = json.get<bool>();
    } else if constexpr (std::is_integral_v<T>) {
      expect(json.is_number_integer(), "an integer");
      // The parser keeps numbers above INT64_MAX as unsigned only. Reading one
      // as signed would wrap around before the range check.
      bool fits = json.is_number_unsigned()
                      ? std::in_range<T>(json.get<uint64_t>())
                      : std::in_range<T>(json.get<int64_t>());
      expect(fits, "an integer in its range");
      value = json.get<T>();
    } else if constexpr (std::is_floating_point_v<T>) {
      expect(json.is_number(), "a number");
      value = json.get<T>();
      expect(std::isfinite(value), "a finite number");
    } else if constexpr (std::is_same_v<T, std::string>) {
      if (json.is_array()) {
        std::vector<uint8_t> bytes;
        parse(json, path, bytes);
        value.assign(bytes.begin(), bytes.end());
        return;
      }
      expect(json.is_string(), "a string or its bytes");
      value = json.get<std::string>();
    } else if constexpr (IsVector<T>::value) {
      expect(json.is_array(), "a list");
      value.resize(json.size());
      for (size_t i = 0; i < json.size(); ++i)
        parse(json[i], concat(path, "[", i, "]"), value[i]);
    } else {
      expect(json.is_object(), "an object");
      Reader reader(json, path);
      fields(reader, value);
      expect(reader.read == json.size(), "an object without unknown keys");
    }
  }

private:
  // Returns a key's value, and its place in the document.
  FSDPC_ONCE const Json &get(const char *key, std::string &here) {
    here = path.empty() ? key : path + "." + key;
    auto found = object.find(key);
    if (found == object.end())
      throw std::runtime_error("'" + here + "' is missing");
    // Counted, so that `parse` can tell whether the object has further keys:
    // keys are unique (parseJson), and each one read exists.
    ++read;
    return *found;
  }

  [[noreturn]] FSDPC_ONCE static void
  refuse(const Json &json, const std::string &path, const char *what) {
    throw std::runtime_error("'" + path + "' is not " + what + ": " +
                             runtime::dump(json).substr(0, 40));
  }

  const Json &object;
  std::string path;
  size_t read = 0;
};

// Lists and objects of a manifest lie less deep than this.
constexpr int deepest = 16;

} // namespace

int64_t samplesPerMicrobatch(const Manifest &manifest) {
  if (manifest.inputs.empty())
    return 1;
  // Inputs without an axis, which have a value per step, come last.
  const std::vector<int64_t> &first = manifest.inputs[0].shape;
  int64_t rows = first.empty() ? 1 : first[0];
  bool agree = std::all_of(
      manifest.inputs.begin(), manifest.inputs.end(), [&](const Input &input) {
        return input.shape.empty() || input.shape[0] == rows;
      });
  return agree ? rows : 1;
}

std::string toJson(const Manifest &manifest) {
  Manifest copy = manifest; // the field lists take mutable references
  // ASCII, since --manifest prints it.
  return runtime::dumpAscii(Writer::write(copy), 1);
}

Result<Manifest> fromJson(const char *text, size_t bytes) {
  auto malformed = [](const std::string &reason) {
    return inputError("malformed manifest in the program: " + reason);
  };
  // nlohmann's parser and the Reader both throw; nothing leaves this function
  // but a Result.
  try {
    Manifest manifest;
    Json json = runtime::parseJson(std::string_view(text, bytes), deepest);
    Reader::parse(json, "", manifest);
    if (Status checked = checkManifest(manifest); !checked)
      return malformed(checked.error().message);
    return manifest;
  } catch (const std::exception &fault) {
    return malformed(fault.what());
  }
}

} // namespace fsdpc
