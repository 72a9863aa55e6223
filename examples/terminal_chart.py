"""A small line chart for the terminal."""


def show_curve(title: str, values: list[float], height: int = 8, width: int = 60) -> None:
    """Prints `values` from left to right; more than `width` of them are averaged in groups."""
    columns = _average_to(values, width)
    low, high = min(columns), max(columns)
    step = (high - low) / (height - 1) or 1.0
    rows = [round((value - low) / step) for value in columns]
    print(f"\n{title}")
    for row in reversed(range(height)):
        line = "".join("●" if own == row else " " for own in rows)
        print(f"{low + row * step:9.2f} ┤{line.rstrip()}")
    print(" " * 10 + "└" + "─" * len(columns) + f" {len(values)} steps\n", flush=True)


def _average_to(values: list[float], width: int) -> list[float]:
    if len(values) <= width:
        return values
    edges = [round(i * len(values) / width) for i in range(width + 1)]
    return [sum(values[a:b]) / (b - a) for a, b in zip(edges, edges[1:])]
