#include "report/page.hpp"

#include <fmt/core.h>

#include "convoy/plan.hpp"
#include "core/build.hpp"
#include "core/date.hpp"
#include "report/html.hpp"
#include "report/sections.hpp"

namespace convoy::report {
namespace {

// Colours of plots are chosen for 3:1 or more against both backgrounds, and differ in lightness.
constexpr std::string_view style = R"css(
:root{color-scheme:light dark;--page:#fff;--text:#1f2328;--dim:#59636e;--grid:#d1d9e0;--panel:#f6f8fa;
--link:#0969da;--c0:#0550ae;--c1:#bc4c00;--c2:#1a7f37;--c3:#8250df;--c4:#6e7781;--c5:#bf3989;--lost:#cf222e}
@media(prefers-color-scheme:dark){:root{--page:#0d1117;--text:#e6edf3;--dim:#9198a1;--grid:#30363d;--panel:#161b22;
--link:#58a6ff;--c0:#79c0ff;--c1:#f0883e;--c2:#3fb950;--c3:#bc8cff;--c4:#8b949e;--c5:#f778ba;--lost:#ff7b72}}
*{box-sizing:border-box}
body{margin:0 auto;padding:0 16px 48px;max-width:1080px;background:var(--page);color:var(--text);
font:15px/1.5 system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif;overflow-wrap:anywhere}
h1{font-size:26px;margin:24px 0 4px}h2{font-size:21px;margin:40px 0 8px;padding-top:8px;border-top:1px solid var(--grid)}
h3{font-size:17px;margin:28px 0 6px}h4{font-size:15px;margin:20px 0 4px}
a{color:var(--link)}code,pre{font:13px/1.4 ui-monospace,"DejaVu Sans Mono",monospace}
nav ul,.legend{list-style:none;margin:8px 0;padding:0;display:flex;flex-wrap:wrap;gap:4px 18px}
.legend{font-size:13px;color:var(--dim)}.legend li{display:flex;align-items:center;gap:6px}.dim{color:var(--dim)}
.skip{position:absolute;left:-999px}.skip:focus{left:8px;top:8px;background:var(--page)}
:focus-visible{outline:2px solid var(--link);outline-offset:2px}
.wide{overflow-x:auto;margin:8px 0 16px}
table{border-collapse:collapse;font-size:13px;overflow-wrap:normal}
th,td{padding:3px 12px 3px 0;text-align:left;vertical-align:top;border-bottom:1px solid var(--grid);white-space:nowrap}
th{color:var(--dim);font-weight:600;vertical-align:bottom}
.n{text-align:right;font-variant-numeric:tabular-nums}.p{white-space:normal;min-width:220px}
details{margin:6px 0;border:1px solid var(--grid);border-radius:6px;padding:0 12px}
summary{cursor:pointer;padding:8px 0;font-weight:600}
figure{margin:8px 0 20px}figcaption{font-size:14px;color:var(--dim)}
.plot{padding:4px 14px 0 52px}.chart{display:block;width:100%;overflow:visible;margin-bottom:22px}
.ytitle,.xtitle{font-size:12px;color:var(--dim)}.ytitle{margin:0 0 10px -52px}.xtitle{text-align:center}
svg text{fill:var(--text);font-size:12px}.tick{fill:var(--dim);font-size:11px}
.grid{stroke:var(--grid)}.chart path,.chart line,.cell line{vector-effect:non-scaling-stroke}
.dots{fill:none;stroke-width:7;stroke-linecap:round;stroke-opacity:.75}.dense{stroke-width:5}.line{fill:none;stroke-width:2}
.dash{stroke-dasharray:6 4}path.roof{stroke:var(--text);stroke-width:1.5}
.c0{stroke:var(--c0)}.c1{stroke:var(--c1)}.c2{stroke:var(--c2)}.c3{stroke:var(--c3)}.c4{stroke:var(--c4)}.c5{stroke:var(--c5)}
circle,rect{stroke:none}
:is(circle,rect).c0{fill:var(--c0);stroke:none}:is(circle,rect).c1{fill:var(--c1);stroke:none}
:is(circle,rect).c2{fill:var(--c2);stroke:none}:is(circle,rect).c3{fill:var(--c3);stroke:none}
:is(circle,rect).c4{fill:var(--c4);stroke:none}:is(circle,rect).c5{fill:var(--c5);stroke:none}
circle.roof{fill:var(--text)}circle.lost{fill:var(--lost)}
.cell{width:140px;height:18px;display:block;overflow:visible}.one{stroke:var(--dim)}
.track{fill:var(--grid)}.banks{width:100%;max-width:520px;height:14px;display:block}.odd{fill-opacity:.6}
rect.lost{fill:var(--lost)}.math{fill:var(--c0);fill-opacity:.3}.load{fill:var(--c1);fill-opacity:.3}
.pipe{padding-top:44px;max-width:620px}h5{font-size:14px;margin:16px 0 2px}
.range{stroke:var(--c0);stroke-width:2;stroke-opacity:.6}
input[type=search]{font:inherit;padding:4px 8px;width:100%;max-width:420px;color:inherit;background:var(--panel);
border:1px solid var(--grid);border-radius:6px}
pre{overflow-x:auto;background:var(--panel);padding:10px;border-radius:6px}
@media(max-width:600px){td:first-child code{display:inline-block;white-space:normal;overflow-wrap:anywhere;min-width:135px}.desk{display:none}body{padding:0 12px 32px}.plot{padding-left:44px}.ytitle{margin-left:-44px}details{padding:0 8px}th,td{padding-right:9px}.p{min-width:104px}details .p{min-width:170px}.cell{width:110px}}
@media print{details>*{display:block}}
)css";

// Without a script the page is whole; with one, stages can be looked for in all tables at once.
constexpr std::string_view script = R"js(
const box=document.querySelector('.filtered');
if(box){const label=document.createElement('label'),field=document.createElement('input');
label.textContent='Show only stages that contain ';field.type='search';field.placeholder='for instance c64k128r3 or winograd4';
label.append(field);box.before(label);let timer;
field.addEventListener('input',()=>{clearTimeout(timer);timer=setTimeout(()=>{const words=field.value.toLowerCase().split(/\s+/).filter(Boolean);
for(const part of box.querySelectorAll('details')){let shown=0;
for(const row of part.querySelectorAll('tbody tr')){const hit=words.every(w=>row.textContent.toLowerCase().includes(w));row.hidden=!hit;shown+=hit}
part.hidden=!shown;part.open=words.length>0&&shown>0}},150)})}
)js";

struct Part {
  std::string_view id, title;
  Html html;
};

}  // namespace

std::string page(const PageRequest& request) {
  const Results& results = request.results;
  std::vector<std::string> why_not;
  const std::vector<StageView> views = view_stages(request.stages, why_not);
  const std::vector<MappedStage> mapped = map_stages(request.stages);
  const Part parts[] = {
      {"minute", "In one minute", minute_section(results, mapped)},
      {"roofline", "Roofline", roofline_section(results)},
      {"ratios", "Ratios", ratios_section(results)},
      {"sweeps", "Sweeps", sweeps_section(results)},
      {"ladder", "Ladder", ladder_section(results)},
      {"stages", "Stages", stages_section(views, mapped, results, why_not)},
      {"model", "Cost model", model_section(results)},
      {"refusals", "Refusals", refusals_section(results, views)},
      {"others", "Networks and builds", others_section(results)},
      {"files", "Files", files_section(results)},
  };
  const Html head = html(
      "<!DOCTYPE html>\n<html lang=en>\n<head>\n<meta charset=utf-8>\n"
      "<meta name=viewport content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=color-scheme content=\"light dark\">\n"
      "<link rel=icon href=\"data:,\">\n<title>{}</title>\n",
      escape(request.title));
  Html body = html(
      "</head>\n<body>\n<a class=skip href=#main>To the results</a>\n<header>\n<h1>{}</h1>\n"
      "<p class=dim>Convoy {}{}{}, {}. Results of {}.</p>\n<nav aria-label=Parts><ul>",
      escape(request.title), escape(version()), build().commit.empty() ? Html() : html(", commit "),
      escape(build().commit), escape(utc_now()), escape(results.from));
  for (const Part& part : parts)
    if (!part.html.empty())
      body +=
          html("<li><a href={}>{}</a>", attribute(fmt::format("#{}", part.id)), escape(part.title));
  body += html("</ul></nav>\n</header>\n<main id=main>\n");
  if (!results.skipped.empty())
    body += html("<p role=note>{} could not be used: <a href=#skipped>which, and why</a>.</p>\n",
                 counted(static_cast<std::int64_t>(results.skipped.size()), "file"));
  for (const Part& part : parts) body += part.html;
  // Here alone markup becomes a string; the style sheet and the script hold nothing from outside.
  return fmt::format("{}<style>{}</style>\n{}</main>\n<script>{}</script>\n</body>\n</html>\n",
                     head.text(), style, body.text(), script);
}

}  // namespace convoy::report
