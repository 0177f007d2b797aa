"use strict";
// The page is whole without this script. It adds what needs one: rows that open in place, filters,
// sorting, and the choice between light and dark. It reads what stands in the page, and writes text
// only.
(() => {
  const make = (name, attributes = {}, text = "") => {
    const element = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    element.textContent = text;
    return element;
  };
  const all = (selector, inside = document) => [...inside.querySelectorAll(selector)];
  const tools = document.getElementById("tools");
  const table = document.getElementById("cases");

  // Light and dark: as the system has it, until somebody chooses.
  const root = document.documentElement;
  const isDark = () =>
    root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  const themeButton = make("button", { type: "button", class: "button" });
  const showTheme = (theme) => {
    if (theme) root.dataset.theme = theme;
    themeButton.textContent = isDark() ? "Light" : "Dark";
    themeButton.setAttribute("aria-label", `Change to ${isDark() ? "light" : "dark"} colours`);
  };
  const remembered = (() => {
    try { return localStorage.getItem("dlperf-theme"); } catch { return null; }
  })();
  showTheme(remembered === "dark" || remembered === "light" ? remembered : null);
  themeButton.addEventListener("click", () => {
    showTheme(isDark() ? "light" : "dark");
    try { localStorage.setItem("dlperf-theme", root.dataset.theme); } catch { /* a page of a mail */ }
  });
  tools.append(themeButton);

  if (table) {
    const body = table.tBodies[0];
    const rows = all("tr.row", body);
    const columns = table.tHead.rows[0].cells.length;
    const entries = new Map();

    // Details open below their row.
    for (const row of rows) {
      const link = row.querySelector(".case-link");
      const id = link.getAttribute("href").slice(1);
      const details = document.getElementById(id);
      const place = make("tr", { class: `place ${row.dataset.verdict}`, hidden: "" });
      const cell = make("td", { class: "inline", colspan: columns });
      const button = make("button", {
        type: "button", class: link.className, "aria-expanded": "false", "aria-controls": id,
      }, link.textContent);
      cell.append(details);
      place.append(cell);
      row.after(place);
      link.replaceWith(button);
      const entry = { row, place, details, button, text: row.textContent.toLowerCase() };
      button.addEventListener("click", () => open(entry, place.hidden));
      details.addEventListener("toggle", () => { if (details.open === place.hidden) open(entry, details.open); });
      entries.set(id, entry);
      // On a phone the overview comes first.
      open(entry, details.open && matchMedia("(min-width: 640px)").matches);
    }
    document.getElementById("details").hidden = true;

    function open(entry, isOpen) {
      entry.details.open = isOpen;
      entry.place.hidden = !isOpen || entry.row.hidden;
      entry.row.classList.toggle("open", isOpen);
      entry.button.setAttribute("aria-expanded", String(isOpen));
    }
    const openNamed = () => {
      const entry = entries.get(decodeURIComponent(location.hash.slice(1)));
      if (!entry) return;
      if (entry.row.hidden) clear();
      open(entry, true);
      entry.row.scrollIntoView({ block: "start" });
      entry.button.focus({ preventScroll: true });
    };
    addEventListener("hashchange", openNamed);
    document.addEventListener("click", (event) => {
      const link = event.target.closest("a[href^='#case-']");
      // The second click on a link changes no hash.
      if (link && link.getAttribute("href") === location.hash) openNamed();
    });

    // Filters
    const form = document.getElementById("filters");
    const field = make("input", {
      type: "search", placeholder: "Filter by words of a case  ( / )", "aria-label": "Filter by words of a case", "aria-keyshortcuts": "/",
    });
    const shown = make("span", { class: "shown", role: "status" });
    const free = new Set(rows.flatMap((row) => row.getAttributeNames()).filter((name) => name.startsWith("data-axis-")));
    const names = ["verdict", "framework", "model", "precision", "topology", ...[...free].map((name) => name.slice(5))];
    const selects = names.flatMap((axis) => {
      const values = [...new Set(rows.map((row) => row.getAttribute(`data-${axis}`) || ""))].filter(Boolean);
      if (!values.length) return [];
      const name = axis.replace(/^axis-/, "");
      const select = make("select", { "aria-label": name });
      if (axis !== "verdict") values.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
      select.append(make("option", { value: "" }, `any ${name}`));
      for (const value of values) select.append(make("option", { value }, value.replaceAll("-", " ")));
      select.addEventListener("change", filter);
      return [{ axis, select }];
    });
    function filter() {
      const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
      let count = 0;
      for (const entry of entries.values()) {
        const fits = words.every((word) => entry.text.includes(word))
          && selects.every(({ axis, select }) => !select.value || entry.row.getAttribute(`data-${axis}`) === select.value);
        entry.row.hidden = !fits;
        entry.place.hidden = !fits || !entry.details.open;
        count += fits;
      }
      shown.textContent = count === rows.length ? `${count} cases` : `${count} of ${rows.length} cases`;
    }
    function clear() {
      field.value = "";
      for (const { select } of selects) select.value = "";
      filter();
    }
    field.addEventListener("input", filter);
    field.addEventListener("keydown", (event) => { if (event.key === "Escape") clear(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    document.addEventListener("keydown", (event) => {
      const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
      if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey && !event.altKey) {
        event.preventDefault();
        field.focus();
      }
    });
    form.append(field, ...selects.map(({ select }) => select), shown);
    form.hidden = false;
    filter();

    // Sorting: what is not there comes last, whichever way.
    all("th", table.tHead).forEach((heading, index) => {
      if ("plain" in heading.dataset) return;
      const button = make("button", { type: "button" }, heading.textContent);
      heading.replaceChildren(button);
      button.addEventListener("click", () => {
        const up = heading.getAttribute("aria-sort") === "ascending" ? -1 : 1;
        for (const other of table.tHead.rows[0].cells) other.removeAttribute("aria-sort");
        heading.setAttribute("aria-sort", up === 1 ? "ascending" : "descending");
        const key = (entry) => {
          const cell = entry.row.cells[index];
          return "v" in cell.dataset ? (cell.dataset.v === "" ? null : Number(cell.dataset.v)) : cell.textContent;
        };
        const sorted = [...entries.values()].map((entry) => ({ entry, value: key(entry) }));
        sorted.sort((a, b) => {
          if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
          return up * (typeof a.value === "number" ? a.value - b.value
            : a.value.localeCompare(b.value, "en", { numeric: true }));
        });
        body.append(...sorted.flatMap(({ entry }) => [entry.row, entry.place]));
      });
    });

    openNamed();
  }
})();
