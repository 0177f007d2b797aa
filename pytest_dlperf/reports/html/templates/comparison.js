"use strict";
// The page of a comparison is whole without this script. It adds filters and an order of the cases,
// of all metrics at once. It reads what stands in the page, and writes text only.
(() => {
  const make = (name, attributes = {}, text = "") => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const form = document.getElementById("filters");
  const parts = [...document.querySelectorAll("section[data-metric]")].map((section) => {
    const body = section.querySelector("table.compared").tBodies[0];
    const headings = [...section.querySelector("table.compared").tHead.rows[0].cells];
    const rows = [...body.rows].map((row, place) => ({ row, place, text: row.cells[1].textContent.toLowerCase() }));
    return { section, body, headings, rows };
  });
  const total = parts.reduce((sum, { rows }) => sum + rows.length, 0);

  // Filters
  const field = make("input", {
    type: "search", placeholder: "Filter by words of a case  ( / )", "aria-label": "Filter by words of a case", "aria-keyshortcuts": "/",
  });
  const shown = make("span", { class: "shown", role: "status" });
  const choice = (name, first, values) => {
    const select = make("select", { "aria-label": name });
    select.append(make("option", { value: "" }, first), ...values.map((value) => make("option", { value }, value)));
    return select;
  };
  const unique = (values) => [...new Set(values)];
  const verdict = choice("verdict", "any verdict", unique(parts.flatMap(({ rows }) =>
    rows.map(({ row }) => [Number(row.cells[0].dataset.v), row.dataset.verdict])).sort(([a], [b]) => a - b).map(([, word]) => word)));
  const metric = choice("metric", "any metric", unique(parts.map(({ section }) => section.dataset.metric)));
  const filter = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let count = 0;
    for (const { section, rows } of parts) {
      const isMeant = !metric.value || section.dataset.metric === metric.value;
      let left = 0;
      for (const { row, text } of rows) {
        row.hidden = !isMeant || (verdict.value && row.dataset.verdict !== verdict.value)
          || !words.every((word) => text.includes(word));
        left += !row.hidden;
      }
      section.hidden = !left;
      count += left;
    }
    shown.textContent = count === total ? `${count} comparisons` : `${count} of ${total} comparisons`;
  };
  const clear = () => {
    for (const control of [field, verdict, metric]) control.value = "";
    filter();
  };
  field.addEventListener("input", filter);
  field.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
  for (const select of [verdict, metric]) select.addEventListener("change", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  document.addEventListener("keydown", (event) => {
    const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
    if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
      event.preventDefault();
      field.focus();
    }
  });
  // A link to a metric shows it, whatever was left out before.
  document.addEventListener("click", (event) => {
    const link = event.target.closest("a[href^='#metric-']");
    if (link && document.getElementById(link.hash.slice(1)).closest("section").hidden) clear();
  });

  // The order: where there is no room for headings, by the list and the button beside it. What is
  // not there comes last, whichever way.
  const columns = parts[0].headings.map((heading) => heading.dataset.sort ?? "");
  const order = choice("order", "as they scale", []);
  columns.forEach((name, index) => { if (name) order.append(make("option", { value: index }, `by ${name}`)); });
  const turn = make("button", { type: "button", class: "button" });
  let isUp = true;
  const sort = () => {
    const index = order.value === "" ? -1 : Number(order.value);
    turn.textContent = isUp ? "↑" : "↓";
    turn.setAttribute("aria-label", isUp ? "Ascending; turn round" : "Descending; turn round");
    turn.disabled = index < 0;
    const key = ({ row, place }) => {
      if (index < 0) return place;
      const cell = row.cells[index];
      return "v" in cell.dataset ? (cell.dataset.v === "" ? null : Number(cell.dataset.v)) : cell.textContent;
    };
    const way = isUp || index < 0 ? 1 : -1;
    for (const { body, headings, rows } of parts) {
      headings.forEach((heading, at) => {
        if (at === index) heading.setAttribute("aria-sort", isUp ? "ascending" : "descending");
        else heading.removeAttribute("aria-sort");
      });
      const sorted = rows.map((one) => ({ one, value: key(one) }));
      sorted.sort((a, b) => {
        if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
        return way * (typeof a.value === "number" ? a.value - b.value
          : a.value.localeCompare(b.value, "en", { numeric: true }));
      });
      body.append(...sorted.map(({ one }) => one.row));
    }
  };
  order.addEventListener("change", () => { isUp = true; sort(); });
  turn.addEventListener("click", () => { isUp = !isUp; sort(); });
  for (const { headings } of parts) {
    headings.forEach((heading, index) => {
      if (!columns[index]) return;
      const label = heading.getAttribute("aria-label");
      const button = make("button", { type: "button" }, heading.textContent || label);
      heading.replaceChildren(button);
      heading.removeAttribute("aria-label");
      button.addEventListener("click", () => {
        isUp = order.value === String(index) ? !isUp : true;
        order.value = String(index);
        sort();
      });
    });
  }
  form.append(field, verdict, metric, order, turn, shown);
  form.hidden = false;
  filter();
  sort();
})();
