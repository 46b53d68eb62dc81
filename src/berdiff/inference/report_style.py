"""How the report looks: one column on a screen, whole cases on paper."""

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 2rem 1.5rem; max-width: 72rem; color: #1b1f24; background: #fff;
  font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
h1 { margin: 0 0 .25rem; font-size: 1.7rem; line-height: 1.2; }
h2 { margin: 0; font-size: 1.15rem; overflow-wrap: anywhere; }
h3 { margin: 1rem 0 0; font-size: 1rem; }
h4 { margin: 0 0 .3rem; font-size: .8rem; font-weight: 600; color: #57606a; }
p { margin: .35rem 0; max-width: 46rem; }
.warning { font-weight: 700; color: #b3261e; }
.note, footer { font-size: .85rem; color: #57606a; }
.defs { position: absolute; }
.case { margin-top: 2rem; padding-top: 1.25rem; border-top: 1px solid #d0d7de; break-inside: avoid;
  display: flex; flex-wrap: wrap; gap: .8rem 2rem; }
.case > h2, .case > h3, .case > p { width: 100%; }
.case > p { margin: -.5rem 0 0; }
.tiles { display: flex; flex-wrap: wrap; gap: .5rem; }
figure { margin: 0; width: 8rem; }
figure svg { display: block; width: 100%; background: #000; }
image { image-rendering: pixelated; }
path { fill: none; stroke-width: 1.5px; vector-effect: non-scaling-stroke; }
figcaption { margin-top: .15rem; font-size: .72rem; line-height: 1.3; color: #57606a; }
figcaption b { margin-right: .35em; font-weight: 400; white-space: nowrap; border-bottom: 3px solid; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .85rem; }
caption { padding: .3rem 0; text-align: left; color: #57606a; }
th, td { padding: .2rem .9rem .2rem 0; text-align: left; vertical-align: baseline; border-bottom: 1px solid #eaeef2; }
th { font-weight: 600; }
.scores td:not(:first-child), .scores th:not(:first-child) { text-align: right; }
footer { margin-top: 2rem; padding-top: .75rem; border-top: 1px solid #d0d7de; }
@media print {
  :root { font-size: 12px; }
  body { max-width: none; padding: 0; font-size: 1rem; }
  body, figure svg { -webkit-print-color-adjust: exact; print-color-adjust: exact; }
  figure { width: 2.1cm; }
  path { stroke-width: .8px; }
  .case { gap: .4rem 1rem; }
}
"""
