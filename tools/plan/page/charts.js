// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
'use strict';
// Drawing that knows nothing of plans: texts, tables, patterns, and a canvas
// whose time axis can be zoomed and moved.

const number = (value, digits = 3) => value.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
const ms = us => number(us / 1e3) + ' ms';
// Small tensors have a few KiB, which would round to no MiB.
const mib = bytes => bytes < 104857.6 ? number(bytes / 1024, 1) + ' KiB' : number(bytes / 1048576, 1) + ' MiB';
const percent = share => number(100 * share, 1) + ' %';

// Elements get their texts as text nodes only: names come from a model.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

// Rows of a list with columns, as objects.
function records(list) {
  return list.rows.map(row => Object.fromEntries(list.columns.map((name, i) => [name, row[i]])));
}

// Fills a table. A column is [title, key, text of a value]; a click on its title sorts.
function fillTable(id, columns, rows) {
  const table = document.getElementById(id), body = element('tbody');
  const show = sorted => body.replaceChildren(...sorted.map(row =>
    element('tr', {}, ...columns.map(([, key, text]) => element('td', {}, text ? text(row[key], row) : String(row[key]))))));
  const head = element('tr', {}, ...columns.map(([title, key]) => {
    const cell = element('th', {scope: 'col', 'aria-sort': 'none', tabindex: '0'}, title);
    const sort = () => {
      const down = cell.getAttribute('aria-sort') !== 'descending';
      for (const other of head.children) other.setAttribute('aria-sort', 'none');
      cell.setAttribute('aria-sort', down ? 'descending' : 'ascending');
      const order = (a, b) => a[key] === b[key] ? 0 : (a[key] ?? -Infinity) < (b[key] ?? -Infinity) ? 1 : -1;
      show([...rows].sort((a, b) => down ? order(a, b) : order(b, a)));
    };
    cell.addEventListener('click', sort);
    cell.addEventListener('keydown', event => { if (event.key === 'Enter') sort(); });
    return cell;
  }));
  table.replaceChildren(element('thead', {}, head), body);
  show(rows);
}

const colour = name => getComputedStyle(document.documentElement).getPropertyValue('--' + name).trim();

// A fill of a colour with a pattern on it, so that colours need not be seen.
function fillOf(context, name, pattern) {
  const size = 8, tile = document.createElement('canvas');
  tile.width = tile.height = size;
  const pen = tile.getContext('2d');
  pen.fillStyle = colour(name);
  pen.fillRect(0, 0, size, size);
  pen.strokeStyle = colour('back');
  pen.lineWidth = 1.5;
  pen.beginPath();
  if (pattern === 'rising') { pen.moveTo(0, size); pen.lineTo(size, 0); }
  if (pattern === 'falling') { pen.moveTo(0, 0); pen.lineTo(size, size); }
  if (pattern === 'dots') pen.arc(size / 2, size / 2, 1, 0, 7);
  if (pattern === 'bars') { pen.moveTo(size / 2, 0); pen.lineTo(size / 2, size); }
  pen.stroke();
  return context.createPattern(tile, 'repeat');
}

// Sizes a canvas for the screen and returns its pen, in CSS pixels.
function penOf(canvas, height) {
  const ratio = window.devicePixelRatio || 1, width = canvas.clientWidth;
  canvas.style.height = height + 'px';
  canvas.width = Math.round(width * ratio);
  canvas.height = Math.round(height * ratio);
  const pen = canvas.getContext('2d');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.font = '12px system-ui, sans-serif';
  pen.textBaseline = 'middle';
  return pen;
}

// 1, 2 or 5 times a power of ten, so that a range has some five steps.
function roundStep(range) {
  const power = 10 ** Math.floor(Math.log10(range / 5)), times = range / 5 / power;
  return power * (times > 5 ? 10 : times > 2 ? 5 : times > 1 ? 2 : 1);
}

// A range of time that several canvases show.
class View {
  constructor(end) { this.end = end; this.from = 0; this.to = end; this.listeners = []; }
  onChange(listener) { this.listeners.push(listener); }
  set(from, to) {
    const least = this.end / 1e5, width = Math.min(Math.max(to - from, least), this.end);
    this.from = Math.min(Math.max(from, 0), this.end - width);
    this.to = this.from + width;
    for (const listener of this.listeners) listener();
  }
  zoom(factor, at = (this.from + this.to) / 2) { this.set(at - (at - this.from) * factor, at + (this.to - at) * factor); }
  move(share) { const by = (this.to - this.from) * share; this.set(this.from + by, this.to + by); }
}

// Lets wheel, drag, pinch and keys move a view. `show` gets positions that were pointed at.
function control(canvas, view, left, show) {
  const time = x => view.from + (x - left) / (canvas.clientWidth - left) * (view.to - view.from);
  const at = event => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  canvas.addEventListener('wheel', event => {
    event.preventDefault();
    view.zoom(event.deltaY > 0 ? 1.25 : 0.8, time(at(event)[0]));
  }, {passive: false});
  const held = new Map();
  canvas.addEventListener('pointerdown', event => { held.set(event.pointerId, at(event)); canvas.setPointerCapture(event.pointerId); show(...at(event), event); });
  canvas.addEventListener('pointermove', event => {
    const before = held.get(event.pointerId), now = at(event);
    if (!before) return show(...now, event);
    held.set(event.pointerId, now);
    if (held.size === 1) return view.move((before[0] - now[0]) / (canvas.clientWidth - left));
    const other = [...held].find(([id]) => id !== event.pointerId)[1];
    const apart = Math.abs(now[0] - other[0]);
    if (apart > 5) view.zoom(Math.abs(before[0] - other[0]) / apart, time(other[0]));
  });
  for (const end of ['pointerup', 'pointercancel']) canvas.addEventListener(end, event => held.delete(event.pointerId));
  canvas.addEventListener('pointerleave', () => show(-1, -1));
  canvas.addEventListener('keydown', event => {
    const act = {'+': () => view.zoom(0.7), '-': () => view.zoom(1.4), ArrowLeft: () => view.move(-0.2), ArrowRight: () => view.move(0.2)}[event.key];
    if (act) { act(); event.preventDefault(); }
  });
}

// Draws the axis of time at the bottom, and returns the place of a time.
function timeAxis(pen, view, left, width, height) {
  const x = us => left + (us - view.from) / (view.to - view.from) * (width - left);
  const step = roundStep(view.to - view.from);
  const digits = Math.max(0, Math.min(6, 3 - Math.floor(Math.log10(step))));
  pen.fillStyle = colour('faint');
  pen.strokeStyle = colour('line');
  pen.textAlign = 'center';
  for (let us = Math.ceil(view.from / step) * step; us <= view.to; us += step) {
    pen.beginPath(); pen.moveTo(x(us), 0); pen.lineTo(x(us), height - 16); pen.stroke();
    if (x(us) > left + 24 && x(us) < width - 24) pen.fillText(number(us / 1e3, digits) + ' ms', x(us), height - 8);
  }
  return x;
}

// Elements of SVG, for charts that documents copy.
function svg(tag, attributes, text) {
  const made = document.createElementNS('http://www.w3.org/2000/svg', tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text !== undefined) made.textContent = text;
  return made;
}
