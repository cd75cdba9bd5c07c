// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The table of options: each option passes from text to a field, from there to
// the module's attribute, and back. Flags, help and the verifier of
// `fsdp.options` all come from this table, so it is tested without a command
// line.
#include "compiler/options/NamePatterns.h"
#include "compiler/options/Optimizers.h"
#include "runtime/support/foreign_names.h"
#include "tests/compiler/options/fsdp_options.h"

using namespace mlir;
using namespace fsdpc::fsdp;
using fsdpc::ElementType;
using fsdpc::schedule::Prefetch;

namespace {

// Defaults that users know from torch.optim and PyTorch's FSDP.
TEST_F(OptionsTest, DefaultsAreTorchs) {
  EXPECT_EQ(nameOf(options.strategy), "zero3");
  EXPECT_EQ(options.optimizer.name(), "adamw");
  EXPECT_EQ(options.lr(), 1e-3);
  EXPECT_EQ(options.eps(), 1e-8);
  EXPECT_EQ(options.weightDecay(), 1e-2);
  EXPECT_EQ(options.betas().first, 0.9);
  EXPECT_EQ(options.betas().second, 0.999);
  EXPECT_EQ(options.maxRanks, 1024);
  EXPECT_EQ(options.memoryLimit.bytes, 0);
  EXPECT_FALSE(options.nesterov);
  EXPECT_TRUE(options.frozen.texts.empty());
}

// An empty attribute means the defaults.
TEST_F(OptionsTest, AbsentOptionsAreTheDefaults) {
  EXPECT_TRUE(writeOptions(options, &context).empty());
  CompileOptions found = reread();
  for (const OptionInfo &option : allOptions())
    EXPECT_EQ(option.write(found, &context), option.write(options, &context))
        << option.name.str();
}

// A default depends on the optimizer, but a given value stays.
TEST_F(OptionsTest, DefaultsFollowTheOptimizer) {
  EXPECT_EQ(set("optimizer", "lion"), "");
  EXPECT_EQ(options.lr(), 1e-4);
  EXPECT_EQ(options.weightDecay(), 0);
  EXPECT_EQ(options.betas().second, 0.99);
  EXPECT_EQ(set("weight-decay", "0.1"), "");
  EXPECT_EQ(set("optimizer", "adagrad"), "");
  EXPECT_EQ(options.lr(), 1e-2);
  EXPECT_EQ(options.eps(), 1e-10);
  EXPECT_EQ(options.weightDecay(), 0.1);
}

// A file's text goes into the attribute, and nothing is read from a dump.
TEST_F(OptionsTest, AnOptimizerMayBeAFile) {
  options.optimizer = {"mine.mlir", "the text"};
  options.given = {findOption("optimizer")};
  CompileOptions found = reread();
  EXPECT_TRUE(found.optimizer.isUser());
  EXPECT_EQ(found.optimizer.name(), "mine.mlir");
  EXPECT_EQ(found.optimizer.text, "the text");
  EXPECT_EQ(found.lr(), 1e-3);
  EXPECT_EQ(set("weight-decay", "0.1"), "");
  EXPECT_EQ(checkOptions(options), "");
  EXPECT_EQ(set("optimizer", "absent.mlir"),
            "--optimizer 'absent.mlir' cannot be read: No such file or "
            "directory");
  EXPECT_NE(findOption("optimizer")
                ->read(*findOption("optimizer"),
                       StringAttr::get(&context, "absent.mlir"), options),
            "");
}

// The rows of the table name existing options, which go through the table.
TEST_F(OptionsTest, OptimizersTakeOptionsThatExist) {
  for (const OptimizerInfo &info : allOptimizers()) {
    SmallVector<StringRef> names;
    info.hyperparameters.split(names, '|');
    for (StringRef name : names) {
      const OptionInfo *option = findOption(name);
      ASSERT_TRUE(option) << name.str();
      EXPECT_TRUE(llvm::is_contained(neededValues(*option), info.name));
    }
  }
}

// f16 implies torch's scaler; every part of a given one survives a dump.
TEST_F(OptionsTest, LossScaleFollowsTheTypes) {
  EXPECT_FALSE(options.lossScale().isOn());
  EXPECT_EQ(set("reduce-dtype", "f16"), "");
  EXPECT_EQ(options.lossScale().init, 65536);
  EXPECT_EQ(options.lossScale().interval, 2000);
  EXPECT_EQ(set("loss-scale", "dynamic,init=0x1p+24,backoff=0.25,interval=3"),
            "");
  fsdpc::LossScale found = reread().lossScale();
  EXPECT_EQ(found.init, 16777216);
  EXPECT_EQ(found.growth, 2);
  EXPECT_EQ(found.backoff, 0.25);
  EXPECT_EQ(found.interval, 3);
  EXPECT_EQ(set("loss-scale", "1024"), "");
  EXPECT_EQ(reread().lossScale().init, 1024);
  EXPECT_FALSE(reread().lossScale().isDynamic());
  EXPECT_EQ(set("loss-scale", "none"), "");
  EXPECT_FALSE(reread().lossScale().isOn());
}

TEST_F(OptionsTest, LossScaleRefusesWhatGradScalerRefuses) {
  for (auto [text, fault] :
       {std::pair("auto", "is not of the form dynamic[,KEY=X...]|X|none"),
        {"-1", "has the scale -1, which is not above 0 or exceeds f32"},
        {"1e39", "has the scale 1e+39, which is not above 0 or exceeds f32"},
        {"nan", "has the scale nan, which is not above 0 or exceeds f32"},
        {"dynamic,growth=1",
         "has growth 1, which is not above 1 or exceeds f32"},
        {"dynamic,backoff=1",
         "has backoff 1, which is not above 0 and below 1"},
        {"dynamic,interval=0",
         "has 'interval=0', which is not a number of steps"},
        {"dynamic,init", "has 'init', which is not a number"},
        {"dynamic,step=2", "has 'step=2', which sets none of init, growth, "
                           "backoff, interval"}})
    EXPECT_EQ(set("loss-scale", text),
              ("--loss-scale '" + Twine(text) + "' " + fault).str());
}

// Groups and owners are for every target.
TEST_F(OptionsTest, GpusHaveEveryStrategy) {
  EXPECT_EQ(set("strategy-of", "h.*=hybrid"), "");
  EXPECT_EQ(set("target", "cuda-emulation"), "");
  for (const char *strategy :
       {"hybrid", "hybrid_zero2", "hybrid_zero1", "oss", "ddp"}) {
    EXPECT_EQ(set("strategy", strategy), "");
    EXPECT_EQ(checkOptions(options), "");
  }
}

// The names of PyTorch's FSDP are accepted; a dump has our own name.
TEST_F(OptionsTest, StrategiesHaveOtherNames) {
  for (auto [alias, name] : {std::pair("no_shard", "ddp"),
                             {"shard_grad_op", "zero2"},
                             {"full_shard", "zero3"},
                             {"hybrid_shard", "hybrid"},
                             {"hybrid_shard_zero2", "hybrid_zero2"}}) {
    EXPECT_EQ(set("strategy", alias), "");
    EXPECT_EQ(nameOf(options.strategy), name);
    EXPECT_EQ(findOption("strategy")->write(options, &context),
              StringAttr::get(&context, name));
  }
}

// Names as PyTorch and DeepSpeed write them are accepted too.
TEST_F(OptionsTest, OtherToolsNamesAreAccepted) {
  for (auto [option, value, name] :
       {std::tuple("strategy", "FULL_SHARD", "zero3"),
        {"strategy", "ShardingStrategy.SHARD_GRAD_OP", "zero2"},
        {"strategy", "_HYBRID_SHARD_ZERO2", "hybrid_zero2"},
        {"param-dtype", "torch.bfloat16", "bf16"},
        {"param-dtype", "fp16", "f16"},
        {"prefetch", "BACKWARD_PRE", "pre"},
        {"optimizer", "torch.optim.SGD", "sgd"}}) {
    EXPECT_EQ(set(option, value), "") << value;
    EXPECT_EQ(findOption(option)->write(options, &context),
              StringAttr::get(&context, name));
  }
}

// Each default that has a text reads back to itself.
TEST_F(OptionsTest, EveryDefaultRoundTrips) {
  for (const OptionInfo &option : allOptions()) {
    std::string text = option.print(CompileOptions());
    if (text.empty())
      continue;
    EXPECT_EQ(setOption(option, text, options), "");
    CompileOptions found = reread();
    EXPECT_EQ(option.print(found), text) << option.name.str();
    EXPECT_TRUE(llvm::is_contained(found.given, &option)) << option.name.str();
  }
}

// Every legal value of a choice reads back to the same value.
TEST_F(OptionsTest, EveryChoiceRoundTrips) {
  for (const OptionInfo &option : allOptions()) {
    std::string legal = option.legalValues();
    SmallVector<StringRef> values;
    StringRef(legal).split(values, '|', -1, /*KeepEmpty=*/false);
    for (StringRef value : values) {
      EXPECT_EQ(setOption(option, value, options), "");
      CompileOptions found = reread();
      EXPECT_EQ(option.print(found), option.print(options));
      if (option.name != "strategy") { // which has aliases
        // The types of the graph are bf16 until the import knows better.
        EXPECT_EQ(option.print(found),
                  option.name == "param-dtype" && value == "graph"
                      ? "graph:bf16"
                      : value.str());
      }
    }
  }
}

// Values other than the default, from the text to the text of the attribute.
TEST_F(OptionsTest, ValuesRoundTrip) {
  struct {
    const char *name, *text, *attribute;
  } cases[] = {
      {"loss", "nll", "\"nll\""},
      {"loss-reduction", "mean", "\"mean\""},
      {"dim", "batch=4", "[\"batch=4\"]"},
      {"frozen", "^wte", "[\"^wte\"]"},
      {"trainable", "h\\.0", "[\"h\\\\.0\"]"},
      {"init-rule", "*.w=normal(0,0.02)", "[\"*.w=normal(0,0.02)\"]"},
      {"embed-weights", "true", "true"},
      {"strategy-of", "a=b.*=no_shard", "[\"a=b.*=ddp\"]"},
      {"persist", "1000", "1000 : i64"},
      {"ignored", "norm|bias", "[\"norm|bias\"]"},
      {"unit-class", "*Block", "[\"*Block\"]"},
      {"keep-f32", "*Norm", "[\"*Norm\"]"},
      {"gather-dtype", "i8", "\"i8\""},
      {"reduce-dtype", "f8e4m3", "\"f8e4m3\""},
      {"unit-scope", "h\\.\\d+$", "[\"h\\\\.\\\\d+$\"]"},
      {"unit-size", "1000000", "1000000 : i64"},
      {"layout", "parameter", "\"parameter\""},
      {"layout-size", "1000000", "1000000 : i64"},
      {"bucket-size", "1000000", "1000000 : i64"},
      {"max-accumulate", "1", "1 : i64"},
      {"lr", "3e-4", "3.000000e-04 : f64"},
      {"betas", "0.5, 0.95", "\"0.5,0.95\""},
      {"eps", "0", "0.000000e+00 : f64"},
      {"weight-decay", "0", "0.000000e+00 : f64"},
      {"momentum", "0.9", "9.000000e-01 : f64"},
      {"nesterov", "true", "true"},
      {"amsgrad", "true", "true"},
      {"maximize", "true", "true"},
      {"no-decay", "norm|bias", "[\"norm|bias\"]"},
      {"group", "ln|b$: x: lr=1e-4 weight_decay=0",
       "[\"ln|b$: x: lr=1e-04 weight_decay=0\"]"},
      {"group", "a: optimizer=sgd momentum=0.90 nesterov=true betas=0.5,0.950",
       "[\"a: optimizer=sgd momentum=0.9 nesterov=true betas=0.5,0.95\"]"},
      {"ema", "0.75", "7.500000e-01 : f64"},
      {"layer-decay", "0.75", "7.500000e-01 : f64"},
      {"clip-grad-norm", "1", "1.000000e+00 : f64"},
      {"clip-grad-value", "0.5", "5.000000e-01 : f64"},
      {"dampening", "-0.5", "-5.000000e-01 : f64"},
      {"etas", "0.4, 1.5", "\"0.4,1.5\""},
      {"step-sizes", "1e-6,50", "\"1e-06,50\""},
      {"t0", "1e6", "1.000000e+06 : f64"},
      {"ns-coefficients", "3, -4.0,2", "\"3,-4,2\""},
      {"adjust-lr-fn", "match_rms_adamw", "\"match_rms_adamw\""},
      {"muon-dtype", "bf16", "\"bf16\""},
      {"reduce-hook", "predivide=2.0", "[\"predivide=2\"]"},
      {"reduce-hook", "average=before", "[\"average=before\"]"},
      {"reduce-hook", "quantize=i8", "[\"quantize=i8,block=256\"]"},
      {"reduce-hook", "top-k=0.50%", "[\"top-k=0.5%\"]"},
      {"reduce-hook", "power-sgd=4", "[\"power-sgd=4\"]"},
      {"limit-all-gathers", "0", "0 : i64"},
      {"recompute-scope", "h\\.0", "[\"h\\\\.0\"]"},
      {"memory-limit", "800B", "\"800\""},
      {"memory-limit", "1.5GiB", "\"1536MiB\""},
      {"memory-limit", "6G", "\"6GiB\""},
      {"memory-limit", "40GB", "\"39062500KiB\""},
      {"plan-ranks", "1", "1 : i64"},
      {"plan-threads", "1", "1 : i64"},
      {"max-ranks", "1", "1 : i64"},
      {"gpu-arch", "sm_100,sm_80,sm_100", "\"sm_80,sm_100\""},
      {"poison", "true", "true"},
  };
  for (auto [name, text, attribute] : cases) {
    options = CompileOptions();
    EXPECT_EQ(set(name, text), "");
    const OptionInfo &option = *findOption(name);
    std::string written;
    llvm::raw_string_ostream(written) << option.write(options, &context);
    EXPECT_EQ(written, attribute) << name;
    CompileOptions found = reread();
    EXPECT_EQ(option.write(found, &context), option.write(options, &context))
        << name;
  }
}

// A repeated flag adds to the list; the attribute keeps the order.
TEST_F(OptionsTest, ListsGrow) {
  EXPECT_EQ(set("unit-class", "*Block"), "");
  EXPECT_EQ(set("unit-class", "Head"), "");
  EXPECT_EQ(reread().unitClasses, (std::vector<std::string>{"*Block", "Head"}));
  EXPECT_EQ(set("dim", "a=b=2"), "");
  EXPECT_EQ(set("dim", "c=3"), "");
  EXPECT_EQ(reread().dims,
            (std::map<std::string, int64_t>{{"a=b", 2}, {"c", 3}}));
}

// Bytes, with or without a binary unit.
TEST_F(OptionsTest, SizesHaveUnits) {
  EXPECT_EQ(set("memory-limit", "1.5GiB"), "");
  EXPECT_EQ(options.memoryLimit.bytes, 3ll << 29);
  EXPECT_EQ(set("memory-limit", "4096"), "");
  EXPECT_EQ(options.memoryLimit.bytes, 4096);
}

// The rules of CUDA hold for programs that only pretend to run there.
TEST_F(OptionsTest, TheEmulationCountsAsCuda) {
  EXPECT_FALSE(options.isCuda());
  EXPECT_EQ(set("target", "cuda-emulation"), "");
  EXPECT_TRUE(options.isCuda());
}

// RE2's search finds a pattern anywhere, as re.search does.
TEST_F(OptionsTest, PatternsAreSearchedAsInPython) {
  auto matches = [](StringRef text, StringRef name) {
    std::string error;
    std::optional<NamePattern> pattern = NamePattern::compile(text, error);
    EXPECT_TRUE(pattern) << error;
    return pattern && pattern->match(name);
  };
  EXPECT_TRUE(matches("h\\.\\d+\\.", "transformer.h.11.mlp"));
  EXPECT_FALSE(matches("h\\.\\d+\\.", "transformer.h.x.mlp"));
  EXPECT_TRUE(matches("\\bln_\\w\\b", "h.0.ln_f.weight"));
  EXPECT_FALSE(matches("\\bln\\b", "h.0.ln_f.weight"));
  EXPECT_TRUE(matches("(?:attn|mlp)\\.[^.]+$", "h.0.mlp.weight"));
  EXPECT_FALSE(matches("^mlp", "h.0.mlp.weight"));
}

} // namespace
