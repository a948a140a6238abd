"""The report as one HTML page without scripts or external resources, with dark mode, phone and print layouts."""

import html
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from budgetalloc.beliefs.group_kinds import FAILED, KINDS, MIXED, PASSED, SINGLE, TIED
from budgetalloc.beliefs.ids import Id
from budgetalloc.report import plots
from budgetalloc.report.findings import (
    LABELS,
    MEANING,
    doubts_sentences,
    forecast_sentences,
    headline,
    named,
    notes_sentences,
    percent,
    prompts_sentences,
    replay_sentences,
    shortened,
    singles_sentence,
    size_sentence,
    tokens_sentence,
    worst,
)
from budgetalloc.report.forecast import share
from budgetalloc.report.policy_replays import LIMITS, Replayed
from budgetalloc.report.summary import Report
from budgetalloc.report.text import cells_of
from budgetalloc.report.waste import Waste

_IN = {
    MIXED: "of rollouts in mixed groups",
    FAILED: "of rollouts in groups that all failed",
    PASSED: "of rollouts in groups that all passed",
    TIED: "of rollouts in groups of equal rewards",
    SINGLE: "single rollouts",
}
_RUNS = 60  # of steps in a plot
# Colours of Okabe and Ito, which colour-blind readers tell apart; each is named by text as well.
_STYLE = """
:root { color-scheme: light dark; --page: #fdfdfc; --text: #1d1f21; --soft: #5c6166; --rule: #d9dcdf;
  --mixed: #0072b2; --all_fail: #d55e00; --all_pass: #009e73; --tied: #cc79a7; --single: #56b4e9; }
@media (prefers-color-scheme: dark) { :root { --page: #16181a; --text: #e8e9ea; --soft: #a4abb1; --rule: #373c40;
  --mixed: #4aa8e0; --all_fail: #f08a3c; --all_pass: #2cc295; --tied: #e59cc6; --single: #8fd0f5; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.2rem 1rem 3rem; max-width: 56rem; background: var(--page); color: var(--text);
  font: 16px/1.5 system-ui, "Segoe UI", Roboto, "Open Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.15rem; margin: 0; color: var(--soft); font-weight: 600; }
h2 { font-size: 1.25rem; margin: 2.4rem 0 .6rem; border-top: 1px solid var(--rule); padding-top: 1rem; }
h3 { font-size: 1rem; margin: 0 0 .3rem; }
p, ul { margin: .5rem 0; max-width: 46rem; }
ul { padding-left: 1.2rem; }
.first { font-size: 1.45rem; line-height: 1.35; font-weight: 600; margin: .3rem 0 .8rem; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: .7rem; margin: 1rem 0; }
.card { border: 1px solid var(--rule); border-left: .35rem solid var(--edge, var(--rule)); border-radius: .35rem;
  padding: .5rem .8rem; }
.card b { display: block; font-size: 1.5rem; line-height: 1.25; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); gap: 1.4rem;
  align-items: start; }
figure, .beside { margin: .6rem 0; min-width: 0; break-inside: avoid; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--text); font-size: 12px; }
.grid { stroke: var(--rule); stroke-width: 1; } .axis { stroke: var(--soft); stroke-width: 1; }
.diagonal { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4; }
.point { fill: var(--mixed); } .span { stroke: var(--mixed); stroke-width: 3; }
.line { fill: none; stroke-width: 2.5; } .one { stroke: var(--mixed); } .other { stroke: var(--all_fail); }
.mixed { fill: var(--mixed); } .all_fail { fill: var(--all_fail); } .all_pass { fill: var(--all_pass); }
.tied { fill: var(--tied); } .single { fill: var(--single); }
.course { stroke: var(--mixed); fill: none; }
.key { display: inline-block; width: .8rem; height: .8rem; border-radius: .15rem; margin-right: .35rem;
  background: var(--edge); vertical-align: -.05rem; print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1rem; list-style: none; padding: 0; font-size: .9rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .55rem; border-bottom: 1px solid var(--rule); text-align: right; vertical-align: top; }
td, th { overflow-wrap: normal; } td { white-space: nowrap; } th { color: var(--soft); font-weight: 600; }
td.name, th.name { text-align: left; } td.name { white-space: normal; overflow-wrap: anywhere; }
.beside td.name { min-width: 9rem; }
.limits { border-left: .3rem solid var(--all_fail); padding: .1rem .9rem; }
@media print { body { font-size: 11pt; max-width: none; } h2 { break-after: avoid; } }
"""


