"use strict";
// Zooming: every mark carries its moments (data-a, data-b: milliseconds), places are percentages of what is shown.
(() => {
  const chart = document.getElementById("chart");
  const bar = document.getElementById("bar");
  const shown = document.getElementById("shown");
  const axis = document.getElementById("axis");
  const all = [Number(chart.dataset.a), Number(chart.dataset.b)];
  const marks = Array.from(chart.querySelectorAll("[data-a]"));
  const steps = chart.dataset.steps.split(" ").map(Number);
  const least = 1; // a millisecond
  let [a, b] = all;

  const place = (t) => (100 * (t - a)) / (b - a);
  const iso = (t) => new Date(t).toISOString();
  const label = (t, step) => {
    const text = iso(t);
    if (step >= 86400000) return text.slice(0, 10);
    if (step >= 60000) return (t % 86400000 === 0 ? text.slice(0, 10) + " " : "") + text.slice(11, 16);
    return step >= 1000 ? text.slice(11, 19) : text.slice(11, 23);
  };

  function draw() {
    for (const mark of marks) {
      const from = place(Number(mark.dataset.a));
      const to = mark.dataset.b === undefined ? from : place(Number(mark.dataset.b));
      mark.setAttribute("display", to < -1 || from > 101 ? "none" : "inline");
      if (mark.tagName === "rect") {
        const left = Math.max(from, -1);
        mark.setAttribute("x", left + "%");
        mark.setAttribute("width", Math.max(Math.min(to, 101) - left, 0.15) + "%");
      } else if (mark.tagName === "text") {
        const left = Math.max(from, 0);
        mark.setAttribute("x", left + "%");
        mark.setAttribute("visibility", Math.min(to, 100) - left > 13 ? "visible" : "hidden");
      } else if (mark.tagName === "circle") {
        mark.setAttribute("cx", from + "%");
      } else {
        mark.setAttribute("x1", from + "%");
        mark.setAttribute("x2", from + "%");
      }
    }
    const step = steps.find((size) => (b - a) / size <= 8) || steps[steps.length - 1];
    axis.replaceChildren();
    for (let t = Math.ceil(a / step) * step; t <= b; t += step) {
      const at = place(t);
      const line = document.createElementNS(chart.namespaceURI, "line");
      for (const [name, value] of [["x1", at + "%"], ["x2", at + "%"], ["y1", "18"], ["y2", "100%"], ["class", "tick"]]) {
        line.setAttribute(name, value);
      }
      const text = document.createElementNS(chart.namespaceURI, "text");
      text.setAttribute("x", at + "%");
      text.setAttribute("y", "12");
      text.setAttribute("text-anchor", at < 4 ? "start" : at > 96 ? "end" : "middle");
      text.textContent = label(t, step);
      axis.append(line, text);
    }
    shown.textContent = iso(a).replace("T", " ").slice(0, 23) + " to " + iso(b).replace("T", " ").slice(0, 23) + " UTC";
  }

  function show(from, to, remember = true) {
    const size = Math.min(Math.max(to - from, least), all[1] - all[0]);
    a = Math.min(Math.max(from, all[0]), all[1] - size);
    b = a + size;
    draw();
    if (remember) history.replaceState(null, "", "#" + new URLSearchParams({ from: iso(a), to: iso(b) }));
  }

  function zoom(factor, at = (a + b) / 2) {
    show(at - (at - a) * factor, at + (b - at) * factor);
  }

  const acts = {
    in: () => zoom(0.5),
    out: () => zoom(2),
    left: () => show(a - (b - a) / 3, b - (b - a) / 3),
    right: () => show(a + (b - a) / 3, b + (b - a) / 3),
    all: () => show(all[0], all[1]),
  };
  const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
  for (const button of bar.querySelectorAll("button")) button.addEventListener("click", () => acts[button.dataset.act]());
  chart.addEventListener("keydown", (event) => {
    if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    acts[keys[event.key]]();
  });

  const moment = (event) => {
    const box = chart.getBoundingClientRect();
    return a + ((b - a) * Math.min(Math.max(event.clientX - box.left, 0), box.width)) / box.width;
  };
  chart.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.metaKey) return; // the page scrolls
    event.preventDefault();
    zoom(event.deltaY < 0 ? 0.7 : 1.4, moment(event));
  }, { passive: false });

  let start = null;
  let brush = null;
  chart.addEventListener("pointerdown", (event) => {
    if (event.button === 0 && event.pointerType === "mouse") start = { x: event.clientX, t: moment(event) };
  });
  addEventListener("pointermove", (event) => {
    if (start === null || Math.abs(event.clientX - start.x) < 5) return;
    if (brush === null) {
      brush = document.createElementNS(chart.namespaceURI, "rect");
      brush.setAttribute("class", "brush");
      brush.setAttribute("y", "18");
      brush.setAttribute("height", "100%");
      chart.append(brush);
    }
    const ends = [place(start.t), place(moment(event))].sort((one, two) => one - two);
    brush.setAttribute("x", ends[0] + "%");
    brush.setAttribute("width", ends[1] - ends[0] + "%");
  });
  addEventListener("pointerup", (event) => {
    if (brush !== null) {
      const ends = [start.t, moment(event)].sort((one, two) => one - two);
      brush.remove();
      brush = null;
      addEventListener("click", (click) => { click.preventDefault(); click.stopPropagation(); }, { capture: true, once: true });
      setTimeout(() => show(ends[0], ends[1]), 0);
    }
    start = null;
  });
  chart.addEventListener("dragstart", (event) => event.preventDefault());
  chart.addEventListener("dblclick", acts.all);

  bar.hidden = false;
  chart.classList.add("live");
  chart.setAttribute("tabindex", "0");
  const wanted = new URLSearchParams(location.hash.slice(1));
  const [from, to] = [Date.parse(wanted.get("from")), Date.parse(wanted.get("to"))];
  if (from < to) show(from, to, false);
  else draw();
  document.documentElement.dataset.ready = "yes";
})();
