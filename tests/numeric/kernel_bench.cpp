// Throughput of typical kernels on one thread, in bytes of operands and results
// a second, beside a plain copy: what a change of the emitter is held against.
#include "tests/numeric/kernel_harness.h"

#include <algorithm>
#include <cstring>
#include <ctime>

using namespace mlir;
using namespace fsdpc::testing;

namespace {

const char *const kKernels = R"(
func.func private @bias_gelu_tanh(%x: tensor<4096x1536xf32>, %b: tensor<1536xf32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<1536xf32> -> tensor<4096x1536xf32>
  %1 = nn.add %x, %0 : tensor<4096x1536xf32>
  %2 = nn.gelu tanh %1 : tensor<4096x1536xf32>
  return %2 : tensor<4096x1536xf32> }
func.func private @bias_gelu_erf(%x: tensor<4096x1536xf32>, %b: tensor<1536xf32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<1536xf32> -> tensor<4096x1536xf32>
  %1 = nn.add %x, %0 : tensor<4096x1536xf32>
  %2 = nn.gelu erf %1 : tensor<4096x1536xf32>
  return %2 : tensor<4096x1536xf32> }
func.func private @gelu_grad_erf(%x: tensor<4096x1536xf32>, %g: tensor<4096x1536xf32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %2 = nn.gelu_grad erf %x, %g : tensor<4096x1536xf32>
  return %2 : tensor<4096x1536xf32> }
func.func private @bias_gelu_bf16(%x: tensor<4096x1536xbf16>, %b: tensor<1536xbf16>) -> tensor<4096x1536xbf16> attributes {nn.kernel} {
  %0 = nn.broadcast %b : tensor<1536xbf16> -> tensor<4096x1536xbf16>
  %1 = nn.add %x, %0 : tensor<4096x1536xbf16>
  %2 = nn.gelu tanh %1 : tensor<4096x1536xbf16>
  return %2 : tensor<4096x1536xbf16> }
func.func private @residual_layer_norm(%r: tensor<8192x384xf32>, %z: tensor<8192x384xf32>, %w: tensor<384xf32>, %b: tensor<384xf32>)
  -> (tensor<8192x384xf32>, tensor<8192x384xf32>, tensor<8192xf32>, tensor<8192xf32>) attributes {nn.kernel} {
  %x = nn.add %r, %z : tensor<8192x384xf32>
  %y:3 = nn.layer_norm %x weight %w bias %b {epsilon = 1.0e-5 : f64} : tensor<8192x384xf32>, weight tensor<384xf32>, bias tensor<384xf32>
    -> tensor<8192x384xf32>, tensor<8192xf32>, tensor<8192xf32>
  return %x, %y#0, %y#1, %y#2 : tensor<8192x384xf32>, tensor<8192x384xf32>, tensor<8192xf32>, tensor<8192xf32> }
func.func private @layer_norm_grad(%g: tensor<8192x384xf32>, %x: tensor<8192x384xf32>, %m: tensor<8192xf32>, %r: tensor<8192xf32>, %w: tensor<384xf32>)
  -> tensor<8192x384xf32> attributes {nn.kernel} {
  %y = nn.layer_norm_grad %g, %x, %m, %r weight %w : tensor<8192x384xf32>, tensor<8192xf32>, weight tensor<384xf32> -> tensor<8192x384xf32>
  return %y : tensor<8192x384xf32> }
func.func private @norm_weight_grad(%g: tensor<8192x384xf32>, %x: tensor<8192x384xf32>, %m: tensor<8192xf32>, %r: tensor<8192xf32>)
  -> tensor<384xf32> attributes {nn.kernel} {
  %y = nn.norm_weight_grad %g, %x mean %m rstd %r : tensor<8192x384xf32>, tensor<8192xf32>, mean tensor<8192xf32> -> tensor<384xf32>
  return %y : tensor<384xf32> }
func.func private @bias_grad(%x: tensor<4096x1536xf32>) -> tensor<1x1536xf32> attributes {nn.kernel} {
  %y = nn.reduce sum %x [0] : tensor<4096x1536xf32> -> tensor<1x1536xf32>
  return %y : tensor<1x1536xf32> }
func.func private @causal_softmax(%x: tensor<24x256x256xf32>) -> tensor<24x256x256xf32> attributes {nn.kernel} {
  %s = nn.constant dense<0.125> : tensor<24x256x256xf32>
  %0 = nn.mul %x, %s : tensor<24x256x256xf32>
  %q = nn.iota {axis = 1} : tensor<24x256x256xi32>
  %k = nn.iota {axis = 2} : tensor<24x256x256xi32>
  %c = nn.cmp le %k, %q : tensor<24x256x256xi32> -> tensor<24x256x256xi1>
  %n = nn.constant dense<0xFF800000> : tensor<24x256x256xf32>
  %1 = nn.select %c, %0, %n : tensor<24x256x256xi1>, tensor<24x256x256xf32>
  %2 = nn.softmax %1 : tensor<24x256x256xf32>
  return %2 : tensor<24x256x256xf32> }
func.func private @cross_entropy_rows(%x: tensor<1024x50257xf32>, %t: tensor<1024xi64>) -> (tensor<1024xf32>, tensor<1024x1xf32>) attributes {nn.kernel} {
  %m = nn.reduce max %x [1] : tensor<1024x50257xf32> -> tensor<1024x1xf32>
  %0 = nn.broadcast %m : tensor<1024x1xf32> -> tensor<1024x50257xf32>
  %1 = nn.sub %x, %0 : tensor<1024x50257xf32>
  %2 = nn.exp %1 : tensor<1024x50257xf32>
  %s = nn.reduce sum %2 [1] : tensor<1024x50257xf32> -> tensor<1024x1xf32>
  %3 = nn.log %s : tensor<1024x1xf32>
  %4 = nn.add %m, %3 : tensor<1024x1xf32>
  %i = nn.reshape %t : tensor<1024xi64> -> tensor<1024x1xi64>
  %p = nn.pick %x, %i : tensor<1024x50257xf32>, tensor<1024x1xi64> -> tensor<1024x1xf32>
  %5 = nn.sub %4, %p : tensor<1024x1xf32>
  %6 = nn.reshape %4 : tensor<1024x1xf32> -> tensor<1024xf32>
  return %6, %5 : tensor<1024xf32>, tensor<1024x1xf32> }
func.func private @cross_entropy_grad(%g: tensor<f32>, %x: tensor<1024x50257xf32>, %t: tensor<1024xi64>, %l: tensor<1024xf32>, %v: tensor<f32>)
  -> tensor<1024x50257xf32> attributes {nn.kernel} {
  %y = nn.cross_entropy_grad mean %g, %x, %t, %l, %v : tensor<f32>, tensor<1024x50257xf32>, tensor<1024xi64>, tensor<1024xf32> -> tensor<1024x50257xf32>
  return %y : tensor<1024x50257xf32> }
func.func private @split_heads(%x: tensor<4096x1152xf32>) -> tensor<16x6x256x64xf32> attributes {nn.kernel} {
  %s = nn.slice %x [0, 384] by [1, 1] : tensor<4096x1152xf32> -> tensor<4096x384xf32>
  %0 = nn.reshape %s : tensor<4096x384xf32> -> tensor<16x256x6x64xf32>
  %1 = nn.transpose %0 [0, 2, 1, 3] : tensor<16x256x6x64xf32> -> tensor<16x6x256x64xf32>
  return %1 : tensor<16x6x256x64xf32> }
func.func private @transpose(%x: tensor<2048x1536xf32>) -> tensor<1536x2048xf32> attributes {nn.kernel} {
  %1 = nn.transpose %x [1, 0] : tensor<2048x1536xf32> -> tensor<1536x2048xf32>
  return %1 : tensor<1536x2048xf32> }
func.func private @dropout(%x: tensor<4096x1536xf32>, %r: tensor<4xi32>) -> tensor<4096x1536xf32> attributes {nn.kernel} {
  %y = nn.dropout %x, %r {ratio = 0.1 : f64, op = 3} : tensor<4096x1536xf32>, tensor<4xi32>
  return %y : tensor<4096x1536xf32> }
func.func private @embedding_grad(%g: tensor<1024x384xf32>, %i: tensor<1024xi64>) -> tensor<50257x384xf32> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<1024x384xf32>, tensor<1024xi64> -> tensor<50257x384xf32>
  return %y : tensor<50257x384xf32> }
func.func private @embedding_grad_bf16(%g: tensor<1024x384xbf16>, %i: tensor<1024xi64>) -> tensor<50257x384xbf16> attributes {nn.kernel} {
  %y = nn.embedding_grad %g, %i : tensor<1024x384xbf16>, tensor<1024xi64> -> tensor<50257x384xbf16>
  return %y : tensor<50257x384xbf16> }
)";

