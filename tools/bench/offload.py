"""What it costs to keep the optimizer's states on disk (--offload=optimizer): the time of a step and the resident set, beside those
of the same model with its states in memory. The file lies where programs put it by default: in $TMPDIR, or /tmp."""
from report import Report
from workbench import MIB, Shape, Workbench

MODEL = Shape("L6,D384,H6,T256,V512", 4)      # 11 M parameters


def offload(bench: Workbench, report: Report, quick: bool) -> None:
    report.title(f"Optimizer states in memory and on disk, {MODEL}, {bench.ranks} ranks")
    rows, figures = [], {}
    for where, flags in (("in memory", []), ("on disk", ["--offload=optimizer"])):
        run = bench.train(MODEL, "f32", *flags, name=where.replace(" ", "-"))
        plan = run.header["plan"]
        figures[where] = {"step_ms": run.median("step_ms"), "peak_rss_mib": run.peak_mib, "plan": plan}
        rows.append([where, f"{run.median('step_ms'):.0f}", f"{run.median('step_ms') / figures['in memory']['step_ms']:.3f}",
                     f"{run.peak_mib:.0f}", f"{plan['total'] / MIB:.0f}", f"{plan.get('on disk', 0) / MIB:.0f}"])
    report.keep("offload", "figures", figures)
    report.table(["states", "ms per step", "÷ in memory", "peak RSS MiB", "plan MiB", "on disk MiB"], rows)
