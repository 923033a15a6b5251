// Makes the pictures of a page answer: marks tell what they are, graphs zoom, boxes open, cuts show.
// All text comes from the page and is set as text. Without this script the page shows the same facts.
"use strict";

const make = (tag, properties = {}) => Object.assign(document.createElement(tag), properties);

// What a mark says when it is pointed at or focused: its title, where the browser would show it late
// and only to a mouse.
const tip = make("div", {className: "tip", hidden: true});
document.body.append(tip);

function speak(root) {
  for (const node of root.querySelectorAll(".node")) {
    const title = node.querySelector("title");
    if (!title) continue;
    node.setAttribute("aria-label", title.textContent);
    if (node.localName === "g") node.setAttribute("role", "img");
    // Of the marks of a chart, only one is a stop of Tab.
    if (root.closest(".viewer")) node.setAttribute("tabindex", "0");
    title.remove();
  }
}

function point(event) {
  // Scrolling to what has the focus moves the page below a resting mouse.
  const aim = ".node[aria-label]";
  const node = event.target.closest?.(aim) ?? document.activeElement.closest(aim);
  tip.hidden = !node;
  if (!node) return;
  tip.textContent = node.getAttribute("aria-label");
  const box = node.getBoundingClientRect();
  const room = document.documentElement.clientWidth - tip.offsetWidth - 8;
  const above = box.top - tip.offsetHeight - 6;
  const fits = box.bottom + tip.offsetHeight + 6 < document.documentElement.clientHeight;
  tip.style.left = `${Math.max(8, Math.min(box.left, room))}px`;
  tip.style.top = `${scrollY + (fits || above < 0 ? box.bottom + 6 : above)}px`;
}

for (const kind of ["pointerover", "focusin"]) document.addEventListener(kind, point);
document.addEventListener("focusout", () => { tip.hidden = true; });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });

// A graph in a frame: a part of the picture, moved by dragging, arrow keys and buttons.
class Viewer {
  constructor(figure) {
    this.frame = figure.querySelector(".frame");
    this.whole = this.frame.querySelector("svg");
    this.parts = figure.querySelector(".parts");
    this.rows = [...figure.querySelectorAll("tr[data-cut]")];
    figure.classList.add("viewer");
    this.frame.tabIndex = 0;
    this.frame.setAttribute("role", "region");
    this.frame.setAttribute("aria-label", "graph; plus and minus zoom, arrow keys move, 0 shows all");
    this.bar = make("div", {className: "bar"});
    this.button("Zoom in", () => this.zoom(1.5));
    this.button("Zoom out", () => this.zoom(1 / 1.5));
    this.button("Show all", () => this.fit());
    this.back = this.button("Back to the whole graph", () => this.open(this.whole));
    this.addSearch();
    if (this.rows.length) this.addCuts();
    figure.prepend(this.bar);
    if (this.parts) this.parts.hidden = true;
    this.listen();
    this.open(this.whole);
  }

  button(text, action) {
    const button = make("button", {type: "button", textContent: text, onclick: action});
    this.bar.append(button);
    return button;
  }

  // Marks the boxes whose ops, tensors or source nodes have a text in their names.
  addSearch() {
    const label = make("label", {textContent: "Find op "});
    this.field = make("input", {type: "search"});
    this.field.oninput = () => this.find();
    label.append(this.field);
    this.bar.append(label);
  }

  find() {
    const text = this.field.value.toLowerCase();
    for (const node of this.svg.querySelectorAll(".node[data-ops]")) {
      node.classList.toggle("match", text !== "" && node.getAttribute("aria-label").toLowerCase().includes(text));
    }
  }

  // A slider over the legal cuts; the ops after the chosen one are dimmed.
  addCuts() {
    const label = make("label", {textContent: "Legal cut ", className: "slide"});
    this.slider = make("input", {type: "range", min: 0, max: this.rows.length, value: 0});
    this.said = make("output", {textContent: "none"});
    label.append(this.slider);
    this.bar.append(label, this.said);
    this.slider.addEventListener("input", () => this.paint());
    this.rows.forEach((row, place) => {
      row.addEventListener("pointerenter", () => {
        this.slider.value = place + 1;
        this.paint();
      });
    });
  }

