// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The page of a plan. All of it comes from the JSON that the compiler wrote.
const plan = JSON.parse(document.getElementById('plan').textContent);
const step = plan.step, ops = records(plan.ops), collectives = records(plan.collectives);
const view = new View(Math.max(step.microbatch_us, plan.trace ? plan.trace.us : 0, 1e-3));
const kinds = {
  forward: {title: 'forward', pattern: ''}, backward: {title: 'backward', pattern: 'rising'},
  gather: {title: 'all-gather', pattern: 'dots'}, reduce: {title: 'reduce-scatter', pattern: 'bars'},
  stall: {title: 'compute waits', pattern: 'falling'},
};

// Returns the bars of each lane: {begin, us, kind, title, details}.
function lanesOf() {
  const describe = op => [op.class + ' ' + op.name, 'unit ' + op.unit + (op.backward ? ', backward' : ', forward'),
    op.node && 'node ' + op.node, op.module && 'module ' + op.module, ms(op.us),
    op.bytes ? mib(op.bytes) + ' moved' : '', op.flops ? number(op.flops / 1e9, 3) + ' Gflop' : ''].filter(Boolean).join('\n');
  const compute = ops.map(op => ({begin: op.begin_us, us: op.us, kind: op.backward ? 'backward' : 'forward', title: op.name, details: describe(op)}));
  const lanes = [{title: 'compute', bars: compute}];
  for (const [kind, title] of [['all_gather', 'gather'], ['reduce_scatter', 'reduce']]) {
    const own = collectives.filter(c => c.class === kind);
    lanes.push({title, bars: own.map(c => ({begin: c.begin_us, us: c.us, kind: title, title: c.name,
      details: [kinds[title].title + ' of ' + c.name, 'unit ' + c.unit + (c.backward ? ', backward' : ', forward'), ms(c.us) + ', ' + mib(c.bytes),
        'started at ' + ms(c.started_us) + ', waited for at ' + ms(c.waited_us), 'stalls compute for ' + ms(c.exposed_us)].join('\n')}))});
    for (const c of own) if (c.exposed_us > 0)
      compute.push({begin: c.waited_us, us: c.exposed_us, kind: 'stall', title: 'waits', details: 'compute waits for the ' + kinds[title].title + ' of ' + c.name + '\n' + ms(c.exposed_us)});
  }
  for (const lane of lanes) lane.bars.sort((a, b) => a.begin - b.begin);
  if (plan.trace) {
    const names = ['compute', 'gather', 'reduce'];
    names.forEach((name, stream) => lanes.push({title: 'measured ' + name, bars: plan.trace.rows.filter(row => row[2] === stream).map(([begin, us, , op, title, unit, backward]) =>
      ({begin, us, kind: stream ? name : backward ? 'backward' : 'forward', title, details: 'measured: ' + op + ' ' + title + '\nunit ' + unit + '\n' + ms(us)}))}));
  }
  return lanes;
}

const lanes = lanesOf(), laneHeight = 34, left = 74;

function drawLanes() {
  const canvas = document.getElementById('lanes'), height = lanes.length * laneHeight + 22, pen = penOf(canvas, height);
  const width = canvas.clientWidth;
  pen.clearRect(0, 0, width, height);
  const x = timeAxis(pen, view, left, width, height);
  const fills = Object.fromEntries(Object.entries(kinds).map(([kind, {pattern}]) => [kind, fillOf(pen, kind, pattern)]));
  lanes.forEach((lane, index) => {
    const top = index * laneHeight + 4;
    pen.save();
    pen.beginPath(); pen.rect(left, top, width - left, laneHeight); pen.clip();
    // Bars narrower than a pixel are drawn once per pixel.
    let drawn = -1;
    for (const bar of lane.bars) {
      if (bar.begin > view.to) break;
      const from = x(bar.begin), to = x(bar.begin + bar.us);
      if (to < left || to < drawn + 0.3) continue;
      pen.fillStyle = fills[bar.kind];
      pen.fillRect(from, top, Math.max(to - from, 0.7), laneHeight - 8);
      drawn = to;
      if (to - from < 40) continue;
      pen.strokeStyle = colour('back');
      pen.strokeRect(from, top, to - from, laneHeight - 8);
      const room = Math.floor((Math.min(to, width) - Math.max(from, left) - 8) / 7), label = bar.title.slice(0, Math.max(room, 0));
      if (!label) continue;
      const begin = Math.max(from, left) + 4;
      pen.fillStyle = colour('back');
      pen.fillRect(begin - 2, top + 5, pen.measureText(label).width + 4, 16);
      pen.fillStyle = colour('text');
      pen.textAlign = 'left';
      pen.fillText(label, begin, top + 13);
    }
    pen.restore();
    pen.fillStyle = colour('text');
    pen.textAlign = 'left';
    lane.title.split(' ').forEach((word, line, all) => pen.fillText(word, 4, top + 13 + (line - (all.length - 1) / 2) * 13));
  });
}