def as_html(report: Report) -> str:
    """The report as one self-contained HTML page.

    All text of the log is escaped, and the page's content security policy forbids scripts and loading, so that the text
    of a prompt cannot be executed.
    """
    waste = report.waste
    body = [
        f"<h1>{escaped(report.name)}</h1>",
        f'<p class="first">{escaped(headline(waste, report.missing))}</p>',
        f'<p class="soft">{escaped(size_sentence(waste))} Read as {escaped(report.kind)}.</p>',
        *(f'<p class="limits">{escaped(text)}</p>' for text in doubts_sentences(report.notes, report.doubts)),
        *paragraphs([tokens_sentence(waste), singles_sentence(waste)]),
        _cards(waste),
        "<h2>Where the rollouts went</h2>",
        _time(waste),
        "<h2>Prompts</h2>",
        *paragraphs(prompts_sentences(waste)),
        _prompts(waste, report.texts),
        "<h2>What could be predicted?</h2>",
        *paragraphs(forecast_sentences(waste)),
        _forecast(waste),
        "<h2>What other policies would have drawn</h2>",
    ]
    if report.replayed is None:
        body.append(f"<p>Not replayed: {escaped(report.why_not.rstrip('.'))}.</p>")
    else:
        body.append(_rivals(report.replayed))
    notes = "".join(f"<li>{escaped(text)}</li>" for text in notes_sentences(waste, report.notes, report.doubts))
    body += ["<h2>What was left out or assumed</h2>", f"<ul>{notes}</ul>"]
    return document(f"budgetalloc report: {report.name}", body)