  paint() {
    if (!this.slider) return;
    const row = this.rows[this.slider.value - 1];
    const cut = BigInt(`0x${row ? row.dataset.cut : "0"}`);
    for (const other of this.rows) other.classList.toggle("chosen", other === row);
    this.said.textContent = row ? [...row.cells].map((cell) => `${cell.dataset.label}: ${cell.textContent}`).join("; ") : "none";
    for (const node of this.svg.querySelectorAll("[data-ops]")) {
      const ops = BigInt(`0x${node.dataset.ops}`);
      node.classList.toggle("after", row !== undefined && ops !== 0n && !(ops & cut));
      node.classList.toggle("torn", row !== undefined && (ops & cut) !== 0n && (ops & ~cut) !== 0n);
    }
  }

  open(svg) {
    this.svg = svg === this.whole ? svg : svg.cloneNode(true);
    this.frame.replaceChildren(this.svg);
    this.svg.setAttribute("preserveAspectRatio", "xMidYMin");
    this.back.hidden = svg === this.whole;
    const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
    this.size = [width, height];
    speak(this.svg);
    this.paint();
    this.find();
    this.fit();
    // A long picture would be too small to read: then its beginning is shown.
    const scale = this.frame.clientWidth / width;
    if (svg !== this.whole && scale < 0.6) this.set(0, 0, 0.7 / scale);
  }

  fit() { this.set(0, 0, 1); }

  // Shows the picture `scale` times as large as where all of it fits, from the point (x, y).
  set(x, y, scale) {
    const [width, height] = this.size;
    this.scale = Math.max(1, Math.min(scale, 60));
    const [w, h] = [width / this.scale, height / this.scale];
    this.x = Math.max(0, Math.min(x, width - w));
    this.y = Math.max(0, Math.min(y, height - h));
    this.svg.setAttribute("viewBox", `${this.x} ${this.y} ${w} ${h}`);
    this.frame.style.maxWidth = `${1.4 * width}px`;
    this.frame.style.aspectRatio = `${width} / ${Math.max(height, width / 5)}`;
    this.frame.classList.toggle("zoomed", this.scale > 1);
    tip.hidden = true;
  }

  // Keeps the point of the picture at the place (left, top), shares of the frame, where it is.
  zoom(factor, left = 0.5, top = 0.5) {
    const [width, height] = this.size;
    const next = Math.max(1, Math.min(this.scale * factor, 60));
    const change = 1 / this.scale - 1 / next;
    this.set(this.x + left * width * change, this.y + top * height * change, next);
  }

  move(right, down) {
    const [width, height] = this.size;
    this.set(this.x + (right * width) / this.scale, this.y + (down * height) / this.scale, this.scale);
  }

