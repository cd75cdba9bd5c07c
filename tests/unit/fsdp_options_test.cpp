// The table of options: each option passes from text to a field, from there to
// the module's attribute, and back; illegal values and combinations are refused
// with an error that says what is legal. Flags, help and the verifier of
// `fsdp.options` all come from this table, so it is tested without a command
// line.
#include "compiler/dialects/fsdp/FSDPDialect.h"
#include "compiler/dialects/fsdp/Names.h"
#include "compiler/dialects/fsdp/Optimizers.h"
#include "compiler/dialects/fsdp/OptionTable.h"
#include "shared/foreign_names.h"
#include "shared/own_flags.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace fsdpc::fsdp;
using fsdpc::schedule::ElementType;
using fsdpc::schedule::Prefetch;

namespace {

class OptionsTest : public testing::Test {
protected:
  OptionsTest() { context.loadDialect<FSDPDialect>(); }

  // Sets an option as on the command line. Returns the error.
  std::string set(StringRef name, StringRef text) {
    return setOption(*findOption(name), text, options);
  }

  // Returns the options after a way through the attribute of a module.
  CompileOptions reread() {
    OwningOpRef<ModuleOp> module = ModuleOp::create(UnknownLoc::get(&context));
    (*module)->setAttr(FSDPDialect::kOptionsAttr,
                       writeOptions(options, &context));
    return CompileOptions::of(*module);
  }