// The bar at a place of the canvas, or undefined. One pixel around counts.
function barAt(px, py) {
  const canvas = document.getElementById('lanes'), lane = lanes[Math.floor(py / laneHeight)];
  if (!lane || px < left) return undefined;
  const us = view.from + (px - left) / (canvas.clientWidth - left) * (view.to - view.from);
  const slack = (view.to - view.from) / (canvas.clientWidth - left);
  return lane.bars.find(bar => bar.begin - slack <= us && us <= bar.begin + bar.us + slack);
}

function showTip(px, py, event) {
  const tip = document.getElementById('tip'), bar = barAt(px, py);
  tip.hidden = !bar || !event;
  if (tip.hidden) return;
  tip.textContent = bar.details;
  document.getElementById('chosen').textContent = bar.details.replaceAll('\n', ' · ');
  tip.style.left = Math.max(4, Math.min(event.clientX + 12, window.innerWidth - tip.offsetWidth - 4)) + 'px';
  tip.style.top = Math.max(4, Math.min(event.clientY + 16, window.innerHeight - tip.offsetHeight - 4)) + 'px';
}

// Stacked areas: what a rank holds besides the arena, then what is live in it.
const areas = [['outside', 'outside the arena', '', 'outside'], ['activations', 'activations', '', 'forward'],
  ['gathered', 'gathered', 'dots', 'gather'], ['gradients', 'gradients in flight', 'bars', 'reduce']];
const memory = records(plan.memory);

function drawMemory() {
  const canvas = document.getElementById('bytes'), height = 220, pen = penOf(canvas, height), width = canvas.clientWidth;
  pen.clearRect(0, 0, width, height);
  const x = timeAxis(pen, view, left, width, height);
  const outside = plan.memory.outside_bytes, total = row => outside + row.activations + row.gathered + row.gradients;
  const limits = [['limit', plan.memory.limit_bytes], ['machine', plan.memory.machine_bytes]].filter(([, bytes]) => bytes > 0);
  const most = Math.max(1, ...memory.map(total)), shown = limits.filter(([, bytes]) => bytes < 2 * most);
  const top = Math.max(most, ...shown.map(([, bytes]) => bytes)) * 1.08;
  const y = bytes => (height - 18) * (1 - bytes / top);
  pen.save();
  pen.beginPath(); pen.rect(left, 0, width - left, height - 18); pen.clip();
  const base = memory.map(() => 0);
  for (const [key, , pattern, name] of areas) {
    pen.fillStyle = fillOf(pen, name, pattern);
    pen.beginPath();
    memory.forEach((row, i) => {
      const end = i + 1 < memory.length ? memory[i + 1].us : step.microbatch_us, bytes = key === 'outside' ? outside : row[key];
      pen.rect(x(row.us), y(base[i] + bytes), x(end) - x(row.us) + 0.3, y(base[i]) - y(base[i] + bytes));
      base[i] += bytes;
    });
    pen.fill();
  }
  pen.restore();
  pen.textAlign = 'left';
  pen.strokeStyle = colour('text');
  for (const [name, bytes] of [...shown, ['planned peak', most]]) {
    pen.setLineDash(name === 'planned peak' ? [2, 3] : [8, 4]);
    pen.beginPath(); pen.moveTo(left, y(bytes)); pen.lineTo(width, y(bytes)); pen.stroke();
    pen.setLineDash([]);
    const label = name + ' ' + mib(bytes), at = width - pen.measureText(label).width - 6;
    pen.fillStyle = colour('back'); pen.fillRect(at - 2, y(bytes) + 2, pen.measureText(label).width + 4, 15);
    pen.fillStyle = colour('text'); pen.fillText(label, at, y(bytes) + 10);
  }
  pen.fillStyle = colour('faint');
  const unit = roundStep(top);
  // The name of the axis stands at its top.
  for (let bytes = unit; bytes < top && y(bytes) > 20; bytes += unit) pen.fillText(number(bytes / 1048576, bytes < 1e8 ? 1 : 0), 4, y(bytes));
  pen.fillText('MiB', 4, 8);
}