  listen() {
    const keys = {
      "+": () => this.zoom(1.5), "=": () => this.zoom(1.5), "-": () => this.zoom(1 / 1.5),
      "0": () => this.fit(), "ArrowLeft": () => this.move(-0.2, 0), "ArrowRight": () => this.move(0.2, 0),
      "ArrowUp": () => this.move(0, -0.2), "ArrowDown": () => this.move(0, 0.2),
    };
    this.frame.addEventListener("keydown", (event) => {
      if (!keys[event.key] || event.ctrlKey || event.metaKey) return;
      keys[event.key]();
      event.preventDefault();
    });
    this.frame.addEventListener("wheel", (event) => {
      // The wheel alone scrolls the page, as everywhere.
      if (!event.ctrlKey && !event.metaKey) return;
      const box = this.frame.getBoundingClientRect();
      const [left, top] = [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
      this.zoom(Math.exp(-event.deltaY / 300), left, top);
      event.preventDefault();
    }, {passive: false});
    this.frame.addEventListener("pointerdown", (event) => { this.start = [event.clientX, event.clientY]; this.dragged = false; });
    this.frame.addEventListener("pointermove", (event) => {
      if (!event.buttons || !this.start || this.scale === 1) return;
      const [dx, dy] = [event.clientX - this.start[0], event.clientY - this.start[1]];
      if (!this.dragged && Math.hypot(dx, dy) < 5) return;
      this.dragged = true;
      this.start = [event.clientX, event.clientY];
      this.move(-dx / this.frame.clientWidth, -dy / this.frame.clientHeight);
    });
    this.frame.addEventListener("dragstart", (event) => event.preventDefault());
    this.frame.addEventListener("click", (event) => {
      const link = event.target.closest("a");
      if (!link) return;
      event.preventDefault();
      const part = document.getElementById(link.getAttribute("href").slice(1));
      if (!this.dragged && part) {
        this.open(part.querySelector("svg"));
        this.back.focus();
      }
    });
  }
}

// In a chart Tab leads to one mark, and the arrow keys, Home and End to the others.
function rove(svg) {
  const marks = [...svg.querySelectorAll(".node")];
  marks.forEach((mark, place) => mark.setAttribute("tabindex", place ? -1 : 0));
  const ends = {Home: -marks.length, End: marks.length};
  const steps = {ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, ...ends};
  svg.addEventListener("keydown", (event) => {
    const place = marks.indexOf(document.activeElement);
    if (!(event.key in steps) || place < 0) return;
    const next = Math.max(0, Math.min(place + steps[event.key], marks.length - 1));
    marks[place].setAttribute("tabindex", -1);
    marks[next].setAttribute("tabindex", 0);
    marks[next].focus();
    event.preventDefault();
  });
}

// What a visitor made of the tables, by their captions: it outlives a renewal.
const orders = new Map();

// A click on a title sorts the rows by that column, and again the other way round; a field filters.
class Sortable {
  constructor(table) {
    this.table = table;
    this.body = table.tBodies[0];
    this.rows = [...this.body.rows];
    this.order = orders.get(table.caption.textContent) ?? {column: null, sign: 1, text: ""};
    orders.set(table.caption.textContent, this.order);
    this.titles = [...table.tHead.rows[0].cells];
    this.titles.forEach((title, column) => {
      const button = make("button", {type: "button", textContent: title.textContent});
      button.onclick = () => {
        this.order.sign = this.order.column === column ? -this.order.sign : 1;
        this.order.column = column;
        this.apply();
      };
      title.replaceChildren(button);
    });
    const label = make("label", {textContent: "Filter "});
    const field = make("input", {type: "search", value: this.order.text});
    field.oninput = () => { this.order.text = field.value; this.apply(); };
    label.append(field);
    const bar = make("div", {className: "bar"});
    bar.append(label);
    table.parentElement.before(bar);
    this.apply();
  }

  apply() {
    const {column, sign, text} = this.order;
    const rows = [...this.rows];
    if (column !== null) rows.sort((a, b) => compare(a.cells[column].textContent, b.cells[column].textContent, sign));
    this.titles.forEach((title, place) => {
      if (place === column) title.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      else title.removeAttribute("aria-sort");
    });
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(text.toLowerCase());
    this.body.replaceChildren(...rows);
  }
}

// Numbers by value, texts by letter, what is empty last.
function compare(a, b, sign) {
  const [x, y] = [parseFloat(a), parseFloat(b)];
  if (!a || !b) return (a ? 0 : 1) - (b ? 0 : 1);
  return sign * (isNaN(x) || isNaN(y) ? a.localeCompare(b) : x - y);
}

function enliven(root) {
  for (const figure of root.querySelectorAll("figure.graph")) new Viewer(figure);
  for (const table of root.querySelectorAll("table.sortable")) new Sortable(table);
  for (const svg of root.querySelectorAll("figure.chart svg")) {
    speak(svg);
    rove(svg);
  }
}

// The parts of a page below its head, which alone change while a study runs.
const parts = (page) => [...page.querySelectorAll("main > :not(header)")];
const served = parts(document).map((part) => part.outerHTML);
enliven(document);

// Takes over the parts that have changed; the others stay as they were scrolled, zoomed and opened.
async function renew() {
  const answer = await fetch(location.href);
  const next = new DOMParser().parseFromString(await answer.text(), "text/html");
  const shown = parts(document);
  const news = parts(next);
  news.forEach((part, place) => {
    const text = part.outerHTML;
    const old = shown[place];
    if (text === served[place]) return;
    served[place] = text;
    const open = [...(old?.querySelectorAll("[open] > summary") ?? [])].map((s) => s.textContent);
    for (const s of part.querySelectorAll("summary")) s.parentElement.open = open.includes(s.textContent);
    if (old) old.replaceWith(part);
    else document.querySelector("main").append(part);
    enliven(part);
  });
  for (const old of shown.slice(news.length)) old.remove();
  served.length = news.length;
}

// The dashboard serves the page of a study that may be running; a report has no such element.
if (document.querySelector("[data-live]")) {
  // A server that has ended, or answers late, is asked again.
  setInterval(() => renew().catch(() => {}), 3000);
}
