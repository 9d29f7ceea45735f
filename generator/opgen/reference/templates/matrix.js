"use strict";
(() => {
  const { backends, dtypes, groups, texts, ops } = JSON.parse(document.getElementById("cells").textContent);
  const [search, backend, dtype, status, internal] = ["search", "backend", "dtype", "status", "internal"].map((id) =>
    document.getElementById(id),
  );
  const table = document.getElementById("matrix");
  const [head, body] = [table.tHead, table.tBodies[0]];
  const SUPPORTED = 1;

  function element(tag, attributes = {}, ...children) {
    const made = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
    made.append(...children);
    return made;
  }

  // Some dtypes in few words: the name of a group, or of one without a few.
  function named(own, whole) {
    if (own.includes(-1)) return "yes";
    const has = (members) => members.every((each) => own.includes(each));
    if (own.length === whole.length) return own.length > 1 ? "all" : dtypes[own[0]];
    for (const [name, members] of Object.entries(groups)) {
      if (members.length === own.length && has(members)) return name;
    }
    const lacking = whole.filter((each) => !own.includes(each));
    // So many are fewer words than those that it has.
    if (3 * lacking.length < own.length) return `all except ${lacking.map((each) => dtypes[each]).join(" ")}`;
    for (const [name, members] of Object.entries(groups)) {
      const left = members.filter((each) => !own.includes(each));
      if (left.length === 1 && members.length === own.length + 1 && own.length > 1) return `${name} except ${dtypes[left[0]]}`;
    }
    return own.map((each) => dtypes[each]).join(" ");
  }

  // What a backend makes of an op, of the dtypes that are shown.
  function shown(op, index) {
    return op.cells
      .filter(([own]) => own === index)
      .map(([, supported, text, own]) => ({
        supported,
        text: texts[text],
        dtypes: own.filter((each) => dtype.value === "" || each === -1 || each === Number(dtype.value)),
      }))
      .filter((way) => way.dtypes.length);
  }

  function state(ways) {
    const of = (supported) => ways.filter((way) => way.supported === supported).flatMap((way) => way.dtypes);
    const [yes, no] = [of(SUPPORTED), of(0)];
    if (!yes.length && !no.length) return element("span", {}, "–");
    const order = (own) => own.sort((first, second) => first - second);
    if (!yes.length) return element("span", { class: "state none" }, dtype.value === "" ? "none" : "no");
    const text = dtype.value === "" ? named(order(yes), order([...yes, ...no])) : "yes";
    return element("span", { class: `state ${no.length ? "part" : "whole"}` }, text);
  }

  function matches(op, columns) {
    if (op.internal && !internal.checked) return false;
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const ways = columns.flatMap((index) => shown(op, index));
    const text = [op.name, op.method, ...ways.map((way) => way.text)].join(" ").toLowerCase();
    if (!ways.length || !words.every((word) => text.includes(word))) return false;
    if (status.value === "gradient") return op.gradient;
    return status.value === "" || ways.some((way) => way.supported === Number(status.value));
  }

  // A name that may be broken at its underscores.
  function broken(name) {
    return name.split(/(?<=_)/).flatMap((part, index) => (index ? [element("wbr"), part] : [part]));
  }

  function row(op, columns) {
    const link = element("a", { href: `ops/${op.name}.html` }, ...broken(op.name));
    const title = element("th", { scope: "row" }, link);
    if (op.method !== op.name) title.append(element("small", {}, op.method));
    const cells = columns.map((index) =>
      element(
        "td",
        { role: "gridcell", tabindex: "-1", "aria-expanded": "false", "data-backend": backends[index], "data-index": index },
        state(shown(op, index)),
      ),
    );
    const made = element("tr", {}, title, ...cells);
    made.op = op;
    return made;
  }

  function render() {
    const columns = [...backends.keys()].filter((index) => backend.value === "" || index === Number(backend.value));
    const found = ops.filter((op) => matches(op, columns));
    head.replaceChildren(
      element("tr", {}, ...["op", ...columns.map((index) => backends[index])].map((text) => element("th", { scope: "col" }, text))),
    );
    body.replaceChildren(...found.map((op) => row(op, columns)));
    const first = body.querySelector("td");
    if (first) first.tabIndex = 0;
    const shown = ops.filter((op) => internal.checked || !op.internal);
    document.getElementById("count").textContent = `${found.length} of ${shown.length} ops`;
    document.getElementById("nothing").hidden = found.length > 0;
  }

  // How a backend does the op of a cell, or why it does not, in a row below it.
  function toggle(cell) {
    const own = cell.parentElement;
    const isOpen = cell.getAttribute("aria-expanded") === "true";
    if (own.nextElementSibling?.classList.contains("how")) own.nextElementSibling.remove();
    for (const each of own.querySelectorAll("td")) each.setAttribute("aria-expanded", "false");
    if (isOpen) return;
    cell.setAttribute("aria-expanded", "true");
    const list = element("dl");
    for (const way of shown(own.op, Number(cell.dataset.index))) {
      const those = way.dtypes.includes(-1) ? cell.dataset.backend : way.dtypes.map((each) => dtypes[each]).join(" ");
      list.append(
        element("dt", {}, those),
        element("dd", {}, ...(way.supported ? [element("code", {}, way.text)] : [`not supported: ${way.text}`])),
      );
    }
    own.after(element("tr", { class: "how" }, element("td", { colspan: own.children.length }, list)));
  }

  function move(cell, rows, columns) {
    const lines = [...body.rows].filter((line) => line.op);
    const line = lines[Math.min(Math.max(lines.indexOf(cell.parentElement) + rows, 0), lines.length - 1)];
    const cells = line.querySelectorAll("td");
    const next = cells[Math.min(Math.max([...cell.parentElement.querySelectorAll("td")].indexOf(cell) + columns, 0), cells.length - 1)];
    if (rows < 0 && lines[0] === cell.parentElement) return search.focus();
    cell.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }

  const MOVES = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1], PageUp: [-10, 0], PageDown: [10, 0] };
  body.addEventListener("keydown", (event) => {
    const cell = event.target.closest("td[role=gridcell]");
    if (!cell || event.target.tagName === "A") return;
    if (event.key in MOVES) move(cell, ...MOVES[event.key]);
    else if (event.key === "Enter" || event.key === " ") toggle(cell);
    else return;
    event.preventDefault();
  });
  body.addEventListener("click", (event) => {
    const cell = event.target.closest("td[role=gridcell]");
    if (cell) toggle(cell);
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "/" || event.ctrlKey || event.metaKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
    event.preventDefault();
    search.focus();
    search.select();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && search.value) {
      search.value = "";
      render();
    } else if (event.key === "ArrowDown") body.querySelector("td[tabindex='0']")?.focus();
    else return;
    event.preventDefault();
  });
  document.getElementById("filters").addEventListener("submit", (event) => event.preventDefault());
  for (const each of [search, backend, dtype, status, internal]) each.addEventListener("input", render);
  document.getElementById("reset").addEventListener("click", () => {
    for (const each of [search, backend, dtype, status]) each.value = "";
    render();
    search.focus();
  });
  for (const [list, names] of [[backend, backends], [dtype, dtypes]]) {
    names.forEach((name, index) => list.append(element("option", { value: index }, name)));
  }
  for (const [name, members] of Object.entries(groups)) {
    const own = members.map((each) => dtypes[each]).join(" ");
    document.querySelector("#groups dl").append(element("dt", {}, name), element("dd", {}, own));
  }
  search.value = decodeURIComponent(location.hash.slice(1));
  // A link to an internal op shows it.
  internal.checked = ops.some((op) => op.internal && op.name === search.value);
  render();
})();