function fillLegend() {
  const legend = document.getElementById('legend');
  const entries = [...Object.entries(kinds).map(([kind, {title, pattern}]) => [title, kind, pattern]),
    ...areas.filter(([key]) => key === 'outside').map(([, title, pattern, name]) => [title + ' (memory)', name, pattern])];
  legend.replaceChildren(...entries.map(([title, name, pattern]) => {
    const swatch = element('canvas'), item = element('span', {}, swatch, title);
    legend.append(item);
    swatch.width = 32; swatch.height = 16;
    const pen = swatch.getContext('2d');
    pen.fillStyle = fillOf(pen, name, pattern);
    pen.fillRect(0, 0, 32, 16);
    return item;
  }));
}

function fillSummary() {
  document.title = plan.model + ': plan of a step';
  document.getElementById('title').textContent = 'Plan of a step of ' + plan.model;
  document.getElementById('what').textContent = [plan.machine, step.ranks + ' ranks', plan.strategy, plan.dtype, 'optimizer ' + plan.optimizer,
    'prefetch ' + plan.prefetch, 'recompute ' + plan.recompute].join(' · ');
  const tokens = step.tokens_per_second > 0;
  const figures = [['step', ms(step.step_us)], ['microbatch', ms(step.microbatch_us)], ['update', ms(step.update_us)],
    [tokens ? 'tokens per second' : 'samples per second', number(tokens ? step.tokens_per_second : step.samples_per_second, 1)],
    ['MFU', step.mfu > 0 ? percent(step.mfu) : 'not known'], ['exposed within nodes', ms(step.exposed_node_us)],
    ['exposed between nodes', ms(step.exposed_cross_us)], ['slowed by collectives', ms(step.slowed_us)], ['planned peak of a rank', mib(step.peak_bytes)]];
  document.getElementById('figures').replaceChildren(...figures.map(([name, value]) => element('div', {}, element('dt', {}, name), element('dd', {}, value))));
  const gap = plan.lost_us - plan.least_lost_us;
  document.getElementById('bound').textContent = 'Ops take ' + ms(plan.ops_us) + ' of the microbatch, waits ' + ms(plan.exposed_us) +
    ', and collectives slow ops by ' + ms(step.slowed_us) + '. No schedule within the limit loses less than ' + ms(plan.least_lost_us) + ': the gap of this one is at most ' + ms(Math.max(gap, 0)) +
    ', ' + percent(Math.max(gap, 0) / Math.max(step.microbatch_us, 1e-9)) + ' of the microbatch.';
}

