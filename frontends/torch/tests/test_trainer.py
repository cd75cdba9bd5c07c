# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""fsdpc.Trainer beside transformers' own: the same arguments, samples and order. Needs the tool in $FSDPC or on PATH."""
import inspect
import re
from pathlib import Path

import numpy
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
pytest.importorskip("accelerate", reason="transformers' Trainer needs accelerate")
pytest.importorskip("onnx")

import fsdpc
from fsdpc import collating, training_arguments

LENGTH, WORDS = 12, 32


def model(**changes):
    torch.manual_seed(0)
    config = dict(vocab_size=WORDS, hidden_size=16, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=2,
                  max_position_embeddings=LENGTH)
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**{**config, **changes}))


def rows(count, seed=1):
    """Rows of several lengths, of which the second half is what the model learns."""
    random = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        length = int(torch.randint(4, LENGTH + 1, (), generator=random))
        ids = torch.randint(1, WORDS, (length,), generator=random)
        found.append({"input_ids": ids.tolist(), "labels": [-100] * (length // 2) + ids[length // 2:].tolist(), "text": "dropped"})
    return found


def collator(items):
    """Pads to the longest of a microbatch, as the collators of transformers do."""
    longest = max(len(item["input_ids"]) for item in items)
    pad = lambda item, name, value: item[name] + [value] * (longest - len(item[name]))
    return {"input_ids": torch.tensor([pad(item, "input_ids", 0) for item in items]),
            "attention_mask": torch.tensor([[1] * len(item["input_ids"]) + [0] * (longest - len(item["input_ids"])) for item in items]),
            "labels": torch.tensor([pad(item, "labels", -100) for item in items])}


class Ends(transformers.TrainerCallback):
    """Keeps a weight of the model as it is at the end, and counts the checkpoints."""
    saved = 0

    def on_save(self, args, state, control, **_):
        self.saved += 1

    def on_train_end(self, args, state, control, model=None, **_):
        self.weight = model.lm_head.weight.clone()


class Events(transformers.TrainerCallback):
    """Records what is logged and how often each event is called."""

    def __init__(self, stops_at=None):
        self.logs, self.evaluations, self.calls, self.stops_at = [], [], {}, stops_at

    def on_log(self, args, state, control, logs=None, **_):
        self.logs.append(logs)

    def on_evaluate(self, args, state, control, metrics=None, **_):
        self.evaluations.append(metrics["eval_loss"])

    def on_step_end(self, args, state, control, **_):
        if self.stops_at is not None and state.global_step >= self.stops_at:
            control.should_training_stop = True

    def __getattribute__(self, name):
        if name.startswith("on_"):
            calls = object.__getattribute__(self, "calls")
            calls[name] = calls.get(name, 0) + 1
        return object.__getattribute__(self, name)


def arguments(folder, **changes):
    return transformers.TrainingArguments(**{**dict(
        output_dir=str(folder), per_device_train_batch_size=2, gradient_accumulation_steps=2, num_train_epochs=2, learning_rate=1e-2,
        warmup_steps=2, weight_decay=0.1, logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True, use_cpu=True,
        logging_nan_inf_filter=False, seed=3), **changes})


def both(tmp_path, data, make=model, **changes):
    """Trains by transformers and by fsdpc. Returns the events and the model of each."""
    found = []
    for name, kind in (("theirs", transformers.Trainer), ("ours", fsdpc.Trainer)):
        events, trained = Events(), make()
        kind(trained, arguments(tmp_path / name, **changes), train_dataset=data, data_collator=collator, callbacks=[events]).train()
        found.append((events, trained))
    return found


def losses(events):
    return [logs["loss"] for logs in events.logs if "loss" in logs]


def expect_same(theirs, ours):
    assert losses(ours[0]) == pytest.approx(losses(theirs[0]), rel=1e-4)
    for key in ("learning_rate", "grad_norm", "epoch"):
        assert [float(logs[key]) for logs in ours[0].logs if key in logs] == pytest.approx(
            [float(logs[key]) for logs in theirs[0].logs if key in logs], rel=2e-3), key
    expected = theirs[1].state_dict()
    for name, value in ours[1].state_dict().items():
        assert torch.allclose(value, expected[name], atol=2e-4), name


def test_it_trains_as_the_trainer_of_transformers(tmp_path):
    # 22 samples: an epoch has six steps, of which the last has one microbatch of two samples.
    theirs, ours = both(tmp_path, rows(22))
    assert len(losses(ours[0])) == 12
    expect_same(theirs, ours)
    for event in ("on_train_begin", "on_epoch_begin", "on_epoch_end", "on_step_begin", "on_step_end", "on_log", "on_train_end"):
        assert ours[0].calls[event] == theirs[0].calls[event], event


def test_a_microbatch_that_is_not_full_counts_its_targets(tmp_path):
    expect_same(*both(tmp_path, rows(21), lr_scheduler_type="cosine", num_train_epochs=1))


def test_datasets_and_steps(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_list(rows(20))
    theirs, ours = both(tmp_path, data, max_steps=7, lr_scheduler_type="constant_with_warmup", data_seed=5, max_grad_norm=0)
    assert len(losses(ours[0])) == 7
    expect_same(theirs, ours)


def test_it_evaluates_and_keeps_the_best(tmp_path):
    events, trained = Events(), model()
    trainer = fsdpc.Trainer(trained, arguments(tmp_path, num_train_epochs=3, eval_strategy="epoch", save_strategy="epoch", save_total_limit=1,
                                               load_best_model_at_end=True, learning_rate=0.1, logging_steps=4),
                            train_dataset=rows(16), eval_dataset=rows(7, seed=2), data_collator=collator, callbacks=[events])
    trainer.train()
    assert len(events.evaluations) == 3 and len(losses(events)) == 3
    assert trainer.state.best_metric == min(events.evaluations)
    assert events.calls["on_save"] >= 1
    assert [path.name for path in (tmp_path / "checkpoints").glob("step-*")] == ["step-0000012"]
    assert trainer.evaluate()["eval_loss"] == pytest.approx(min(events.evaluations), rel=1e-6)
    batch = {name: value for name, value in collator(rows(7, seed=2)).items()}
    with torch.no_grad():
        assert float(trained.eval()(**batch).loss) == pytest.approx(min(events.evaluations), rel=1e-5)


def test_a_callback_ends_the_training(tmp_path):
    trained, data = model(), rows(16)
    events = Events(stops_at=5)
    trainer = fsdpc.Trainer(trained, arguments(tmp_path, max_steps=4000, save_strategy="steps", save_steps=5000), train_dataset=data,
                            data_collator=collator, callbacks=[events])
    before = trained.lm_head.weight.clone()
    done = trainer.train()
    assert 5 <= done.global_step < 4000 and events.calls["on_train_end"] == 1
    assert not torch.equal(before, trained.lm_head.weight)


def test_callbacks_see_the_last_checkpoint_and_the_trained_model(tmp_path):
    trained, ends = model(), Ends()
    fsdpc.Trainer(trained, arguments(tmp_path, max_steps=3, save_strategy="steps", save_steps=100), train_dataset=rows(16),
                  data_collator=collator, callbacks=[ends]).train()
    assert ends.saved == 1 and torch.equal(ends.weight, trained.lm_head.weight) and not torch.equal(ends.weight, model().lm_head.weight)


def test_it_resumes(tmp_path):
    data, whole = rows(16), model()
    fsdpc.Trainer(whole, arguments(tmp_path / "whole"), train_dataset=data, data_collator=collator).train()
    parts = model()
    for events in (Events(stops_at=3), Events()):
        fsdpc.Trainer(model(), arguments(tmp_path / "parts", save_strategy="steps", save_steps=2), train_dataset=data, data_collator=collator,
                      callbacks=[events]).train(resume_from_checkpoint=True)
    fsdpc.load(parts, tmp_path / "parts/trained.safetensors")
    for name, value in whole.state_dict().items():
        assert torch.equal(value, parts.state_dict()[name]), name


def test_adapters_of_peft(tmp_path):
    peft = pytest.importorskip("peft")
    make = lambda: peft.get_peft_model(model(), peft.LoraConfig(r=2, target_modules=["q_proj", "v_proj"], init_lora_weights=True))
    torch.manual_seed(0)
    theirs, ours = both(tmp_path, rows(16), make)
    expect_same(theirs, ours)
    checkpointed = fsdpc.Trainer(make(), arguments(tmp_path / "saved", save_strategy="epoch"), train_dataset=rows(16), data_collator=collator)
    checkpointed.train()
    adapters = sum(value.numel() for name, value in ours[1].named_parameters() if "lora_" in name)
    file, = (tmp_path / "saved/checkpoints/step-0000008").glob("rank-*")
    assert file.stat().st_size < 3 * 4 * adapters + 4096
    checkpointed.save_model(tmp_path / "adapter")
    loaded = peft.PeftModel.from_pretrained(model(), tmp_path / "adapter")
    for name, value in checkpointed.model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name


def test_samples_without_targets_to_ignore_are_left_out(tmp_path):
    class Regression(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.a = torch.nn.Linear(3, 1)

        def forward(self, x, labels):
            return {"loss": (self.a(x) - labels).square().mean()}

    data = [{"x": torch.randn(3), "labels": torch.randn(1)} for _ in range(9)]
    with pytest.warns(fsdpc.ToolWarning, match="the last 1 samples of each epoch do not fill a step"):
        done = fsdpc.Trainer(Regression(), arguments(tmp_path), train_dataset=data).train()
    assert done.global_step == 4
    with pytest.raises(fsdpc.InputError, match="the 3 samples do not fill a step of 2 microbatches of 2 samples"):
        fsdpc.Trainer(Regression(), arguments(tmp_path), train_dataset=data[:3]).train()


@pytest.mark.parametrize("field, words", [
    (dict(label_smoothing_factor=0.1), "label_smoothing_factor=.*leave it at its default"), (dict(optim="adafactor"), "optim='adafactor'"),
    (dict(neftune_noise_alpha=5.0), "neftune_noise_alpha"), (dict(lr_scheduler_type="reduce_lr_on_plateau", eval_strategy="epoch"), "do not depend on its losses"),
    (dict(auto_find_batch_size=True), "auto_find_batch_size")])
def test_what_it_cannot_follow_is_refused_by_name(tmp_path, field, words):
    try:
        given = arguments(tmp_path, **field)
    except TypeError:
        pytest.skip(f"transformers {transformers.__version__} has no {next(iter(field))}")
    with pytest.raises(fsdpc.CommandLineError, match=words):
        fsdpc.Trainer(model(), given, train_dataset=rows(4))


@pytest.mark.parametrize("name, cure", [("compute_metrics", "return the metric from the model"), ("optimizers", "choose by TrainingArguments' optim"),
                                        ("compute_loss_func", "give 'loss'"), ("wrong", "no parameter 'wrong'")])
def test_parameters_that_it_lacks_are_refused_by_name(tmp_path, name, cure):
    with pytest.raises(fsdpc.CommandLineError, match=f"{name}.*{cure}|{cure}"):
        fsdpc.Trainer(model(), arguments(tmp_path), train_dataset=rows(4), **{name: (lambda *_: {}, None)})
    # Neither an array nor a tensor is true or false.
    with pytest.raises(fsdpc.CommandLineError, match=name):
        fsdpc.Trainer(model(), arguments(tmp_path), train_dataset=rows(4), **{name: (None, torch.zeros(2))})
    for value in (None, (None, None), [None, None]) if name != "wrong" else ():
        fsdpc.Trainer(model(), arguments(tmp_path), train_dataset=rows(4), **{name: value})


def test_methods_that_would_not_be_called_are_refused(tmp_path):
    class Mine(fsdpc.Trainer):
        def compute_loss(self, model, inputs):
            return model(**inputs).loss * 2

    with pytest.raises(fsdpc.CommandLineError, match="'Mine.compute_loss' would not be called"):
        Mine(model(), arguments(tmp_path), train_dataset=rows(4))
    with pytest.raises(fsdpc.CommandLineError, match="has no 'predict'; call the trained model"):
        fsdpc.Trainer(model(), arguments(tmp_path), train_dataset=rows(4)).predict(rows(4))


@pytest.mark.parametrize("half", ["bf16", "fp16"])
def test_halves_train(tmp_path, half):
    """The losses are near those of f32, and not the same."""
    found = {}
    for name in ("f32", half):
        events = Events()
        given = arguments(tmp_path / name, num_train_epochs=1)
        # transformers refuses fp16 on a CPU, where it has no autocast for it.
        setattr(given, half, name == half)
        trainer = fsdpc.Trainer(model(), given, train_dataset=rows(16), data_collator=collator)
        trainer.add_callback(events)
        trainer.train()
        found[name] = losses(events)
    assert found[half] == pytest.approx(found["f32"], rel=2e-2) and found[half] != found["f32"]


def test_callbacks_see_each_evaluation(tmp_path):
    """Evaluations come after their steps, with the state and the metrics that transformers gives."""
    seen = []

    class Watches(transformers.TrainerCallback):
        def on_evaluate(self, args, state, control, metrics=None, **_):
            seen.append((state.global_step, metrics["eval_loss"], metrics["epoch"]))

    trainer = fsdpc.Trainer(model(), arguments(tmp_path, eval_strategy="steps", eval_steps=2), train_dataset=rows(16), eval_dataset=rows(7, seed=2),
                            data_collator=collator)
    trainer.add_callback(Watches)
    trainer.train()
    assert [step for step, _, _ in seen] == [2, 4, 6, 8] and [epoch for _, _, epoch in seen] == [0.5, 1.0, 1.5, 2.0]
    assert [loss for _, loss, _ in seen] == [line["eval_loss"] for line in trainer.state.log_history if "eval_loss" in line]


def test_what_is_evaluated_is_one_dataset(tmp_path):
    with pytest.raises(fsdpc.CommandLineError, match="eval_strategy='steps', but fsdpc.Trainer has no eval_dataset"):
        fsdpc.Trainer(model(), arguments(tmp_path, eval_strategy="steps", eval_steps=1), train_dataset=rows(4))
    with pytest.raises(fsdpc.CommandLineError, match="eval_dataset is a dict"):
        fsdpc.Trainer(model(), arguments(tmp_path), train_dataset=rows(4), eval_dataset={"a": rows(4)})


def test_arguments_have_the_order_of_transformers():
    ours, theirs = (list(inspect.signature(kind).parameters) for kind in (fsdpc.Trainer, transformers.Trainer))
    assert ours[:6] == theirs[:6]


def test_every_field_is_known_or_refused(tmp_path):
    """The defaults of this version of transformers pass, and no table has a field twice."""
    training_arguments.refuse_others(transformers.TrainingArguments(output_dir=str(tmp_path)))
    assert not training_arguments.MAPPED.keys() & training_arguments.WITHOUT_EFFECT


def test_lengths_that_cannot_be_padded_are_refused(tmp_path):
    def bare(items):
        return {name: value for name, value in collator(items).items() if name != "attention_mask"}

    with pytest.raises(fsdpc.InputError, match="'input_ids' has samples of several shapes, up to .* no attention_mask to hide padding"):
        fsdpc.Trainer(model(), arguments(tmp_path), train_dataset=rows(8), data_collator=bare).train()
    with pytest.raises(fsdpc.InputError, match="gives a str for 'text', not a tensor"):
        fsdpc.Trainer(model(), arguments(tmp_path, remove_unused_columns=False), train_dataset=rows(8),
                      data_collator=lambda items: {**collator(items), "text": "x"}).train()


def test_integers_keep_their_values(tmp_path):
    wide = 2**40
    items = [{"x": torch.tensor([value])} for value in (1, wide, 3)]
    spool = collating.collate(items, [[0], [1], [2]], lambda items: {"x": torch.stack([item["x"] for item in items])}, folder=tmp_path,
                              workers=1, seed=0)
    shapes, pads = collating.padding([spool], [], 0)
    assert numpy.load(spool.write(tmp_path / "samples", shapes, pads)["x"]).tolist() == [[1], [wide], [3]]


def test_the_order_is_that_of_accelerate():
    epochs = collating.Epochs(samples=5, batch=2, per_step=2, seed=7, shuffles=True, drops_last=False, drops_step=False)
    assert epochs.steps == 2
    order = list(epochs.order(3))
    first, second = (torch.randperm(5, generator=torch.Generator().manual_seed(seed)).tolist() for seed in (7, 8))
    assert order == [first[:2], first[2:4], first[4:], [], second[:2], second[2:4]]


def test_the_page_has_every_field():
    page = (Path(__file__).resolve().parents[3] / "docs/trainer.md").read_text()
    assert dict(re.findall(r"^\| `(\w+)` \| (.*) \|$", page, re.MULTILINE)) == training_arguments.MAPPED
