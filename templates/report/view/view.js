// The viewer's optional script: immediate filters, live updates, and keyboard shortcuts.
"use strict";
document.documentElement.classList.add("scripted");
const $ = (selector, where = document) => where.querySelector(selector);
const $$ = (selector, where = document) => [...where.querySelectorAll(selector)];

// -- tables: the address is the state -------------------------------------------------------------------------------

let asked = 0;
async function showTable(query) {
  const mine = ++asked;
  const answer = await fetch(location.pathname + query, { headers: { "X-Part": "table" } });
  if (!answer.ok || mine !== asked) return;
  const table = $("#table");
  table.innerHTML = await answer.text();
  shown.set(table, table.innerHTML);
  history.replaceState(null, "", (query === "?" ? location.pathname : query) + location.hash);
  markPicked();
  $("form[data-table] [role=status]").textContent = $(".pager span", table).textContent;
}

function queryOf(form) {
  const values = [...new FormData(form)].filter(([, value]) => value);
  return "?" + new URLSearchParams(values);
}

for (const form of $$("form[data-table]")) {
  form.addEventListener("input", () => showTable(queryOf(form)));
  form.addEventListener("submit", (event) => { event.preventDefault(); showTable(queryOf(form)); });
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-part]");
  if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  const query = link.getAttribute("href"), form = $("form[data-table]");
  const sort = new URLSearchParams(query).get("sort");
  let kept = $("[name=sort]", form);
  if (sort && !kept) form.append(kept = Object.assign(document.createElement("input"), { type: "hidden", name: "sort" }));
  if (kept) kept.value = sort || "";
  const isPage = link.closest(".pager");
  showTable(query).then(() => { if (isPage) $("#table").scrollIntoView(); });
});

// -- runs marked for a comparison ------------------------------------------------------------------------------------

const picked = new Set($$("input[form=compare]:checked").map((box) => box.value));
document.addEventListener("change", (event) => {
  if (event.target.getAttribute("form") !== "compare") return;
  picked[event.target.checked ? "add" : "delete"](event.target.value);
  markPicked();
});
$("#compare")?.addEventListener("submit", (event) => { // a filter may have removed marked lines from the page
  event.preventDefault();
  for (const box of $$("input[form=compare]:checked")) picked.add(box.value);
  location.href = "/compare?" + new URLSearchParams([...picked].map((run) => ["run", run]));
});
function markPicked() {
  for (const box of $$("input[form=compare]")) box.checked = picked.has(box.value);
  const form = $("#compare");
  if (!form) return;
  form.classList.toggle("some", picked.size > 1);
  $("button", form).disabled = picked.size < 2;
}
markPicked();

// -- live updates ----------------------------------------------------------------------------------------------------

const nameOf = (fold) => {
  const home = fold.closest("[id]");
  return `${home ? home.id : ""}/${$$("details", home || document).indexOf(fold)}`;
};

async function refresh() {
  const bar = $("[data-again]");
  if (!bar) return;
  const began = Date.now(), mine = asked, where = location.href;
  let isAnswered = document.hidden;
  try {
    if (!document.hidden) {
      const answer = await fetch(location.href, { cache: "no-store" });
      const text = await answer.text();
      isAnswered = answer.ok;
      const isOld = mine !== asked || where !== location.href; // a filter was chosen meanwhile
      if (answer.ok && !isOld) swap(new DOMParser().parseFromString(text, "text/html"));
    }
  } catch { /* the server does not answer: keep the page */ }
  const live = $(".live");
  const state = isAnswered ? "live" : "no answer";
  if (live && live.textContent !== state) live.classList.toggle("lost", !isAnswered), live.textContent = state; // announced once by screen readers
  setTimeout(refresh, Math.max(1000 * (bar.dataset.again || 2), 5 * (Date.now() - began)));
}

const shown = new Map($$("[data-fresh]").map((part) => [part, part.innerHTML]));
function swap(newer) {
  if ($("#reading") && !newer.getElementById("reading")) return location.reload(); // the store has been read
  if ($("#now") && !newer.querySelector("[data-again]")) return location.reload(); // the run has ended, and the whole page changes
  for (const part of shown.keys()) {
    const other = newer.getElementById(part.id);
    if (!other || other.innerHTML === shown.get(part)) continue;
    const whole = $$(".fold > :checked", part).map((box) => box.id);
    const open = new Set($$("details[open]", part).map(nameOf)), was = other.innerHTML, row = current();
    part.innerHTML = was;
    shown.set(part, was);
    for (const fold of $$("details", part)) if (open.has(nameOf(fold))) fold.open = true;
    for (const id of whole) if (document.getElementById(id)) document.getElementById(id).checked = true;
    if (row && !row.isConnected) select(steps().find((each) => keyOf(each) === keyOf(row)), false);
  }
  markPicked();
  if (!newer.querySelector("[data-again]")) $("[data-again]").removeAttribute("data-again"), $(".live")?.remove();
}
setTimeout(refresh, 1000 * ($("[data-again]")?.dataset.again || 2));

// -- keys ------------------------------------------------------------------------------------------------------------

const steps = () => $$("[data-row], article.turn").filter((each) => each.getClientRects().length);
const keyOf = (row) => row.id || $("a[href]", row)?.getAttribute("href");
const current = () => $("[aria-selected=true], [aria-current=true]");
function select(row, scroll = true) {
  if (!row) return;
  for (const each of $$("[aria-selected], [aria-current]")) each.removeAttribute("aria-selected"), each.removeAttribute("aria-current");
  row.setAttribute(row.matches("[data-row]") ? "aria-selected" : "aria-current", "true");
  if (scroll) row.scrollIntoView({ block: row.matches("[data-row]") ? "nearest" : "start" });
}
function move(by, fits = () => true) {
  const rows = steps(), place = rows.indexOf(current());
  let next = place < 0 ? (by > 0 ? 0 : rows.length - 1) : place + by;
  while (next >= 0 && next < rows.length && !fits(rows[next])) next += by;
  select(rows[next]);
}
const wentWrong = (row) => row.matches("[data-wrong]") || Boolean($(".failed, .recorded", row));

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input:not([type=checkbox]), select, textarea");
  if (event.key === "Escape" && typing) event.target.blur();
  if (typing) return;
  const act = {
    j: () => move(1), k: () => move(-1), e: () => move(1, wentWrong), E: () => move(-1, wentWrong),
    "/": () => { const box = $("input[type=search]"); box?.focus(); box?.select(); return Boolean(box); },
    Enter: () => $("a[href]", current()?.matches("[data-row]") ? current() : document.createElement("i"))?.click(),
    x: () => $("input[type=checkbox]", current() || document.body)?.click(),
    u: () => { location.href = $("main > nav a")?.getAttribute("href") || "/"; },
  }[event.key];
  if (!act || event.target.closest("a, button") && event.key === "Enter") return;
  if (act() !== false) event.preventDefault();
});
