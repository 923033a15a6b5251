// Makes the pictures of a page answer: marks tell what they are, ops are found, cuts show.
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
    if (root.matches(".frame")) node.setAttribute("tabindex", "0");
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

// The graph: ops can be found by name, and a legal cut that is pointed at dims the ops after it.
function explore(figure) {
  const frame = figure.querySelector(".frame");
  frame.tabIndex = 0;
  frame.setAttribute("role", "region");
  frame.setAttribute("aria-label", "graph");
  speak(frame);
  const ops = [...frame.querySelectorAll(".node[data-ops]")];
  const label = make("label", {textContent: "Find op "});
  const field = make("input", {type: "search"});
  const count = make("output");
  field.oninput = () => {
    const text = field.value.toLowerCase();
    const isMatch = (node) => text !== "" && node.getAttribute("aria-label").toLowerCase().includes(text);
    for (const node of ops) node.classList.toggle("match", isMatch(node));
    const matches = ops.filter(isMatch);
    count.textContent = text ? `${matches.length} of ${ops.length}` : "";
    matches[0]?.scrollIntoView({block: "nearest"});
  };
  label.append(field);
  const bar = make("div", {className: "bar"});
  bar.append(label, count);
  figure.prepend(bar);
  const rows = [...figure.querySelectorAll("tr[data-cut]")];
  const show = (event) => {
    const row = event.target.closest("tr[data-cut]");
    if (!row) return;
    const cut = BigInt(`0x${row.dataset.cut}`);
    for (const other of rows) other.classList.toggle("chosen", other === row);
    for (const node of ops) node.classList.toggle("after", !(BigInt(`0x${node.dataset.ops}`) & cut));
  };
  for (const kind of ["pointerover", "focusin"]) figure.addEventListener(kind, show);
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
  for (const figure of root.querySelectorAll("figure.graph")) explore(figure);
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
