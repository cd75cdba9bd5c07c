# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Narrows down why losses are wrong: memcheck, and the two smallest failures in other ways that tell causes apart."""
import correctness
import speed
from correctness import PARITIES, Place
from results import Failed, Results

MOST_FAILURES = 2                             # more would take the time of everything else
SECONDS = 45                                  # of each way
# Of a model that is timed.
BENCH_WAYS = (["--no-graph"], ["--deterministic"])


def ways_of(place: Place, results: Results, program: dict, ranks: int) -> dict:
    """Returns the ways in which a program is run, those first that tell most apart."""
    parity = PARITIES[program["dtype"]]

    def way(*flags: str, file: str = program["file"], on: int = ranks, environment: dict | None = None):
        return lambda: parity(place, results, {**program, "file": file}, on, *flags, environment=environment, seconds=SECONDS)
    ways = {"no graph": way("--no-graph"), "blocking launches": way("--no-graph", environment={"CUDA_LAUNCH_BLOCKING": "1"})}
    if ranks > 1:
        ways["one rank"] = way(on=1)
    ways |= {name: way(file=file) for name, file in program.get("variants", {}).items()}
    ways["--deterministic"] = way("--deterministic")
    for tool in ("memcheck", "synccheck"):
        ways[tool] = lambda tool=tool: correctness.sanitizer(place, results, program, tool)
    return ways


def tried(way):
    """Runs one way → (detail, figures). A wrong result is a failure that says so."""
    try:
        detail, figures = way()
    except Failed as failed:
        raise Failed(f"wrong: {failed}", failed.output, failed.figures) from None
    return f"right: {detail}", figures


def failures(place: Place, results: Results) -> list[tuple[dict, int]]:
    """Returns the smallest programs whose losses failed, and runs them in that order if none has run yet."""
    known = {(r.part, r.name): r.status for r in results.of("losses f32", "losses bf16")}
    found = []
    for program, ranks in correctness.cases(place):
        status = known.get(correctness.name_of(program, ranks)) if known else correctness.parity(place, results, program, ranks, seconds=SECONDS)
        if status == "fail":
            found.append((program, ranks))
        if len(found) == MOST_FAILURES:
            break
    return found


def model_that_is_timed(place: Place, results: Results, gpu: str) -> None:
    """Tries the smallest model that is timed, if the small ones are right."""
    for bench in place.pack["bench"][:1]:
        for flags in BENCH_WAYS:
            results.check("bisection", " ".join([bench["name"], *flags]),
                          lambda: tried(lambda: speed.ours(place, results, bench, gpu, *flags, seconds=SECONDS)))


def check(place: Place, results: Results, gpu: str) -> None:
    if not results.of("sanitizer"):
        correctness.check_sanitizers(place, results, "memcheck")
    found = failures(place, results)
    for program, ranks in found:
        for name, way in ways_of(place, results, program, ranks).items():
            results.check("bisection", f"{program['model']} {program['dtype']}, {ranks} ranks: {name}", lambda: tried(way))
    timed = results.of("speed")
    if not found and (not timed or any(result.status == "fail" for result in timed)):
        model_that_is_timed(place, results, gpu)
