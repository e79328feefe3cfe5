// Optional script for the table of units: search, sorting, and an address for each state (#units?outcome=...).
// The filters themselves are CSS; the script only sets their controls.
(() => {
  const AT_ONCE = 200; // rows: drawing thousands takes a second
  const table = document.querySelector(".units");
  const rows = [...table.tBodies];
  const one = (name) => document.querySelector(`#f-${name}`);
  const picks = ["repo", "stop", "attempt"].filter(one);
  const integrity = ["suspect", "unconfirmed"];
  const radios = [...document.getElementsByName("verdict")];
  const search = one("search").querySelector("input");
  const count = one("count");
  const columns = [...table.tHead.rows[0].cells];
  const names = columns.map((head) => head.dataset.name);
  const compare = new Intl.Collator("en", { numeric: true }).compare;
  const rest = Object.assign(document.createElement("p"), { className: "cut" });
  let texts, order = "", matching = rows, drawn = rows.length;

  const valueOf = (row, place) => {
    const cell = row.rows[0].cells[place], text = cell.dataset.v ?? cell.textContent.trim();
    if (!place) return cell.textContent;
    if (columns[place].classList.contains("v") || !text) return text;
    const [part, whole] = text.replaceAll(",", "").split("/").map(Number);
    return whole ? part / whole : part;
  };

  const inOrder = (some) => {
    const down = order.startsWith("-"), place = names.indexOf(down ? order.slice(1) : order);
    columns.forEach((head, n) => head.setAttribute("aria-sort", n !== place ? "none" : down ? "descending" : "ascending"));
    if (place < 0) return some;
    const keys = new Map(some.map((row) => [row, valueOf(row, place)]));
    const missing = (value) => value === "" || Number.isNaN(value);
    return some.toSorted((a, b) => {
      const [x, y] = [keys.get(a), keys.get(b)];
      if (missing(x) || missing(y)) return missing(x) - missing(y); // unknown values come last in both directions
      const by = typeof x === "number" ? x - y : compare(x, y);
      return down ? -by : by;
    });
  };

  const classOf = (name) => name === "attempt" ? `a${one(name).value}` : `${name[0]}${one(name).selectedIndex - 1}`;
  const look = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) texts ??= new Map(rows.map((row) => [row, row.rows[0].cells[0].textContent.toLowerCase()]));
    const tests = picks.filter((name) => one(name).selectedIndex > 0).map(classOf);
    const verdict = radios.find((radio) => radio.checked);
    if (verdict.value) tests.push(verdict.id.slice(2));
    const found = (row) => tests.every((test) => row.classList.contains(test)) && words.every((word) => texts.get(row).includes(word));
    matching = inOrder(rows.filter(found));
    count.hidden = matching.length === rows.length;
    count.textContent = count.hidden ? "" : `${matching.length.toLocaleString("en")} of ${rows.length.toLocaleString("en")} units`;
    drawn = 0;
    table.replaceChildren(table.tHead);
    draw(AT_ONCE);
  };

  const draw = (number) => {
    table.append(...matching.slice(drawn, drawn + number));
    drawn = Math.min(drawn + number, matching.length);
    rest.hidden = drawn === matching.length;
    rest.textContent = `${(matching.length - drawn).toLocaleString("en")} more`;
    below.disconnect();
    if (!rest.hidden) below.observe(rest); // calls back at once if it is visible
  };
  const below = new IntersectionObserver((seen) => { if (seen.some((one) => one.isIntersecting)) draw(AT_ONCE); }, { rootMargin: "1500px" });

  const write = () => {
    const query = new URLSearchParams();
    const verdict = radios.find((radio) => radio.checked).value;
    if (verdict) query.set(...(integrity.includes(verdict) ? [verdict, "yes"] : ["outcome", verdict]));
    for (const name of picks) if (one(name).value) query.set(name, one(name).value);
    if (search.value) query.set("q", search.value);
    if (order) query.set("sort", order);
    history.replaceState(null, "", query.size ? `#units?${query}` : "#units");
  };

  const lead = () => {
    const row = rows.find((one) => `#${one.id}` === location.hash);
    if (!row || row.isConnected) return;
    if (!matching.includes(row)) {
      choose(new URLSearchParams());
      look();
    }
    draw(matching.indexOf(row) + AT_ONCE - drawn);
    location.replace(location.hash); // the row exists only now
  };
  const read = () => {
    if (!location.hash.startsWith("#units")) return lead();
    choose(new URLSearchParams(location.hash.slice(7)));
    look();
    table.parentElement.scrollIntoView();
  };
  const choose = (query) => {
    const verdict = integrity.find((name) => query.get(name) === "yes") ?? query.get("outcome") ?? "";
    (radios.find((radio) => radio.value === verdict) ?? radios[0]).checked = true;
    for (const name of picks) {
      one(name).value = query.get(name) ?? "";
      if (one(name).selectedIndex < 0) one(name).selectedIndex = 0;
    }
    search.value = query.get("q") ?? "";
    order = query.get("sort") ?? "";
  };

  const move = (step) => {
    const here = matching.findIndex((row) => row.contains(document.activeElement));
    const next = matching[here < 0 ? 0 : Math.min(Math.max(here + step, 0), drawn - 1)];
    (next?.querySelector("th a") ?? next?.querySelector("summary"))?.focus();
  };
  const keys = { j: () => move(1), k: () => move(-1), "/": () => search.focus() };

  columns.forEach((head, n) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const first = n && head.classList.contains("n") ? `-${names[n]}` : names[n]; // numbers: largest first
      const second = first.startsWith("-") ? names[n] : `-${names[n]}`;
      order = order === first ? second : order === second ? "" : first;
      look();
      write();
    });
  });
  document.querySelectorAll("[data-narrow]").forEach((link) => { link.href = `#units?${link.dataset.narrow}`; });
  one("search").hidden = false;
  table.previousElementSibling.addEventListener("input", () => { look(); write(); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { search.value = ""; search.blur(); look(); write(); }
  });
  document.addEventListener("keydown", (event) => {
    const typing = event.target.closest("input[type=search], select, textarea");
    if (typing || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });
  table.after(rest);
  addEventListener("hashchange", read);
  const all = () => draw(rows.length);
  addEventListener("beforeprint", all);
  matchMedia("print").addEventListener("change", all);
  look();
  read();
})();