function fillTables() {
  fillTable('owners', [['owner', 'owner'], ['memory', 'bytes', mib]], plan.memory.owners.map(([owner, bytes]) => ({owner, bytes})));
  fillTable('unit-rows', [['unit', 'unit'], ['parameters', 'elements', value => number(value, 0)], ['forward', 'forward_us', ms], ['backward', 'backward_us', ms],
    ['gathers', 'gather_us', ms], ['reductions', 'reduce_us', ms], ['exposed', 'exposed_us', ms],
    ['started ahead', 'ahead_us', value => value === null ? '–' : ms(value)], ['computed again', 'computed_again', value => value ? `${Math.round(100 * value)} %` : '–']], records(plan.units));
  const waits = collectives.filter(c => c.exposed_us > 0).sort((a, b) => b.exposed_us - a.exposed_us).slice(0, 40)
    .map(c => ({...c, title: kinds[c.class === 'all_gather' ? 'gather' : 'reduce'].title + ' of ' + c.name, ahead: c.waited_us - c.started_us}));
  fillTable('waits', [['collective', 'title'], ['pass', 'backward', value => value ? 'backward' : 'forward'], ['takes', 'us', ms], ['started ahead', 'ahead', ms],
    ['exposed', 'exposed_us', ms], ['moved', 'bytes', mib]], waits);
}

// Returns a tick of a logarithmic axis, whose values may be far below 1.
const powerText = power => power < 0 ? (10 ** power).toFixed(-power) : number(10 ** power, 0);

// Returns a label beside each dot, moved up or down until it covers neither a label nor a dot. A line leads to a label that moved.
function labelsOf(dots, width, height, taken) {
  const pen = document.createElement('canvas').getContext('2d'), line = 15;
  pen.font = '12px system-ui, sans-serif';
  const boxes = [...taken, ...dots.map(dot => ({left: dot.x - 6, right: dot.x + 6, top: dot.y - 6, bottom: dot.y + 6}))];
  return dots.flatMap(dot => {
    const wide = pen.measureText(dot.title).width, from = dot.x + 9 + wide > width ? dot.x - 9 - wide : dot.x + 9;
    const at = shift => ({left: from - 2, right: from + wide + 2, top: dot.y + shift - line / 2, bottom: dot.y + shift + line / 2});
    const free = box => box.top > 0 && box.bottom < height &&
      boxes.every(other => box.right < other.left || other.right < box.left || box.bottom <= other.top || other.bottom <= box.top);
    const shifts = Array.from({length: 2 * Math.ceil(height / 5)}, (_, i) => (i % 2 ? -5 : 5) * Math.ceil(i / 2));
    const shift = shifts.find(by => free(at(by))) ?? 0;
    boxes.push(at(shift));
    const label = svg('text', {class: 'label', x: from, y: dot.y + shift + 4}, dot.title);
    const near = from > dot.x ? from - 2 : from + wide + 2;
    return shift ? [svg('line', {class: 'axis', x1: dot.x, y1: dot.y, x2: near, y2: dot.y + shift}), label] : [label];
  });
}

