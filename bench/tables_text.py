"""What the other table modules write sentences and cells with."""

import textwrap

WIDTH = 118


def prose(*sentences):
    """Lines of a paragraph: each sentence begins a line, none is longer than WIDTH."""
    return [line for sentence in sentences
            for line in textwrap.wrap(sentence, WIDTH, break_long_words=False, break_on_hyphens=False)]


def item(*sentences):
    """Lines of a list item."""
    return textwrap.wrap(" ".join(sentences), WIDTH, break_long_words=False, break_on_hyphens=False,
                         initial_indent="- ", subsequent_indent="  ")


def all_of(words):
    """"a", "a and b", "a, b and c"."""
    words = list(words)
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def day(result):
    """The day of a measurement, or nothing where the record has none."""
    rows = result.get("rows")
    dates = [row["date"] for row in rows if isinstance(row, dict) and row.get("date")] if isinstance(rows, list) else []
    return (result.get("date") or max(dates, default=""))[:10]


def on_day(result):
    return f", {day(result)}" if day(result) else ""


def days(results):
    """The days of several measurements: "2026-11-25", "2026-11-22 to 2026-11-25", and whether some have none."""
    found = sorted({day(result) for result in results})
    known = [date for date in found if date]
    text = known[0] if len(known) == 1 else f"{known[0]} to {known[-1]}" if known else ""
    if "" in found:
        text += ", some dates not recorded" if text else "not recorded"
    return text


def processes(results):
    """"1 process", "5 processes", "1 to 5 processes": of how many a figure of these records is the median."""
    found = sorted({result.get("processes", 1) for result in results})
    count = f"{found[0]} to {found[-1]}" if len(found) > 1 else f"{found[0]}" if found else "no"
    return f"{count} process{'' if found == [1] else 'es'}"


def mean_and_worst(result):
    return f"{result['geometric_mean']:.2f} ({result['least_ratio']:.2f})" if result else ""


def threads(result):
    return f"{result['threads']} thread{'' if result['threads'] == 1 else 's'}"

