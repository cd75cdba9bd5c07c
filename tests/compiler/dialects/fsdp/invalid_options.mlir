// RUN: fsdpc-opt %s --split-input-file --verify-diagnostics

// Options belong to the module.
module {
  // expected-error @below {{attribute 'fsdp.options' belongs on a module, not on 'func.func'}}
  func.func private @f() attributes {fsdp.options = {}}
}

// -----

// They are a dictionary.
// expected-error @below {{attribute 'fsdp.options' = "zero3" is not a dictionary}}
module attributes {fsdp.options = "zero3"} {
}

// -----

// An unknown key is refused with the nearest known one.
// expected-error @below {{attribute 'fsdp.options': there is no option 'stratgy'; did you mean 'strategy'?}}
module attributes {fsdp.options = {stratgy = "zero3"}} {
}

// -----

// A choice is one of its names.
// expected-error @below {{attribute 'fsdp.options': 'strategy' = "zero4" is none of ddp|zero1|zero2|zero3|hybrid|hybrid_zero2|hybrid_zero1|oss|no_shard|shard_grad_op|full_shard|hybrid_shard|hybrid_shard_zero2; did you mean 'zero1'?}}
module attributes {fsdp.options = {strategy = "zero4"}} {
}

// -----

// A choice is a string.
// expected-error @below {{attribute 'fsdp.options': 'strategy' = 3 : i64 is not a string}}
module attributes {fsdp.options = {strategy = 3 : i64}} {
}

// -----

// A count is an i64.
// expected-error @below {{attribute 'fsdp.options': 'max-ranks' = 2 : i32 is not an i64}}
module attributes {fsdp.options = {"max-ranks" = 2 : i32}} {
}

// -----

// A count has a range.
// expected-error @below {{attribute 'fsdp.options': 'plan-ranks' = 0 : i64 is less than 1}}
module attributes {fsdp.options = {"plan-ranks" = 0 : i64}} {
}

// -----

// A number is an f64.
// expected-error @below {{attribute 'fsdp.options': 'lr' = "fast" is not an f64}}
module attributes {fsdp.options = {lr = "fast"}} {
}

// -----

// Adam's decay rates are two numbers below 1, as in torch.optim.
// expected-error @below {{attribute 'fsdp.options': 'betas' = "0.9,1" has 1, which is not less than 1}}
module attributes {fsdp.options = {betas = "0.9,1"}} {
}

// -----

// A flag is a boolean.
// expected-error @below {{attribute 'fsdp.options': 'poison' = 1 : i64 is not true or false}}
module attributes {fsdp.options = {poison = 1 : i64}} {
}

// -----

// A flag that may be repeated is a list.
// expected-error @below {{attribute 'fsdp.options': 'frozen' = "wte" is not an array of strings}}
module attributes {fsdp.options = {frozen = "wte"}} {
}

// -----

// Each entry of a list is checked.
// expected-error @below {{attribute 'fsdp.options': 'no-decay' = ["bias", "("] has '(', which is not a regular expression: missing ): (}}
module attributes {fsdp.options = {"no-decay" = ["bias", "("]}} {
}

// -----

// A group has an expression, then known settings, each once and in range.
// expected-error @below {{attribute 'fsdp.options': 'group' = ["bias:lr=1"] has 'bias:lr=1', which is not of the form 'REGEX: KEY=X ...'}}
module attributes {fsdp.options = {group = ["bias:lr=1"]}} {
}

// -----

// expected-error @below {{sets 'no_decay', which a group cannot set; did you mean 'lr_decay'?}}
module attributes {fsdp.options = {group = ["bias: no_decay=x"]}} {
}

// -----

// expected-error @below {{attribute 'fsdp.options': '--group=bias: ...' sets momentum, which optimizer=adamw does not take; it needs optimizer=sgd|rmsprop}}
module attributes {fsdp.options = {group = ["bias: momentum=0.5"]}} {
}

// -----

// expected-error @below {{sets 'lr' twice}}
module attributes {fsdp.options = {group = ["bias: lr=1 lr=2"]}} {
}

// -----

// expected-error @below {{has 'lr=-1', where '-1' is less than 0}}
module attributes {fsdp.options = {group = ["bias: lr=-1"]}} {
}

// -----

// expected-error @below {{has '(', which is not a regular expression: missing ): (}}
module attributes {fsdp.options = {group = ["(: lr=1"]}} {
}

// -----

// A size has a unit that is known.
// expected-error @below {{attribute 'fsdp.options': 'memory-limit' = "6 parsecs" is not a size such as '6GiB'}}
module attributes {fsdp.options = {"memory-limit" = "6 parsecs"}} {
}

// -----

// Each architecture of a list is known.
// expected-error @below {{attribute 'fsdp.options': 'gpu-arch' = "sm_90,sm_75" has 'sm_75', which is none of sm_80|}}
module attributes {fsdp.options = {target = "cuda", "gpu-arch" = "sm_90,sm_75"}} {
}

// -----

// An option that the others leave without effect is refused.
// expected-error @below {{attribute 'fsdp.options': '--momentum' has no effect with '--optimizer=adamw'; it needs '--optimizer=sgd|rmsprop|lars|muon'}}
module attributes {fsdp.options = {momentum = 0.9 : f64}} {
}

// -----

// Nesterov's form needs a momentum, as in torch.optim.
// expected-error @below {{attribute 'fsdp.options': '--nesterov' needs '--momentum' above 0}}
module attributes {fsdp.options = {optimizer = "sgd", nesterov = true}} {
}