  MLIRContext context;
  CompileOptions options;
};

// Defaults that users know from torch.optim and PyTorch's FSDP.
TEST_F(OptionsTest, DefaultsAreTorchs) {
  EXPECT_EQ(options.strategy, Strategy::Zero3);
  EXPECT_EQ(options.optimizer, Optimizer::AdamW);
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
  options.optimizer = {Optimizer::User, "mine.mlir", "the text"};
  options.given = {findOption("optimizer")};
  CompileOptions found = reread();
  EXPECT_EQ(found.optimizer.kind, Optimizer::User);
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
  for (const char *strategy : {"hybrid", "hybrid_zero2", "oss", "ddp"}) {
    EXPECT_EQ(set("strategy", strategy), "");
    EXPECT_EQ(checkOptions(options), "");
  }
}

// The names of PyTorch's FSDP are accepted; a dump has the name proper.
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

// Every legal value of a choice reads back to the value proper.
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
        EXPECT_EQ(option.print(found), value.str());
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

// Errors name the flag, the value, and what is legal.
TEST_F(OptionsTest, IllegalValuesAreRefused) {
  struct {
    const char *name, *text, *fault;
  } cases[] = {
      {"strategy", "zero4",
       "is none of ddp|zero1|zero2|zero3|hybrid|hybrid_zero2|oss|no_shard|"
       "shard_grad_op|full_shard|hybrid_shard|hybrid_shard_zero2; "
       "did you mean 'zero1'?"},
      {"gpu-arch", "sm_80,sm_91",
       "has 'sm_91', which is none of "
       "sm_80|sm_86|sm_89|sm_90|sm_100|sm_120; did you mean 'sm_90'?"},
      {"gpu-arch", "",
       "has '', which is none of sm_80|sm_86|sm_89|sm_90|sm_100|sm_120"},
      {"reduce", "mean", "is none of microbatch|step"},
      {"lr", "inf", "is not finite"},
      {"lr", "nan", "is not a number"},
      {"plan-ranks", "0", "is less than 1"},
      {"plan-threads", "0", "is less than 1"},
      {"max-ranks", "0", "is less than 1"},
      {"unit-size", "-1", "is less than 0"},
      {"unit-size", "1.5", "is not an integer"},
      {"limit-all-gathers", "-1", "is less than 0"},
      {"lr", "fast", "is not a number"},
      {"lr", "nan", "is not a number"},
      {"lr", "-1", "is less than 0"},
      {"eps", "-1e-8", "is less than 0"},
      {"weight-decay", "-0.1", "is less than 0"},
      {"momentum", "-0.1", "is less than 0"},
      {"clip-grad-norm", "-1", "is less than 0"},
      {"clip-grad-value", "-1", "is less than 0"},
      {"etas", "0.5", "is not of the form MINUS,PLUS"},
      {"betas", "0.9", "is not of the form B1,B2"},
      {"betas", "0.9,0.99,0.999", "is not of the form B1,B2"},
      {"betas", "0.9,1", "has 1, which is not less than 1"},
      {"betas", "-0.1,0.9", "has -0.1, which is less than 0"},
      {"ema", "1", "is not less than 1"},
      {"group", "lr=1", "is not of the form 'REGEX: KEY=X ...'"},
      {"group", "a: momentun=0.9",
       "sets 'momentun', which a group cannot set; did you mean "
       "'momentum'?"},
      {"group", "a: weight-decay=0",
       "sets 'weight-decay', which a group cannot set; did you mean "
       "'weight_decay'?"},
      {"group", "a: no_decay=b",
       "sets 'no_decay', which a group cannot set; did you mean "
       "'lr_decay'?"},
      {"group", "a: lr=1 lr=2", "sets 'lr' twice"},
      {"group", "a: betas=0.9",
       "has 'betas=0.9', where '0.9' is not of the form B1,B2"},
      {"group", "a: nesterov",
       "has 'nesterov', where '' is neither true nor false"},
      {"group", "a: optimizer=lion.mlir",
       "has 'optimizer=lion.mlir', but only --optimizer takes a file; give it "
       "there, and groups to the other parameters"},
      {"memory-limit", "6 parsecs", "is not a size such as '6GiB'"},
      {"memory-limit", "0", "is not a size such as '6GiB'"},
      {"memory-limit", "99999999999G", "is not a size such as '6GiB'"},
      {"nesterov", "yes", "is neither true nor false"},
      {"frozen", "(", "is not a regular expression: missing ): ("},
      {"dim", "batch", "is not of the form NAME=VALUE"},
      {"dim", "=4", "is not of the form NAME=VALUE"},
      {"dim", "batch=0", "is not a positive size"},
      {"strategy-of", "h.*", "is not of the form GLOB=NAME"},
      {"strategy-of", "=zero2", "is not of the form GLOB=NAME"},
      {"strategy-of", "h.*=zero4",
       "has 'zero4', which is none of "
       "ddp|zero1|zero2|zero3|hybrid|hybrid_zero2|oss|no_shard|shard_grad_op|"
       "full_shard|hybrid_shard|hybrid_shard_zero2; did you mean 'zero1'?"},
      {"strategy-of", "h[=zero2",
       "has 'h[', which is not a glob: invalid glob pattern, unmatched '['"},
      {"init-rule", "*=gauss(0,1)",
       "has the rule 'gauss(0,1)', which is none of zeros, ones, constant(x), "
       "normal(mean,std), trunc_normal(mean,std[,low,high]), "
       "uniform(low,high), xavier_uniform[(gain)], xavier_normal[(gain)], "
       "kaiming_uniform[(slope)], kaiming_normal[(slope)], "
       "orthogonal[(gain)]"},
  };
  for (auto [name, text, fault] : cases)
    EXPECT_EQ(set(name, text),
              "--" + std::string(name) + " '" + text + "' " + fault);
}

// An attribute of another kind is refused, whatever the option.
TEST_F(OptionsTest, AttributesHaveOneType) {
  for (const OptionInfo &option : allOptions())
    EXPECT_NE(option.read(option, UnitAttr::get(&context), options), "")
        << option.name.str();
}

// Advice on the flags of other tools names options that exist.
TEST_F(OptionsTest, AdviceNamesOptions) {
  for (const fsdpc::ForeignFlag &foreign : fsdpc::foreignFlags()) {
    StringRef advice = foreign.advice;
    bool own = advice.contains("of fsdpc") && advice.contains("'--");
    StringRef flag = advice.split("'--").second;
    EXPECT_TRUE(!own || findOption(flag.take_until([](char c) {
      return StringRef("= '").contains(c);
    }))) << foreign.name;
  }
}

// A program knows the flags of fsdpc by a list of their names.
TEST_F(OptionsTest, TheListOfOwnFlagsIsTheTable) {
  std::vector<StringRef> names;
  for (const OptionInfo &option : allOptions())
    names.push_back(option.name);
  std::vector<StringRef> listed(fsdpc::compilerFlags().begin(),
                                fsdpc::compilerFlags().end());
  EXPECT_THAT(listed, testing::UnorderedElementsAreArray(names));
}

// A condition names an option and values that exist.
TEST_F(OptionsTest, ConditionsAreSpeltRight) {
  for (const OptionInfo &option : allOptions()) {
    if (option.condition.option.empty())
      continue;
    const OptionInfo *other = findOption(option.condition.option);
    ASSERT_TRUE(other) << option.name.str();
    SmallVector<StringRef> values = neededValues(option);
    EXPECT_FALSE(values.empty()) << option.name.str();
    for (StringRef value : values)
      EXPECT_EQ(other->parse(*other, value, options), "");
  }
}

// A flag that the others leave without effect is an error.
TEST_F(OptionsTest, IgnoredFlagsAreRefused) {
  using Flags = std::vector<std::pair<const char *, const char *>>;
  const std::pair<Flags, std::string> cases[] = {
      {{{"optimizer", "sgd"}, {"momentum", "0.9"}, {"nesterov", "true"}}, ""},
      {{{"amsgrad", "true"}, {"eps", "1e-6"}, {"betas", "0.8,0.9"}}, ""},
      {{{"target", "cuda-emulation"}, {"cpu", "x86-64-v3"}}, ""},
      {{{"nesterov", "false"}}, ""},
      {{{"limit-all-gathers", "1"},
        {"strategy", "ddp"},
        {"strategy-of", "h.*=zero3"}},
       ""},
      {{{"momentum", "0.9"}},
       "'--momentum' has no effect with '--optimizer=adamw'; it needs "
       "'--optimizer=sgd|rmsprop|lars|muon'"},
      {{{"nesterov", "true"}},
       "'--nesterov' has no effect with '--optimizer=adamw'; it needs "
       "'--optimizer=sgd' or '--optimizer=muon'"},
      {{{"optimizer", "muon"},
        {"ns-coefficients", "3,-4,2"},
        {"ns-steps", "4"},
        {"adjust-lr-fn", "match_rms_adamw"},
        {"muon-dtype", "bf16"},
        {"nesterov", "false"}},
       ""},
      {{{"optimizer", "muon"}, {"muon-dtype", "f16"}},
       "--muon-dtype 'f16' is not f32 or bf16"},
      {{{"optimizer", "muon"}, {"target", "cuda"}},
       "'--optimizer=muon' works on whole parameters, which '--target=cuda' "
       "cannot do yet"},
      {{{"ns-steps", "4"}},
       "'--ns-steps' has no effect with '--optimizer=adamw'; it needs "
       "'--optimizer=muon'"},
      {{{"reduce-hook", "zero-nonfinite"}, {"target", "cuda"}},
       "'--reduce-hook=zero-nonfinite' is not supported with '--target=cuda'"},
      {{{"reduce-hook", "cast=bf16"}, {"reduce-hook", "top-k=1%"}}, ""},
      {{{"reduce-hook", "top-k=1%"}, {"reduce-hook", "cast=bf16"}},
       "'--reduce-hook=top-k=1%' is what travels, so '--reduce-hook=cast=bf16' "
       "cannot follow it; give it last"},
      {{{"reduce-hook", "power-sgd=1"}, {"reduce-hook", "top-k=1%"}},
       "'--reduce-hook=power-sgd=1' is what travels, so "
       "'--reduce-hook=top-k=1%' cannot follow it; give it last"},
      {{{"reduce-hook", "top-k=1%"}, {"target", "cuda"}},
       "'--reduce-hook=top-k=1%' is not supported with '--target=cuda'; omit "
       "it"},
      {{{"reduce-hook", "top-k=1%"}, {"strategy", "hybrid"}},
       "'--reduce-hook=top-k=1%' is not supported with the hybrid strategies; "
       "use zero3, or zero2 for hybrid_zero2"},
      {{{"reduce-hook", "top-k=1%"}, {"strategy", "oss"}},
       "'--reduce-hook=top-k=1%' is not supported with the strategy oss; use "
       "zero2"},
      {{{"reduce-hook", "top-k=1%"}, {"reduce-dtype", "i8"}},
       "'--reduce-hook=top-k=1%' sends f32; omit '--reduce-dtype=i8'"},
      {{{"reduce-hook", "top-k=1%"}, {"param-dtype", "f16"}},
       "'--reduce-hook=top-k=1%' keeps parts of gradients for the next steps, "
       "whose loss may have another scale; use bf16, or a constant "
       "'--loss-scale'"},
      {{{"optimizer", "lars"}, {"momentum", "0"}, {"trust", "0.01"}}, ""},
      {{{"optimizer", "lamb"}, {"trust", "0.01"}},
       "'--trust' has no effect with '--optimizer=lamb'; it needs "
       "'--optimizer=lars'"},
      {{{"optimizer", "lamb"}, {"target", "cuda-emulation"}},
       "'--optimizer=lamb' works on whole parameters, which "
       "'--target=cuda-emulation' cannot do yet"},
      {{{"optimizer", "sgd"}, {"nesterov", "true"}},
       "'--nesterov' needs '--momentum' above 0"},
      {{{"optimizer", "sgd"},
        {"momentum", "0.9"},
        {"nesterov", "true"},
        {"dampening", "0.1"}},
       "'--nesterov' needs '--dampening' of 0, not 0.1"},
      {{{"optimizer", "sgd"}, {"dampening", "0.1"}},
       "'--dampening' needs '--momentum' above 0"},
      {{{"optimizer", "adadelta"}, {"rho", "1"}}, ""},
      {{{"optimizer", "adadelta"}, {"rho", "1.5"}}, "--rho '1.5' is above 1"},
      {{{"optimizer", "rprop"}, {"etas", "0.5,0.9"}},
       "--etas '0.5,0.9' are not a number between 0 and 1 and one above 1"},
      {{{"optimizer", "rprop"}, {"step-sizes", "2,1"}},
       "--step-sizes '2,1' have a minimum above the maximum"},
      {{{"optimizer", "adafactor"}, {"beta2-decay", "-0.5"}, {"d", "2"}}, ""},
      {{{"optimizer", "adafactor"}, {"beta2-decay", "0.5"}},
       "--beta2-decay '0.5' is above 0"},
      {{{"optimizer", "adafactor"}, {"d", "0.5"}}, "--d '0.5' is below 1"},
      {{{"optimizer", "adamw"}, {"d", "2"}},
       "'--d' has no effect with '--optimizer=adamw'; it needs "
       "'--optimizer=adafactor'"},
      {{{"optimizer", "adafactor"}, {"target", "cuda"}},
       "'--optimizer=adafactor' works on whole parameters, which "
       "'--target=cuda' cannot do yet"},
      {{{"optimizer", "rprop"}, {"weight-decay", "0.1"}},
       "'--weight-decay' has no effect with '--optimizer=rprop'; it needs "
       "'--optimizer=adamw|adam|sgd|adadelta|adagrad|adamax|nadam|radam|"
       "rmsprop|asgd|lion|lamb|lars|adafactor|muon'"},
      {{{"betas", "0.9,0.95"}, {"optimizer", "sgd"}},
       "'--betas' has no effect with '--optimizer=sgd'; it needs "
       "'--optimizer=adamw|adam|adamax|nadam|radam|lion|lamb'"},
      {{{"amsgrad", "true"}, {"optimizer", "sgd"}},
       "'--amsgrad' has no effect with '--optimizer=sgd'; it needs "
       "'--optimizer=adamw' or '--optimizer=adam'"},
      {{{"limit-all-gathers", "1"}, {"strategy", "zero2"}},
       "'--limit-all-gathers' has no effect with '--strategy=zero2'; it needs "
       "'--strategy=zero3' or '--strategy=hybrid'"},
      {{{"persist", "1000"}, {"strategy", "zero2"}},
       "'--persist' has no effect with '--strategy=zero2'; it needs "
       "'--strategy=zero3' or '--strategy=hybrid'"},
      {{{"bucket-size", "1000"}, {"strategy", "zero2"}},
       "'--bucket-size' has no effect with '--strategy=zero2'; it needs "
       "'--strategy=oss'"},
      {{{"reshard-to", "2"}, {"strategy", "hybrid"}},
       "'--reshard-to' has no effect with '--strategy=hybrid'; it needs "
       "'--strategy=zero3'"},
      {{{"reshard-to", "16"}, {"max-ranks", "8"}},
       "'--reshard-to=16' is above '--max-ranks=8', the most ranks that the "
       "program will run on"},
      {{{"reshard-to", "3"}, {"plan-ranks", "8"}},
       "'--reshard-to=3' does not divide '--plan-ranks=8'"},
      {{{"max-accumulate", "1"}, {"reduce", "step"}},
       "'--reduce=step' has no effect with '--max-accumulate=1', since a step "
       "has one microbatch; omit it"},
      {{{"max-accumulate", "2"}, {"reduce", "step"}}, ""},
      {{{"gradient", "dw=w"}, {"sync-batchnorm", "true"}},
       "'--gradient' names gradients that the graph computes from a rank's own "
       "statistics; omit '--sync-batchnorm'"},
      {{{"master", "none"}},
       "'--master=none' needs '--param-dtype=bf16', not f32"},
      {{{"master", "none"}, {"param-dtype", "f16"}},
       "'--master=none' needs '--param-dtype=bf16', not f16, whose least "
       "number is far above that of f32"},
      {{{"master", "none"},
        {"param-dtype", "bf16"},
        {"group", "a: optimizer=lars"}},
       "'--group=a: ...': '--optimizer=lars' works on whole parameters, which "
       "'--master=none' cannot do yet; use another optimizer, or omit "
       "'--master'"},
      {{{"master", "none"}, {"param-dtype", "bf16"}}, ""},
      {{{"master", "f32"}, {"target", "cuda"}}, ""},
      {{{"ignored", "bias"}, {"strategy", "ddp"}},
       "'--ignored' has no effect with '--strategy=ddp'; it needs "
       "'--strategy=zero1|zero2|zero3|hybrid|hybrid_zero2|oss'"},
      {{{"gpu-arch", "sm_90"}},
       "'--gpu-arch' has no effect with '--target=host'; it needs "
       "'--target=cuda' or '--target=cuda-emulation'"},
      {{{"attention", "cudnn"}},
       "'--attention' has no effect with '--target=host'; it needs "
       "'--target=cuda' or '--target=cuda-emulation'"},
      {{{"math", "exact"}},
       "'--math' has no effect with '--target=host'; it needs "
       "'--target=cuda' or '--target=cuda-emulation'"},
      {{{"target", "cuda"}, {"cpu", "x86-64-v3"}},
       "'--cpu' has no effect with '--target=cuda'; it needs '--target=host' "
       "or '--target=cuda-emulation'"},
      {{{"group", "a: optimizer=sgd momentum=0.9 nesterov=true"},
        {"group", "b: eps=1e-6"}},
       ""},
      {{{"optimizer", "sgd"},
        {"momentum", "0.9"},
        {"group", "a: nesterov=true"}},
       ""},
      {{{"group", "a: momentum=0.9"}},
       "'--group=a: ...' sets momentum, which optimizer=adamw does not take; "
       "it needs optimizer=sgd|rmsprop|lars|muon"},
      {{{"optimizer", "sgd"},
        {"momentum", "0.9"},
        {"group", "a: optimizer=rprop weight_decay=0"}},
       "'--group=a: ...' sets weight_decay, which optimizer=rprop does not "
       "take; it needs optimizer=adamw|adam|sgd|adadelta|adagrad|adamax|nadam|"
       "radam|rmsprop|asgd|lion|lamb|lars|adafactor|muon"},
      {{{"optimizer", "sgd"}, {"group", "a: nesterov=true"}},
       "'--group=a: ...': '--nesterov' needs '--momentum' above 0"},
      {{{"lr", "0"}, {"group", "a: lr=1"}},
       "'--group=a: ...' with an lr needs '--lr' above 0, since the program "
       "keeps their ratio"},
      {{{"plan-ranks", "16"}, {"max-ranks", "8"}},
       "'--plan-ranks=16' is above '--max-ranks=8', the most ranks that the "
       "program will run on"},
      {{{"plan-ranks", "4"}, {"plan-ranks-per-node", "3"}},
       "'--plan-ranks-per-node=3' does not divide '--plan-ranks=4'"},
      {{{"plan-cross-node-gbs", "1"}},
       "'--plan-cross-node-gbs' has no effect without "
       "'--plan-ranks-per-node'"},
  };
  for (const auto &[flags, error] : cases) {
    options = CompileOptions();
    for (auto [name, text] : flags)
      EXPECT_EQ(set(name, text), "");
    EXPECT_EQ(checkOptions(options), error);
  }
}

// A rank's shard is padded by less than shardAlignment() elements, of as many
// bytes as the widest layout has. Modules that stay f32 have twice bf16's.
TEST_F(OptionsTest, AGatherHasRoomForThePaddingOfTheWidestLayout) {
  ASSERT_EQ(set("max-ranks", "8"), "");
  EXPECT_EQ(options.gatherPadding(), 8 * 32 * 4);
  ASSERT_EQ(set("param-dtype", "bf16"), "");
  EXPECT_EQ(options.gatherPadding(), 8 * 64 * 2);
  ASSERT_EQ(set("keep-f32", "*Norm"), "");
  EXPECT_EQ(options.gatherPadding(), 8 * 64 * 4);
  ASSERT_EQ(set("gather-dtype", "i8"), "");
  EXPECT_EQ(options.gatherPadding(), 8 * 256 * 4);
}

} // namespace
