# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The first five minutes on a GPU: a little of everything, so that the exit code alone says what to run next."""
import correctness
import speed
from correctness import Place
from results import Results

MINUTES = 5
TINY = ("linears", "gpt")                     # products and updates alone, and a transformer
TINY_SECONDS = 30
# What a model takes at most, its start included, which initializes its weights on the host.
SECONDS = {"gpt-124m": 45, "gpt-1.5b": 90}
DECIDING = ("losses f32", "losses bf16", "speed")


def tiny(place: Place) -> list[dict]:
    """Returns the programs of the two models above, or of the two smallest if the pack lacks one."""
    names = list(dict.fromkeys(program["model"] for program, _ in correctness.cases(place)))
    chosen = [name for name in TINY if name in names] if set(TINY) <= set(names) else names[:2]
    return [program for name in chosen for program in place.pack["parity"] if program["model"] == name]


def decided(results: Results) -> bool:
    """Returns true if nothing that says whether the programs are right has failed, and some of each kind has passed."""
    passed = {result.part for result in results.of(*DECIDING) if result.status == "pass"}
    return passed == set(DECIDING) and not any(result.status == "fail" for result in results.of(*DECIDING))


def check(place: Place, results: Results, gpu: str) -> None:
    results.check("ceilings", "first", lambda: speed.ceilings(place, results, seconds=30))
    for program in tiny(place):
        correctness.parity(place, results, program, 1, seconds=TINY_SECONDS)
    benches = [bench for bench in place.pack["bench"] if bench["name"] in SECONDS]
    for bench in benches:
        kinds = {"": "fsdpc", ".zipf": "fsdpc, ids as in text"} if bench is benches[0] else {"": "fsdpc"}
        for kind, what in kinds.items():      # only ids as in text have something to learn
            results.check("speed", f"{bench['name']} {what}", lambda: speed.ours(place, results, bench, gpu, kind=kind, seconds=SECONDS[bench["name"]]))
    # On the same warm machine, and in the order of what is missed most if the time is up.
    for bench in benches[:1]:
        name = bench["name"]
        results.check("kernels", name, lambda: speed.kernels(place, results, bench, seconds=30))
        results.check("streams", name, lambda: speed.streams(place, results, bench))
        results.check("products", name, lambda: speed.products(place, results, bench, gpu, seconds=45))
        results.check("peer", f"{name} FSDP2 compiled", lambda: speed.peer(place, results, bench, gpu, "--compile", seconds=75))
        results.check("goal", name, lambda: speed.goals(results, bench))
    for bench in benches[1:]:
        results.check("kernels", bench["name"], lambda: speed.kernels(place, results, bench, seconds=60))
        results.check("streams", bench["name"], lambda: speed.streams(place, results, bench))
        results.check("peer", f"{bench['name']} FSDP2 compiled", lambda: speed.peer(place, results, bench, gpu, "--compile", seconds=120))
        results.check("goal", bench["name"], lambda: speed.goals(results, bench))
