#!/usr/bin/env python3
"""test_report.py - lockstep report: all points of the run are in the page, and nothing of it comes from elsewhere.

In headless Chromium, where it is installed, the page is drawn: every line has as many vertices as it has points, and
pointing at a chart shows values.  LOCKSTEP_REQUIRE_REFERENCES=1 lets no browser be missing.
"""
import json
import os
import re
import shutil
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), ".."))
import cli  # noqa: E402

STEPS = 12
ELSEWHERE = r"https?:|\bsrc\s*=|\bhref\s*=|url\(|@import|fetch\(|XMLHttpRequest|import\(|WebSocket|[\"'(]//"
POINT = """<script>
const svg = document.querySelector("svg"), box = svg.getBoundingClientRect();
svg.dispatchEvent(new PointerEvent("pointermove", {clientX: box.left + box.width / 2, clientY: box.top + 50}));
</script>"""


def train(folder, run, *args, **changes):
    cli.write_config(folder, run__dir=run, run__steps=STEPS, eval__every=4, log__trace=True, parallel__bucket_mb=0.02, **changes)
    cli.check_ok(cli.run(folder, "train", "c.json", *args))


def report(folder, *args):
    r = cli.run(folder, "report", *args)
    cli.check_ok(r)
    path = os.path.join(folder, r.stdout.strip())
    with open(path, encoding="utf-8") as f:
        return path, f.read()


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.S)[1])["runs"]


def lines_of(folder, run):
    return [json.loads(line) for line in cli.read(folder, run, "metrics.jsonl").decode().splitlines()]


def check_page(folder, page, dirs):
    cli.check(not re.search(ELSEWHERE, page), f"something comes from elsewhere: {re.findall(ELSEWHERE, page)}")
    runs = data_of(page)
    cli.equal([run["dir"] for run in runs], dirs, "runs")
    for run in runs:
        cli.equal(run["metrics"], lines_of(folder, run["dir"]), f"metrics of {run['dir']}")
        cli.equal(run["config"], json.loads(cli.read(folder, run["dir"], "config.json")), "config")
        cli.equal(run["summary"], json.loads(cli.read(folder, run["dir"], "summary.json")), "summary")
        want = [event for event in json.loads(cli.read(folder, run["dir"], "trace.json")) if event["ph"] == "X"]
        got, names = run["trace"]["spans"], run["trace"]["names"]
        cli.equal(sorted((s[0], s[1], names[s[2]], s[3], s[4], s[5]) for s in got),
                  sorted((e["pid"], e["tid"], e["name"], e["ts"], e["dur"], e["args"]["step"]) for e in want), "spans")


def dump(path):
    """The page as Chromium has drawn it; None without one."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        cli.skip("no chromium in PATH")
        cli.check(os.environ.get("LOCKSTEP_REQUIRE_REFERENCES") != "1", "a browser is required")
        return None
    r = subprocess.run([browser, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={path}.profile", "--dump-dom",
                        "file://" + path], capture_output=True, timeout=100)
    return r.stdout.decode(errors="replace")


def check_drawn(folder, path, dirs):
    with open(path, encoding="utf-8") as f:
        page = f.read()
    pointed = path.replace(".html", "-pointed.html")
    with open(pointed, "w", encoding="utf-8") as f:
        f.write(page.replace("</body>", POINT + "</body>"))
    dom = dump(pointed)
    if dom is None:
        return
    drawn = [(int(n), len(re.findall("[ML]", d))) for n, d in re.findall(r'<path data-points="(\d+)" d="([^"]*)"', dom)]
    steps = sum("loss" in line for run in dirs for line in lines_of(folder, run))
    others = sum("val_loss" in line for run in dirs for line in lines_of(folder, run))
    series = 1 + 1 + 1 + 3 + 1 + 7  # loss, lr, speed, times, norm, memory; validation besides
    cli.equal(sum(n for n, _ in drawn), series * steps + others, "points drawn")
    cli.check(all(n == vertices for n, vertices in drawn), f"vertices of each line: {drawn}")
    spans = len(re.findall(r"data-span=", dom))
    cli.check(spans >= 4 * len(dirs), f"{spans} spans in the time lines")
    tip = re.search(r'id="tip"[^>]*>(.*?)</div>', dom)
    cli.check(tip and "step " in tip[1] and "training: " in tip[1], f"pointing shows values: {tip and tip[1]}")
    cli.check("NaN" not in dom and "undefined" not in re.sub(r"<script.*?</script>", "", dom, flags=re.S), "no odd numbers")


def check_damage(folder):
    cli.row("cut")
    shutil.copytree(os.path.join(folder, "one"), os.path.join(folder, "cut"))
    for name in ("metrics.jsonl", "trace.json"):
        os.truncate(os.path.join(folder, "cut", name), os.path.getsize(os.path.join(folder, "cut", name)) - 30)
    os.remove(os.path.join(folder, "cut", "summary.json"))
    run = data_of(report(folder, "cut")[1])[0]
    cli.equal(run["metrics"], lines_of(folder, "one")[:-1], "all whole lines")
    cli.check(run["summary"] is None and run["trace"]["spans"], "what is there")
    cli.row("damaged")
    with open(os.path.join(folder, "cut", "metrics.jsonl"), "r+") as f:
        f.write("x")
    cli.check_error(cli.run(folder, "report", "cut"), 1, "cut", "metrics.jsonl", "line 1")
    cli.row("no metrics yet")
    open(os.path.join(folder, "cut", "metrics.jsonl"), "w").close()
    os.remove(os.path.join(folder, "cut", "trace.json"))
    cli.equal(data_of(report(folder, "cut")[1])[0]["metrics"], [], "metrics")
    dom = dump(os.path.join(folder, "cut", "report.html"))
    cli.check(dom is None or ("not finished" in dom and "NaN" not in dom), "a page without points")
    cli.row("no run")
    cli.check_error(cli.run(folder, "report", "nowhere"), 2, "nowhere", "no run directory")
    cli.row("no place")
    cli.check_error(cli.run(folder, "report", "one", "-o", "no/such/page.html"), 1, "no/such/page.html")
    for row, args in (("none", []), ("three", ["a", "b", "c"]), ("option", ["one", "--what"]), ("no value", ["one", "-o"])):
        cli.row("usage: " + row)
        cli.check_error(cli.run(folder, "report", *args), 2, "report")


def main():
    with cli.workspace() as folder:
        train(folder, "one", "--nproc", "2")
        train(folder, "</script><b>two", optim__lr=3e-3)
        for row, dirs, args in (("one run", ["one"], []), ("two runs", ["one", "</script><b>two"], ["-o", "both.html"])):
            cli.row(row)
            path, page = report(folder, *dirs, *args)
            check_page(folder, page, dirs)
            check_drawn(folder, path, dirs)
        check_damage(folder)
    cli.finish()


main()
