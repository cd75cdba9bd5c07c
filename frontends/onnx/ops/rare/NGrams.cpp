// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// TfIdfVectorizer over integers: how often each n-gram of a pool occurs in a
// row. Each n-gram is compared with the elements at the distances that a skip
// gives, for all n-grams of a size at once.
#include "compiler/dialects/nn/ElementwiseOps.h"
#include "compiler/dialects/nn/ShapeOps.h"
#include "frontends/onnx/Node.h"

using namespace mlir;
using namespace fsdpc;
using namespace fsdpc::frontend;

namespace {
// The n-grams of one size.
struct NGramPool {
  int64_t size, first, count; // `first` counts n-grams, not their elements
  SmallVector<int64_t> elements;
};
} // namespace

// Splits 'pool_int64s' at 'ngram_counts', the places where each size begins.
// Returns nullopt after it has refused the node. Size i + 1 starts at
// ngram_counts[i] and ends where the next size starts.
static std::optional<SmallVector<NGramPool>> readPools(Node &node) {
  auto refuse = [&](const Twine &why) -> std::optional<SmallVector<NGramPool>> {
    (void)node.refuse(why);
    return std::nullopt;
  };
  auto starts = node.getInts("ngram_counts"), all = node.getInts("pool_int64s");
  if (!starts || !all)
    return refuse("attributes 'ngram_counts' and 'pool_int64s' are needed; "
                  "strings are not supported");
  SmallVector<NGramPool> pools;
  int64_t first = 0, total = all->size();
  for (auto [i, start] : llvm::enumerate(*starts)) {
    int64_t size = i + 1;
    int64_t end = i + 1 < starts->size() ? (*starts)[i + 1] : total;
    if (start < 0 || end < start || end > total || (end - start) % size != 0)
      return refuse("attribute 'ngram_counts' does not fit 'pool_int64s'");
    SmallVector<int64_t> elements(all->begin() + start, all->begin() + end);
    int64_t count = (end - start) / size;
    pools.push_back({size, first, count, elements});
    first += count;
  }
  return pools;
}

// Counts the n-grams of a pool in rows (N×C) of i64, as N×G. A skip of s
// compares elements s + 1 apart; ONNX counts every distance up to mostSkips.
static Value countsOf(Node &node, Value rows, const NGramPool &pool,
                      int64_t mostSkips) {
  Emitter &b = node.b;
  int64_t n = shapeOf(rows)[0], length = shapeOf(rows)[1];
  Value grams = b.reshape(b.integers(pool.elements), {pool.count, pool.size});
  auto type = RankedTensorType::get({n, pool.count}, b.builder.getF32Type());
  Value total = b.splat(type, 0);
  // A single element has no distance.
  int64_t skips = pool.size == 1 ? 0 : mostSkips;
  for (int64_t skip = 0; skip <= skips; ++skip) {
    int64_t places = length - (pool.size - 1) * (skip + 1);
    if (places < 1)
      break;
    Shape shape = {n, pool.count, places};
    Value match;
    for (int64_t j = 0; j < pool.size; ++j) {
      Value at = b.slice(rows, 1, j * (skip + 1), places);
      at = b.broadcast(b.reshape(at, {n, 1, places}), shape);
      Value wanted = b.reshape(b.slice(grams, 1, j, 1), {1, pool.count, 1});
      Value equal =
          b.compare(nn::Predicate::eq, at, b.broadcast(wanted, shape));
      match = match ? b.binary<nn::AndOp>(match, equal) : equal;
    }
    Value hits = b.reduce(nn::ReduceKind::sum,
                          b.cast(match, b.builder.getF32Type()), {2});
    total = b.binary<nn::AddOp>(total, b.reshape(hits, {n, pool.count}));
  }
  return total;
}

// Returns, for each n-gram, the column of the result that counts it: G×R of 0
// and 1. Several n-grams may share a column, whose counts the product with this
// matrix adds up.
static Value columnsOf(Emitter &b, ArrayRef<int64_t> indexes, int64_t width) {
  int64_t count = indexes.size();
  Shape shape = {count, width};
  Value column = b.broadcast(b.reshape(b.integers(indexes), {count, 1}), shape);
  Value hit = b.compare(nn::Predicate::eq, column, b.iota(shape, 1));
  return b.cast(hit, b.builder.getF32Type());
}

// TF counts, IDF tells whether, TFIDF weights the counts.
static LogicalResult tfIdf(Node &node) {
  if (failed(node.expectInputs(1, 1)))
    return failure();
  Emitter &b = node.b;
  Value x = node.input(0);
  if (!isa<IntegerType>(elementOf(x)) || rankOf(x) < 1 || rankOf(x) > 2 ||
      tensorType(x).getNumElements() == 0)
    return node.refuse("the input must be a vector or a matrix of integers");
  auto pools = readPools(node);
  if (!pools)
    return failure();
  int64_t grams =
      pools->empty() ? 0 : pools->back().first + pools->back().count;
  auto indexes = node.getInts("ngram_indexes");
  const auto *weights = node.attribute("weights");
  constexpr int64_t most = 1 << 20;
  if (!indexes || int64_t(indexes->size()) != grams || grams == 0 ||
      (weights && weights->floats_size() != grams))
    return node.refuse("'ngram_indexes' and 'weights' must have one entry per "
                       "n-gram");
  int64_t width = *llvm::max_element(*indexes) + 1;
  if (*llvm::min_element(*indexes) < 0 || width > most)
    return node.refuse("'ngram_indexes' must lie between 0 and " + Twine(most));
  std::string mode = node.getString("mode", "");
  if (mode != "TF" && mode != "IDF" && mode != "TFIDF")
    return node.refuse("attribute 'mode' is '" + mode +
                       "'; use TF, IDF or TFIDF");
  int64_t shortest = node.getInt("min_gram_length", 1);
  int64_t longest = node.getInt("max_gram_length", 1);
  int64_t skips = std::min(node.getInt("max_skip_count", 0), shapeOf(x).back());
  Shape matrix = {rankOf(x) == 2 ? shapeOf(x)[0] : 1, shapeOf(x).back()};
  Value rows = b.reshape(b.cast(x, b.builder.getI64Type()), matrix);
  SmallVector<Value> counts;
  for (const NGramPool &pool : *pools) {
    if (pool.count == 0)
      continue;
    bool isCounted = pool.size >= shortest && pool.size <= longest;
    auto type =
        RankedTensorType::get({matrix[0], pool.count}, b.builder.getF32Type());
    counts.push_back(isCounted ? countsOf(node, rows, pool, skips)
                               : b.splat(type, 0));
  }
  Value found = b.concat(counts, 1);
  if (mode == "IDF")
    found = b.binary<nn::MinimumOp>(found, 1.0);
  if (mode != "TF" && weights) {
    SmallVector<float> values(weights->floats().begin(),
                              weights->floats().end());
    auto type = RankedTensorType::get({grams}, b.builder.getF32Type());
    Value weight = b.constant(DenseElementsAttr::get(type, ArrayRef(values)));
    found = b.binary<nn::MulOp>(found, b.broadcast(weight, shapeOf(found)));
  }
  Value y = b.matmul(found, columnsOf(b, *indexes, width), {matrix[0], width});
  return node.result(rankOf(x) == 2 ? y : b.reshape(y, {width}));
}

void frontend::registerNGrams(HandlerTable &table) {
  table.add("TfIdfVectorizer", 9, tfIdf);
}