def document(title: str, body: Iterable[str]) -> str:
    """A page with this title, whose content security policy forbids scripts and loading."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
        'img-src data:">\n<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{_STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(body)
        + "\n</body>\n</html>\n"
    )


def escaped(text: object) -> str:
    """Safe in HTML; the file is written as UTF-8, which has no lone surrogates."""
    return html.escape(str(text).encode(errors="replace").decode(), quote=True).replace(" %", "&nbsp;%")


def paragraphs(sentences: Iterable[str]) -> list[str]:
    """Each sentence as a paragraph."""
    return [f"<p>{escaped(text)}</p>" for text in sentences if text]


def _kinds(waste: Waste) -> list[str]:
    """The kinds of groups in the log, those with signal first."""
    return [kind for at, kind in enumerate(KINDS) if waste.rollouts_SK[:, at].any()]


def _cards(waste: Waste) -> str:
    shares = waste.shares()
    cards = [(percent(shares[kind]), f"{_IN[kind]}", f"var(--{kind})") for kind in _kinds(waste)]
    cards.append((f"{len(waste.never()):,}", "prompts never solved", "var(--rule)"))
    cards.append((f"{len(waste.always()):,}", "prompts always solved", "var(--rule)"))
    if waste.tokens and waste.wasted_tokens is not None:
        cards.append((percent(share(waste.wasted_tokens, waste.tokens)), "of tokens in wasted rollouts", "var(--rule)"))
    cells = [f'<div class="card" style="--edge:{edge}"><b>{escaped(x)}</b>{text}</div>' for x, text, edge in cards]
    return f'<div class="cards">{"".join(cells)}</div>'


def _figure(title: str, picture: str, caption: str) -> str:
    return f"<figure><h3>{escaped(title)}</h3>{picture}<figcaption>{escaped(caption)}</figcaption></figure>"


def _ticks(time: Sequence[dict[str, float]]) -> list[tuple[float, str]]:
    last, middle = len(time), len(time) // 2
    ticks = [(0.0, f"{time[0]['first']:,.0f}"), (last, f"{time[-1]['last']:,.0f}")]
    return ticks if last < 3 else [ticks[0], (middle + 0.5, f"{time[middle]['first']:,.0f}"), ticks[1]]


def _time(waste: Waste) -> str:
    time, kinds = waste.over_time(_RUNS), _kinds(waste)
    layers = [(kind, [row[kind] for row in time]) for kind in kinds]
    keys = "".join(
        f'<li><span class="key" style="--edge:var(--{kind})"></span>{LABELS[kind]}: {MEANING[kind]}</li>'
        for kind in kinds
    )
    one = plots.areas(layers, _ticks(time), "Shares of rollouts by kind of group over training steps", "training step")
    success = [row["success"] for row in time]
    two = plots.line(success, _ticks(time), "Mean success over training steps", "training step", "course")
    return (
        f'<ul class="legend">{keys}</ul><div class="plots">'
        + _figure("Share of rollouts by kind of group", one, "From bottom to top in the order of the legend.")
        + _figure("Mean success", two, "The mean over all rollouts of a step.")
        + "</div>"
    )


def _prompts(waste: Waste, texts: Mapping[Id, str]) -> str:
    rate_P = waste.successes_P / waste.rollouts_P
    never, always = set(waste.never().tolist()), set(waste.always().tolist())
    between = np.array([at not in never and at not in always for at in range(len(rate_P))])
    counts = np.histogram(np.clip(rate_P[between], 0, 1), bins=10, range=(0, 1))[0].tolist()
    bars = [("all_fail", len(never), "never")]
    bars += [("mixed", count, "40-50" if k == 4 else "") for k, count in enumerate(counts)]
    bars.append(("all_pass", len(always), "always"))
    picture = plots.columns(bars, "Number of prompts by mean success", "mean success over the run, %")
    tokens = waste.tokens is not None
    head = ["prompt", "rollouts wasted", "of", "mean success", *(["tokens wasted"] if tokens else [])]
    rows = [
        [
            named(row, 80) if row["text"] else shortened(row["id"], 70),
            f"{row['wasted']:,}",
            f"{row['rollouts']:,}",
            f"{row['success']:.2f}",
        ]
        + ([f"{row['wasted_tokens']:,}"] if tokens else [])
        for row in worst(waste, texts, 8)
    ]
    worst_ones = f'<div class="beside"><h3>Most wasted rollouts</h3>{table(head, rows)}</div>' if rows else ""
    caption = "Prompts by their mean success over the whole run."
    return f'<div class="plots">{_figure("Prompts", picture, caption)}{worst_ones}</div>'


def _forecast(waste: Waste) -> str:
    if not waste.predictable:
        return ""
    rows = waste.forecast.deciles()
    points = [(row["predicted"], row["success"], row["rollouts"]) for row in rows]
    one = plots.calibration(points, "Predicted against observed success", "predicted success")
    time = waste.over_time(_RUNS)
    surprise = [row["surprise"] for row in time]
    two = plots.line(surprise, _ticks(time), "Mean surprise over training steps", "training step", "course")
    caption = "Rollouts in tenths of the prediction; a larger dot has more. Right predictions lie on the dashed line."
    return (
        '<div class="plots">'
        + _figure("Predicted and observed success", one, caption)
        + _figure("Mean surprise", two, "The mean of |success - prediction|: what is left to learn from.")
        + "</div>"
    )


def _rivals(replayed: Replayed) -> str:
    first = replayed.rows[0]
    figures = (
        ("mixed_rollouts", "Rollouts in mixed groups", "share of rollouts"),
        ("signal", "Signal: 4 times the variance of the prompts' success", "mean of 4 times the variance"),
    )
    pictures = []
    for figure, title, under in figures:
        rows = [
            plots.Dot(row["policy"], row[figure], row[f"{figure}_low"], row[f"{figure}_high"])
            for row in replayed.rows
            if figure != "mixed_rollouts" or row["min_group"] > 1  # groups of one are never mixed
        ]
        if not rows:
            continue
        picture = plots.dots(rows, f"{title}, by policy", under)
        pictures.append(_figure(title, picture, "Lines are 95 % intervals over seeds, if wider than the dot."))
    head = ["policy", "in mixed groups", f"more than {first['policy']}", "signal", "modelled", "at least", "at most"]
    rows_ = [
        [
            row["policy"],
            *cells_of(row, first),
        ]
        for row in replayed.rows
    ]
    explanation = "".join(paragraphs(replay_sentences(replayed)))
    return (
        f'<div class="plots">{"".join(pictures)}</div>{table(head, rows_)}{explanation}'
        f'<div class="limits"><h3>What a replay can and cannot tell</h3>{"".join(paragraphs(LIMITS))}</div>'
    )


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The first column is text, the others are numbers."""

    def line(cells: Sequence[str], tag: str) -> str:
        named = [
            f'<{tag} class="name">{escaped(cells[0])}</{tag}>',
            *(f"<{tag}>{escaped(x)}</{tag}>" for x in cells[1:]),
        ]
        return f"<tr>{''.join(named)}</tr>"

    return f'<div class="scroll"><table>{line(head, "th")}{"".join(line(row, "td") for row in rows)}</table></div>'
