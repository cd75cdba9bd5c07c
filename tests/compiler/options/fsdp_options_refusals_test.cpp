// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Illegal values of options, and combinations of which one has no effect, are
// refused with an error that says what is legal.
#include "runtime/support/foreign_names.h"
#include "tests/compiler/options/fsdp_options.h"

using namespace mlir;
using namespace fsdpc::fsdp;

namespace {

// Errors name the flag, the value, and what is legal.
TEST_F(OptionsTest, IllegalValuesAreRefused) {
  struct {
    const char *name, *text, *fault;
  } cases[] = {
      {"strategy", "zero4",
       "is none of "
       "ddp|zero1|zero2|zero3|hybrid|hybrid_zero2|hybrid_zero1|oss|no_shard|"
       "shard_grad_op|full_shard|hybrid_shard|hybrid_shard_zero2; "
       "did you mean 'zero1'?"},
      {"gpu-arch", "sm_80,sm_91",
       "has 'sm_91', which is none of "
       "sm_80|sm_86|sm_89|sm_90|sm_100|sm_120; did you mean 'sm_90'?"},
      {"gpu-arch", "",
       "has '', which is none of sm_80|sm_86|sm_89|sm_90|sm_100|sm_120"},
      {"reduce", "mean", "is none of microbatch|step"},
      {"muon-dtype", "f16", "is none of f32|bf16; did you mean 'bf16'?"},
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
       "ddp|zero1|zero2|zero3|hybrid|hybrid_zero2|hybrid_zero1|oss|no_shard|"
       "shard_grad_op|"
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
      {{{"optimizer", "muon"}, {"target", "cuda"}}, ""},
      {{{"ns-steps", "4"}},
       "'--ns-steps' has no effect with '--optimizer=adamw'; it needs "
       "'--optimizer=muon'"},
      {{{"reduce-hook", "zero-nonfinite"}, {"target", "cuda"}}, ""},
      {{{"offload", "activations"}, {"target", "cuda"}}, ""},
      {{{"reduce-hook", "cast=bf16"}, {"reduce-hook", "top-k=1%"}}, ""},
      {{{"reduce-hook", "top-k=1%"}, {"reduce-hook", "cast=bf16"}},
       "'--reduce-hook=top-k=1%' is what travels, so '--reduce-hook=cast=bf16' "
       "cannot follow it; give it last"},
      {{{"reduce-hook", "power-sgd=1"}, {"reduce-hook", "top-k=1%"}},
       "'--reduce-hook=power-sgd=1' is what travels, so "
       "'--reduce-hook=top-k=1%' cannot follow it; give it last"},
      {{{"reduce-hook", "top-k=1%"}, {"target", "cuda"}}, ""},
      {{{"gather-dtype", "i8"}, {"reduce-dtype", "i4"}, {"target", "cuda"}},
       ""},
      {{{"reduce-hook", "power-sgd=1"}, {"target", "cuda"}}, ""},
      {{{"reduce-hook", "top-k=1%"}, {"strategy", "hybrid"}},
       "'--reduce-hook=top-k=1%' is not supported with '--strategy=hybrid'; "
       "use "
       "zero3 with '--reshard-to'"},
      {{{"reduce-hook", "top-k=1%"}, {"strategy-of", "h.*=hybrid_zero2"}},
       "'--reduce-hook=top-k=1%' is not supported with "
       "'--strategy=hybrid_zero2'; use zero2"},
      {{{"reduce-hook", "top-k=1%"}, {"strategy", "oss"}},
       "'--reduce-hook=top-k=1%' is not supported with '--strategy=oss'; use "
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
      {{{"optimizer", "adafactor"}, {"target", "cuda"}}, ""},
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
       ""},
      {{{"master", "f32"}, {"target", "cuda"}}, ""},
      {{{"ignored", "bias"}, {"strategy", "ddp"}},
       "'--ignored' has no effect with '--strategy=ddp'; it needs "
       "'--strategy=zero1|zero2|zero3|hybrid|hybrid_zero2|hybrid_zero1|oss'"},
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
