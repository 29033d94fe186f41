"""Import and export of breadcrumbs as JSON lines on the command line: how fast, and in how much memory.

python bench/transfer.py                   100,000 breadcrumbs, under a minute
python bench/transfer.py --rows 1000000    the million that it is made for

The import is killed once in its middle and started again, as the export is.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil
from report import title

COMMAND = [str(Path(sys.executable).with_name("stigmergy")), "breadcrumbs"]


def write_lines(path: Path, rows: int) -> None:
    with path.open("w") as file:
        for n in range(rows):
            context = {"n": n, "text": f"some words about number {n}", "nested": {"a": [1, 2, 3]}}
            tags = ["bench", f"session:{n % 5_000}", f"tenth:{n % 10}"]
            file.write(
                json.dumps({"schema_name": f"note.v{n % 3}", "title": f"note {n}", "tags": tags, "context": context}) + "\n"
            )


def measured(folder: Path, *arguments: str, kill_after: float | None = None) -> float:
    """Seconds that a command takes; it is killed after some of them when that is said."""
    began = time.perf_counter()
    with subprocess.Popen([*COMMAND, *arguments], cwd=folder, stdout=subprocess.DEVNULL) as process:
        seen = psutil.Process(process.pid)
        most = cpu = 0.0
        while process.poll() is None:
            try:
                most = max(most, seen.memory_info().rss / 1024 / 1024)
                cpu = sum(seen.cpu_times()[:2])
            except psutil.NoSuchProcess:
                break
            if kill_after is not None and time.perf_counter() - began > kill_after:
                process.kill()
            time.sleep(0.05)
    took = time.perf_counter() - began
    assert kill_after is not None or process.returncode == 0
    ended = "killed after" if process.returncode else "done in"
    print(f"{' '.join(arguments):<58} {ended} {took:>7.1f} s, {cpu:.1f} s of CPU, {most:,.0f} MB at the most", flush=True)
    return took


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    rows = parser.parse_args().rows
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_lines(folder / "in.jsonl", rows)
        title("JSON lines", rows=f"{rows:,}", size=f"{(folder / 'in.jsonl').stat().st_size / 1024 / 1024:,.0f} MB")
        subprocess.run([COMMAND[0], "migrate"], cwd=folder, check=True, stdout=subprocess.DEVNULL)
        took = measured(folder, "import", "in.jsonl", kill_after=rows / 20_000)
        took += measured(folder, "import", "in.jsonl")
        print(f"    {rows / took:,.0f} lines a second in all")
        took = measured(folder, "export", "out.jsonl", kill_after=2 + rows / 100_000)
        took += measured(folder, "export", "out.jsonl")
        print(f"    {rows / took:,.0f} lines a second in all")
        with (folder / "out.jsonl").open("rb") as file:
            written = sum(1 for _ in file)
        print(f"{'exported, each once':<58} {written:,} of {rows:,}  ({'kept' if written == rows else 'MISSED'})")
        sys.exit(0 if written == rows else 1)


if __name__ == "__main__":
    main()
