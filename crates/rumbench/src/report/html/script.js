"use strict";
// Optional interaction: the page is complete without this script. No number is stored twice: the
// points of curves are read from their SVG paths.
(() => {
  const tip = document.getElementById("tip");
  const show = (text, x, y) => {
    tip.textContent = text;
    tip.hidden = false;
    const box = tip.getBoundingClientRect();
    const left = x + 14 + box.width > innerWidth ? x - box.width - 14 : x + 14;
    const top = y + 14 + box.height > innerHeight ? y - box.height - 14 : y + 14;
    tip.style.left = Math.max(4, left) + "px";
    tip.style.top = Math.max(4, top) + "px";
  };
  const hide = () => { tip.hidden = true; };

  // Shows the definition of a metric at its header.
  for (const link of document.querySelectorAll('a[href^="#m-"]')) {
    const term = document.getElementById(link.getAttribute("href").slice(1));
    if (!term) continue;
    const text = term.textContent.trim() + "\n" + term.nextElementSibling.firstChild.textContent.trim();
    link.addEventListener("pointerenter", (event) => show(text, event.clientX, event.clientY));
    link.addEventListener("pointerleave", hide);
    link.addEventListener("focus", () => {
      const box = link.getBoundingClientRect();
      show(text, box.left, box.bottom);
    });
    link.addEventListener("blur", hide);
  }

  // Sorts tables by a column. Numbers sort as numbers, with or without a mark after them; cells
  // without a measurement are always last.
  const key = (cell) => {
    const text = cell ? cell.textContent.trim() : "";
    const number = /^-?[\d,]+(\.\d+)?( [GR+-])?( !)?$/.test(text) ? parseFloat(text.replace(/,/g, "")) : NaN;
    return { text, number };
  };
  const order = (a, b) => {
    if (a.text === "-" || b.text === "-") return 0;
    if (!isNaN(a.number) && !isNaN(b.number)) return a.number - b.number;
    return a.text.localeCompare(b.text);
  };
  const missing = (k) => (k.text === "-" || k.text === "" ? 1 : 0);
  const sort = (table, column, head) => {
    const sign = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
    for (const other of table.querySelectorAll("th[aria-sort]")) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
    const body = table.tBodies[0];
    const rows = [...body.rows].map((row) => ({ row, key: key(row.cells[column]) }));
    rows.sort((a, b) => missing(a.key) - missing(b.key) || sign * order(a.key, b.key));
    body.append(...rows.map((entry) => entry.row));
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    if (!table.tBodies[0] || table.tBodies[0].rows.length < 2) continue;
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.setAttribute("aria-label", "sort by " + head.textContent);
      button.addEventListener("click", () => sort(table, column, head));
      head.append(button);
    });
  }

  // Names in a legend hide and show an engine in all charts.
  for (const entry of document.querySelectorAll('.legend li[class^="k"]')) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...entry.childNodes);
    button.setAttribute("aria-pressed", "true");
    entry.append(button);
    const engine = entry.className;
    button.addEventListener("click", () => {
      const off = document.body.classList.toggle("off" + engine.slice(1));
      for (const same of document.querySelectorAll("." + engine + " button")) same.setAttribute("aria-pressed", String(!off));
    });
  }

  // Names of engines by the CSS class of their curve.
  const engines = {};
  for (const entry of document.querySelectorAll("ul.verdict li[data-k]")) engines["s" + entry.dataset.k] = entry.querySelector("b").textContent;

  // Returns the points of a path, in thousandths of the frame.
  const points = (path) => {
    if (path.points) return path.points;
    path.points = [];
    let x = 0, y = 0;
    for (const [, command, a, b] of path.getAttribute("d").matchAll(/([MLlh])(-?\d+)[ ]?(-?\d+)?/g)) {
      if (command === "h") continue;
      x = (command === "l" ? x : 0) + Number(a);
      y = (command === "l" ? y : 0) + Number(b);
      path.points.push([x, y]);
    }
    return path.points;
  };
  const three = (value) => {
    if (value === 0) return "0";
    const size = Math.abs(value);
    if (size >= 99.95) return Math.round(value).toLocaleString("en-US");
    return value.toPrecision(3);
  };
  const named = (value, unit) => {
    if (unit !== "us") return three(value);
    if (value >= 999500) return three(value / 1e6) + " s";
    if (value >= 999.5) return three(value / 1e3) + " ms";
    return three(value) + " us";
  };
  const clock = (seconds) => (seconds >= 60 ? Math.floor(seconds / 60) + " min " + Math.round(seconds % 60) : three(seconds)) + " s";

  // Returns the ends of the horizontal axis of a chart, and the function that formats its labels.
  // Stacked charts share one axis.
  const axis = (svg) => {
    const [from, to, plain] = svg.closest("[data-x]").dataset.x.split(" ");
    return { from: Number(from), to: Number(to), label: plain === "n" ? three : clock };
  };

  // Zooms all charts that share an axis to a part of it, in thousandths of its length.
  const whole = [0, 1000];
  const shown = (svg) => svg.closest("[data-x]").shownPart || whole;
  const zoom = (svg, low, high) => {
    const holder = svg.closest("[data-x]");
    holder.shownPart = high - low < 1000 ? [low, high] : whole;
    for (const other of holder === svg ? [svg] : holder.querySelectorAll("svg[data-y]")) {
      other.setAttribute("viewBox", `${holder.shownPart[0]} 0 ${holder.shownPart[1] - holder.shownPart[0]} 1000`);
      other.classList.toggle("zoomed", holder.shownPart !== whole);
    }
    const labels = (holder === svg ? svg.closest(".frame") : holder).querySelector(".x");
    if (!labels) return;
    labels.all = labels.all || [...labels.childNodes];
    if (holder.shownPart === whole) return labels.replaceChildren(...labels.all);
    const { from, to, label } = axis(svg);
    const marks = [0, 0.25, 0.5, 0.75, 1].map((share) => {
      const mark = document.createElement("span");
      mark.style.left = share * 100 + "%";
      mark.className = { 0: "first", 1: "last" }[share] || "";
      mark.textContent = label(from + ((low + share * (high - low)) / 1000) * (to - from));
      return mark;
    });
    labels.replaceChildren(...marks);
  };
  // Zooms to at least a twentieth of the axis: a smaller part shows only straight lines.
  const zoomAround = (svg, share, factor) => {
    const [low, high] = shown(svg);
    const length = Math.min(1000, Math.max(50, (high - low) * factor));
    const start = Math.min(1000 - length, Math.max(0, low + share * (high - low) - length / 2));
    zoom(svg, start, start + length);
  };

  // Shows the values at a position of a chart, chosen by pointer or arrow keys.
  const at = (svg, share, clientX, clientY) => {
    const [low, high, unit, kind] = svg.dataset.y.split(" ");
    const value = (y) => {
      const part = 1 - y / 1000;
      return kind === "log" ? low * Math.pow(high / low, part) : Number(low) + part * (high - low);
    };
    const { from, to, label } = axis(svg);
    const [left, right] = shown(svg);
    const names = svg.dataset.names ? svg.dataset.names.split("|") : null;
    const lines = [];
    const title = svg.closest(".stack") ? svg.closest(".frame").querySelector("p").textContent : "";
    // The position is that of the nearest point of any curve. Curves without a point there have
    // ended or have a gap.
    const paths = [...svg.querySelectorAll('path[class^="s"]')].filter((path) => getComputedStyle(path).display !== "none");
    const nearest = (all, x) => all.reduce((best, point) => (!best || Math.abs(point[0] - x) < Math.abs(best[0] - x) ? point : best), null);
    const seen = paths.flatMap(points).filter((point) => point[0] >= left && point[0] <= right);
    const found = nearest(seen, left + share * (right - left));
    if (!found) return hide();
    const place = found[0];
    for (const path of paths) {
      const point = nearest(points(path), place);
      if (!point || Math.abs(point[0] - place) > 2) continue;
      lines.unshift((title || engines[path.getAttribute("class")]) + "  " + named(value(point[1]), unit));
    }
    const x = from + (place / 1000) * (to - from);
    const line = svg.cursor || document.createElementNS("http://www.w3.org/2000/svg", "path");
    svg.cursor = line;
    line.setAttribute("class", "cursor");
    line.setAttribute("d", "M" + place + " 0V1000");
    svg.append(line);
    show((names ? names[Math.round(x)] : label(x)) + "\n" + lines.join("\n"), clientX, clientY);
  };
  const leave = (svg) => {
    if (svg.cursor) svg.cursor.remove();
    hide();
  };
  for (const svg of document.querySelectorAll("svg[data-y]")) {
    const place = (event) => {
      const box = svg.getBoundingClientRect();
      return Math.min(1, Math.max(0, (event.clientX - box.left) / box.width));
    };
    // Position where the mouse button was pressed, or null. Dragging zooms to a range, a double
    // click shows all again, and touch scrolls.
    let down = null;
    const drawn = document.createElementNS("http://www.w3.org/2000/svg", "path");
    drawn.setAttribute("class", "drawn");
    svg.addEventListener("pointerdown", (event) => {
      if (event.pointerType !== "mouse" || event.button !== 0 || svg.dataset.names) return;
      down = place(event);
      svg.setPointerCapture(event.pointerId);
    });
    const drawnOver = (event) => {
      const [low, high] = shown(svg);
      return [down, place(event)].sort((a, b) => a - b).map((share) => low + share * (high - low));
    };
    svg.addEventListener("pointermove", (event) => {
      at(svg, place(event), event.clientX, event.clientY);
      if (down === null) return;
      const [a, b] = drawnOver(event);
      drawn.setAttribute("d", `M${a} 0H${b}V1000H${a}z`);
      svg.append(drawn);
    });
    svg.addEventListener("pointerup", (event) => {
      drawn.remove();
      if (down === null) return;
      const [a, b] = drawnOver(event);
      if (b - a >= 10) zoom(svg, a, b);
      down = null;
    });
    svg.addEventListener("pointercancel", () => {
      drawn.remove();
      down = null;
    });
    svg.addEventListener("dblclick", () => zoom(svg, 0, 1000));
    svg.addEventListener("pointerleave", () => leave(svg));
    svg.addEventListener("blur", () => leave(svg));
    let share = 0;
    svg.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: -0.02, ArrowRight: 0.02 }[event.key];
      if (event.key === "Escape") {
        zoom(svg, 0, 1000);
        return leave(svg);
      }
      const factor = { "+": 0.5, "=": 0.5, "-": 2 }[event.key];
      if (factor && !svg.dataset.names) {
        zoomAround(svg, share, factor);
        share = 0.5;
      }
      if (!step) return;
      event.preventDefault();
      share = Math.min(1, Math.max(0, share + step));
      const box = svg.getBoundingClientRect();
      at(svg, share, box.left + share * box.width, box.top);
    });
  }
  addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  // Unfolds all details for printing.
  addEventListener("beforeprint", () => {
    for (const folded of document.querySelectorAll("details:not([open])")) {
      folded.open = true;
      folded.dataset.printed = "";
    }
  });
  addEventListener("afterprint", () => {
    for (const folded of document.querySelectorAll("details[data-printed]")) folded.open = false;
  });
})();
