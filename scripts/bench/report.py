"""Turns measurements into rows, floors and verdicts, and prints them."""
import statistics

import cases


def summarise(case, results):
    """Rows {name, side, median, min, max, ...} in the order of the case; `results` holds a list of measurements for
    each variant that was measured."""
    rows = []
    for variant in case.variants:
        runs = results.get(variant, [])
        if not runs:
            continue
        milliseconds = [1e3 * run.step_seconds for run in runs]
        rows.append({"name": variant.name, "side": variant.side, "ranks": variant.ranks, "threads": variant.threads,
                     "rounds_ms": milliseconds, "median_ms": statistics.median(milliseconds),
                     "min_ms": min(milliseconds), "max_ms": max(milliseconds),
                     "tokens_per_second": case.model.tokens / statistics.median(milliseconds) * 1e3,
                     "others": max(run.others for run in runs), "stolen": max(run.stolen for run in runs)})
    theirs = [row["median_ms"] for row in rows if row["side"] == "torch"]
    for row in rows:
        row["times_best_torch"] = min(theirs) / row["median_ms"] if theirs else None
    return rows


def floor_of(case, limits):
    """Milliseconds that a step needs at the limits of most threads, or None: the arithmetic at the peak, then the
    optimiser's traffic at the bandwidth. In bf16 the faster instructions count: values may be widened to f32."""
    if not isinstance(case.model, cases.Gpt) or not limits:
        return None
    most = max(limits["threads"], key=lambda entry: entry["threads"])
    peaks = [most["f32_gflops"] or 0] + ([most["bf16_gflops"] or 0] if case.precision == "bf16" else [])
    peak = max(peaks)
    if not peak:
        return None
    arithmetic = case.model.flops / peak * 1e-6
    optimizer = case.model.optimizer_bytes / most["stream_gb_per_second"] * 1e-6
    return {"gflop": case.model.flops * 1e-9, "peak_gflops": peak, "arithmetic_ms": arithmetic,
            "optimizer_ms": optimizer, "total_ms": arithmetic + optimizer}


def judge(case, results):
    """[{text, ratio, bound, met}]; ratio and met are None where a side was not measured."""
    medians = {variant: statistics.median(run.step_seconds for run in runs)
               for variant, runs in results.items() if runs}
    verdicts = []
    for target in case.targets:
        of = [seconds for variant, seconds in medians.items() if target.of(variant)]
        against = [seconds for variant, seconds in medians.items() if target.against(variant)]
        bound = f">= {target.at_least:g}x" if target.at_least else f"<= {target.at_most:g}x"
        ratio = min(of) / min(against) if of and against else None
        met = None if ratio is None else target.at_least <= ratio <= target.at_most
        verdicts.append({"text": target.text, "ratio": ratio, "bound": bound, "met": met})
    return verdicts


def print_machine(machine):
    print(f"{machine['processor']}, {machine['cores']} cores")
    if machine["amx"]:
        print("  AMX is here: bf16 can go beyond the limit of the vector units")
    if machine["vendor"] == "AuthenticAMD":
        print("  PyTorch's f32 products run on MKL, which is slow on this vendor's processors; compare bf16 too")


def print_limits(limits):
    for entry in limits["threads"]:
        f32 = f"{entry['f32_gflops']:.0f} GFLOP/s f32 ({entry['f32']})" if entry["f32_gflops"] else "f32 not known"
        bf16 = f"{entry['bf16_gflops']:.0f} GFLOP/s bf16" if entry["bf16_gflops"] else "no bf16 instructions"
        print(f"  limit of {entry['threads']} thread{'s' if entry['threads'] > 1 else ''}: {f32}, {bf16}, "
              f"{entry['read_gb_per_second']:.0f} GB/s read, {entry['stream_gb_per_second']:.0f} GB/s streamed "
              f"(others {limits['others']:.0%}, stolen {limits['stolen']:.0%})")


def print_case(case, rows, limits, floor, verdicts):
    unit = "samples/s" if case.name == "seed" else "tokens/s"
    header = ["variant", "ms/step", "min", "max", unit, "x best PyTorch", "of limit", "others", "stolen"]
    table = [header]
    for row in rows:
        digits = 1 if row["median_ms"] >= 10 else 4
        ratio = row["times_best_torch"]
        table.append([row["name"], *(f"{row[key]:.{digits}f}" for key in ("median_ms", "min_ms", "max_ms")),
                      f"{row['tokens_per_second']:,.0f}", f"{ratio:.2f}" if ratio else "-",
                      f"{floor['total_ms'] / row['median_ms']:.0%}" if floor else "-",
                      f"{row['others']:.0%}", f"{row['stolen']:.0%}"])
    widths = [max(len(line[column]) for line in table) for column in range(len(header))]
    print(f"\n{case.name}")
    for line in table:
        print("  " + "  ".join(cell.rjust(width) if column else cell.ljust(width)
                               for column, (cell, width) in enumerate(zip(line, widths))))
    if limits:
        print_limits(limits)
    if floor:
        print(f"  limit of a step: {floor['gflop']:.0f} GFLOP at {floor['peak_gflops']:.0f} GFLOP/s "
              f"{floor['arithmetic_ms']:.0f} ms + optimiser's memory {floor['optimizer_ms']:.1f} ms "
              f"= {floor['total_ms']:.0f} ms")
    for verdict in verdicts:
        outcome = {True: "met", False: "MISSED", None: "not measured"}[verdict["met"]]
        ratio = "-" if verdict["ratio"] is None else f"{verdict['ratio']:.2f}x"
        print(f"  {outcome}: {verdict['text']}: {ratio} (target {verdict['bound']})")
