"use strict";
// Copies a case as the text of an issue, in Markdown. Everything comes from the page, and logs, hosts
// and commits may say anything: it stands in code, where nothing is mark-up, a mention or a link.
(() => {
  const longest = (text) => Math.max(0, ...(text.match(/`+/g) ?? []).map((run) => run.length));
  const said = (element) => (element?.textContent ?? "").replace(/\s+/g, " ").trim();
  const span = (text) => {
    if (!text.trim()) return text;
    const ticks = "`".repeat(longest(text) + 1);
    const air = /^`|`$/.test(text) ? " " : "";
    return `${ticks}${air}${text}${air}${ticks}`;
  };
  // A pipe would end a cell, and cannot be escaped in code the same way in and out of tables.
  const code = (text) => text.split("|").map(span).join("&#124;");
  const fenced = (text) => {
    const fence = "`".repeat(Math.max(3, longest(text) + 1));
    return `${fence}text\n${text.replace(/\s+$/, "")}\n${fence}`;
  };
  const link = (anchor) => {
    const address = anchor?.getAttribute("href") ?? "";
    return /^https?:\/\/[^\s()<>[\]\\`|]+$/.test(address) ? ` ([open](${address}))` : "";
  };
  // Where the text is the address itself, the link says it.
  const linked = (element) => {
    const anchor = element.querySelector("a"), text = said(element);
    return `${code(said(anchor) === anchor?.getAttribute("href") ? text.replace(said(anchor), "").replace(/[:\s]+$/, "") : text)}${link(anchor)}`;
  };
  const listed = (elements, write) => [...elements].map((each) => `- ${write(each)}`).join("\n");
  const table = (element) => {
    const rows = [...element.rows].map((row) => [...row.cells].map((cell) => code(said(cell)) || " "));
    rows.splice(1, 0, rows[0].map(() => "---"));
    const name = said(element.querySelector("caption:not(.hidden-text)"));
    return (name && `${code(name)}:\n\n`) + rows.map((cells) => `| ${cells.join(" | ")} |`).join("\n");
  };
  const metric = (details) => {
    const [name, told] = ["h4", ".told"].map((selector) => said(details.querySelector(selector)));
    const word = said(details.querySelector("summary .word")), change = said(details.querySelector("summary .diff"));
    const facts = [...details.querySelectorAll("dl.pairs dt")]
      .map((term) => `  - ${said(term)}: ${code(said(term.nextElementSibling))}`);
    const reason = said(details.querySelector(".reason"));
    if (reason) facts.unshift(`  - ${code(reason)}`);
    return [`${code([name, told, change].filter(Boolean).join(" "))}: ${word}`, ...facts].join("\n");
  };
  const issue = (details) => {
    const head = document.querySelector("header");
    const session = listed(head.querySelectorAll("dl.facts > div"), (fact) =>
      `${said(fact.querySelector("dt"))}: ${linked(fact.querySelector("dd"))}`);
    const bad = details.querySelectorAll("details.metric[open]");
    const tails = [...details.querySelectorAll("pre.tail")].map((tail) => `${code(tail.getAttribute("aria-label"))}:\n\n${fenced(tail.textContent)}`);
    return [
      `**${said(details.querySelector("summary .word"))}**: ${code(said(details.querySelector("h3")))}`,
      listed(bad, metric),
      ...[...details.querySelectorAll("table.differences")].map(table),
      listed(details.querySelectorAll("ul.commits li"), linked),
      ...tails,
      session,
      /^https?:/.test(location.href) ? `Page: <${location.href}>` : "",
    ].filter(Boolean).join("\n\n") + "\n";
  };
  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch { // a page without https, or one that may not
      const field = document.createElement("textarea");
      field.value = text;
      document.body.append(field);
      field.select();
      const isDone = document.execCommand("copy");
      field.remove();
      return isDone;
    }
  };
  for (const details of document.querySelectorAll("details.case")) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "button wide screen-only copy-issue";
    button.textContent = "Copy as issue";
    button.addEventListener("click", async () => {
      button.textContent = (await copy(issue(details))) ? "Copied" : "Not copied: the browser refuses";
      button.focus();
      setTimeout(() => { button.textContent = "Copy as issue"; }, 3000);
    });
    details.querySelector(".inside").prepend(button);
  }
})();