double now() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return time.tv_sec * 1e3 + time.tv_nsec / 1e6;
}

// Milliseconds of processor time of the fastest of some runs: other processes
// may be busy.
template <typename Function> double fastest(Function run) {
  double best = 1e9, total = 0;
  for (int i = 0; i < 20 && (i < 3 || total < 400); ++i) {
    double begin = now();
    run();
    double ms = now() - begin;
    best = std::min(best, ms);
    total += ms;
  }
  return best;
}

} // namespace

int main(int argc, char **argv) {
  MLIRContext context;
  prepareContext(context);
  LoadedKernels loaded(context, kKernels, argc > 1 ? argv[1] : "native");
  auto kernels = loaded.kernels();
  std::printf("%zu kernels compiled in %.0f ms\n", kernels.size(),
              loaded.compileMs);
  std::vector<char> from(100 << 20, 1), to(from.size());
  double copy =
      fastest([&] { std::memcpy(to.data(), from.data(), from.size()); });
  std::printf("%-22s %8.2f ms %7.1f GB/s\n", "memcpy", copy,
              2 * from.size() / copy / 1e6);
  for (func::FuncOp kernel : kernels) {
    uint64_t state = 1;
    std::vector<Buffer> buffers;
    size_t bytes = 0;
    auto addBuffer = [&](Type type, bool fill) {
      auto tensor = cast<RankedTensorType>(type);
      buffers.emplace_back(tensor);
      bytes += buffers.back().bytes();
      if (fill)
        buffers.back().fill(randomTensor(tensor, 50257, state));
      else // touched before it is timed
        std::memset(buffers.back().data(), 0, buffers.back().bytes());
    };
    for (Type type : kernel.getArgumentTypes())
      addBuffer(type, true);
    for (Type type : kernel.getResultTypes())
      addBuffer(type, false);
    std::vector<void *> pointers;
    for (Buffer &buffer : buffers)
      pointers.push_back(buffer.data());
    KernelFunction function = loaded.find(kernel.getSymName());
    int64_t extent = loaded.extent(kernel);
    double ms = fastest([&] { function(0, extent, pointers.data()); });
    std::printf("%-22s %8.2f ms %7.1f GB/s\n",
                kernel.getSymName().str().c_str(), ms, bytes / ms / 1e6);
  }
}