// Flops per second over flops per byte, both logarithmic. A point under its roof could be faster.
function drawRoofline() {
  const classes = records(plan.roofline).map(row => ({...row, intensity: row.flops / Math.max(row.bytes, 1), speed: row.flops / Math.max(row.us, 1e-9) / 1e3}));
  fillTable('classes', [['class', 'class'], ['calls', 'calls', value => number(value, 0)], ['time', 'us', ms], ['flop per byte', 'intensity', value => number(value, 1)],
    ['Gflop/s', 'speed', value => number(value, 1)], ['bound by', 'gflops', (value, row) => row.gflops > 0 && row.intensity > row.gflops / row.memory_gbs ? 'arithmetic' : 'memory']], classes);
  const points = classes.filter(row => row.flops > 0), roofs = classes.filter(row => row.gflops > 0);
  const roof = roofs.sort((a, b) => b.gflops - a.gflops)[0];
  if (!roof || !points.length) return;
  const width = 640, height = 320, margin = 60, log = Math.log10;
  const lows = points.map(p => p.intensity), low = log(Math.min(0.1, ...lows)), high = log(Math.max(10 * roof.gflops / roof.memory_gbs, ...lows) * 2);
  const bottom = log(Math.min(...points.map(p => p.speed), roof.gflops / 1e3)) - 0.2, top = log(roof.gflops) + 0.3;
  const x = value => margin + (log(value) - low) / (high - low) * (width - margin - 10), y = value => 10 + (top - log(value)) / (top - bottom) * (height - margin);
  const chart = svg('svg', {viewBox: `0 0 ${width} ${height}`, role: 'img', 'aria-label': 'roofline: Gflop/s over flop per byte'});
  for (let power = Math.ceil(low); power <= high; ++power) {
    chart.append(svg('line', {class: 'axis', x1: x(10 ** power), x2: x(10 ** power), y1: 10, y2: height - margin + 10}),
      svg('text', {x: x(10 ** power), y: height - margin + 26, 'text-anchor': 'middle'}, powerText(power)));
  }
  for (let power = Math.ceil(bottom); power <= top; ++power)
    chart.append(svg('line', {class: 'axis', x1: margin, x2: width - 10, y1: y(10 ** power), y2: y(10 ** power)}),
      svg('text', {x: margin - 6, y: y(10 ** power) + 4, 'text-anchor': 'end'}, powerText(power)));
  const knee = roof.gflops / roof.memory_gbs, least = Math.max(10 ** low, 10 ** bottom / roof.memory_gbs);
  chart.append(svg('polyline', {class: 'roof', points: [[least, least * roof.memory_gbs], [knee, roof.gflops], [10 ** high, roof.gflops]].map(([a, b]) => x(a) + ',' + y(b)).join(' ')}),
    svg('text', {class: 'label', x: width - 12, y: y(roof.gflops) - 6, 'text-anchor': 'end'}, number(roof.gflops, 0) + ' Gflop/s, ' + number(roof.memory_gbs, 0) + ' GB/s'),
    svg('text', {x: (margin + width) / 2, y: height - 6, 'text-anchor': 'middle'}, 'flop per byte'), svg('text', {x: 4, y: 10}, 'Gflop/s'));
  const dots = points.map(point => ({x: x(point.intensity), y: y(point.speed), title: point.class}));
  const roofText = {left: width / 2, right: width, top: y(roof.gflops) - 18, bottom: y(roof.gflops)};
  chart.append(...labelsOf(dots, width - 10, height - margin + 10, [roofText]), ...dots.map(dot => svg('circle', {class: 'dot', cx: dot.x, cy: dot.y, r: 5})));
  document.getElementById('roof').replaceChildren(chart);
}

// The ops of a trace are in the order of the plan's, so their times are compared one by one.
function fillTrace() {
  if (!plan.trace) return;
  document.getElementById('measured').hidden = false;
  document.getElementById('trace-file').textContent = plan.trace.file + ': the mean of ' + plan.trace.microbatches + ' microbatches. A microbatch took ' +
    ms(plan.trace.us) + '; ' + ms(step.microbatch_us) + ' is predicted.';
  const sums = new Map(), timed = ops.filter(op => op.flops !== 0 || op.bytes !== 0);
  plan.trace.op_us.forEach((us, i) => {
    for (const key of ['all ops', 'class ' + timed[i].class, 'unit ' + timed[i].unit + (timed[i].backward ? ', backward' : ', forward')]) {
      const sum = sums.get(key) ?? {key, predicted: 0, measured: 0};
      sum.predicted += timed[i].us;
      sum.measured += us;
      sums.set(key, sum);
    }
  });
  fillTable('comparison', [['ops', 'key'], ['predicted', 'predicted', ms], ['measured', 'measured', ms], ['predicted ÷ measured', 'ratio', value => number(value, 3)]],
    [...sums.values()].map(sum => ({...sum, ratio: sum.predicted / Math.max(sum.measured, 1e-9)})));
}

function draw() { drawLanes(); drawMemory(); }
fillSummary();
fillTables();
fillLegend();
drawRoofline();
fillTrace();
draw();
view.onChange(draw);
control(document.getElementById('lanes'), view, left, showTip);
control(document.getElementById('bytes'), view, left, () => {});
for (const button of document.querySelectorAll('[data-zoom]'))
  button.addEventListener('click', () => ({in: () => view.zoom(0.5), out: () => view.zoom(2), left: () => view.move(-0.3), right: () => view.move(0.3), all: () => view.set(0, view.end)})[button.dataset.zoom]());
window.addEventListener('resize', draw);
window.matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => { fillLegend(); draw(); });
