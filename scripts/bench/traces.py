"""Reading the traces of ranks: spans by track, times in microseconds."""
import json
import pathlib


def read(folder, rank):
    """All events of a rank's file."""
    return json.loads((pathlib.Path(folder) / f"trace/rank-{rank:05d}.json").read_text())["traceEvents"]


def read_aligned(folder, ranks):
    """The events of every rank, from one moment on. For ranks of one machine, which have one clock: their own origins
    are the ends of a barrier, which differ by milliseconds when cores are busy."""
    files = [json.loads((pathlib.Path(folder) / f"trace/rank-{rank:05d}.json").read_text()) for rank in range(ranks)]
    first = min(file["otherData"]["origin_ns"] for file in files)
    for file in files:
        for event in file["traceEvents"]:
            if "ts" in event:
                event["ts"] += (file["otherData"]["origin_ns"] - first) / 1e3
    return [file["traceEvents"] for file in files]


def spans(events, track):
    """The spans of a track ("compute", "communication", "waiting") in the order of their begins."""
    threads = {event["tid"] for event in events
               if event.get("name") == "thread_name" and event["args"]["name"] == track}
    return sorted((event for event in events if event.get("ph") == "X" and event["tid"] in threads),
                  key=lambda event: event["ts"])


def intervals(events):
    """The times that events cover, which may overlap, as disjoint (begin, end) in rising order."""
    merged = []
    for event in sorted(events, key=lambda event: event["ts"]):
        end = event["ts"] + event["dur"]
        if merged and event["ts"] <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((event["ts"], end))
    return merged


def union(events):
    """Microseconds that events cover."""
    return sum(end - begin for begin, end in intervals(events))


def shared(some, others):
    """Microseconds that both lists of disjoint intervals cover."""
    total, i, j = 0.0, 0, 0
    while i < len(some) and j < len(others):
        total += max(0.0, min(some[i][1], others[j][1]) - max(some[i][0], others[j][0]))
        if some[i][1] < others[j][1]:
            i += 1
        else:
            j += 1
    return total
