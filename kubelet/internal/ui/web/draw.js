// What draws and formats. Text of pods becomes text nodes and attributes, never HTML.

const svgNS = 'http://www.w3.org/2000/svg';

// el returns an element with attributes and children; strings become text.
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(svgNS, name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== null && value !== false) node.setAttribute(key, value);
  }
  node.append(...children.filter(c => c !== undefined && c !== null && c !== ''));
  return node;
}

// setText changes the text only if it is another one, so that a selection stays.
export function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// age returns a time that has passed as kubectl does: 45s, 3m20s, 5h, 2d.
export function age(from, to = Date.now()) {
  const s = Math.max(0, Math.round((to - new Date(from)) / 1000)), m = Math.floor(s / 60), h = Math.floor(m / 60);
  if (s < 120) return s + 's';
  if (m < 10) return m + 'm' + (s % 60 ? s % 60 + 's' : '');
  if (h < 3) return m + 'm';
  if (h < 8) return h + 'h' + (m % 60 ? m % 60 + 'm' : '');
  if (h < 48) return h + 'h';
  return Math.floor(h / 24) + 'd';
}

export function clock(at) {
  const t = new Date(at), time = t.toLocaleTimeString([], { hour12: false });
  return t.toDateString() === new Date().toDateString() ? time : t.toLocaleDateString([], { month: 'short', day: 'numeric' }) + ' ' + time.slice(0, 5);
}

export function cores(v) {
  return v === undefined ? '' : v === 0 ? '0' : v < 1 ? Math.ceil(v * 1000) + 'm' : v.toFixed(2);
}

export function bytes(v) {
  if (v === undefined) return '';
  const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB'];
  let i = 0;
  for (; v >= 1024 && i < units.length - 1; i++) v /= 1024;
  return (i > 0 && v < 10 ? v.toFixed(1) : Math.round(v)) + ' ' + units[i];
}

// fresh reports whether a node shows another value than before, so that a selection and a focus in it stay.
export function fresh(node, value) {
  const key = JSON.stringify(value), other = node.dataset.key !== key;
  node.dataset.key = key;
  return other;
}

// drawFacts shows names with values.
export function drawFacts(node, facts) {
  if (!fresh(node, facts)) return;
  node.replaceChildren(...facts.map(f => el('div', {}, el('dt', {}, f.name),
    el('dd', {}, f.value, f.answer ? el('div', { class: 'answer', 'data-tone': f.tone }, f.answer + (f.at ? ` (since ${clock(f.at)})` : '')) : ''))));
}

// drawEvents shows events in a list; the element before it says that there are none.
export function drawEvents(list, events) {
  list.previousElementSibling.hidden = events.length > 0;
  if (!fresh(list, events)) return;
  list.replaceChildren(...events.map(e => el('li', { 'data-tone': e.tone }, el('time', { datetime: e.last, title: new Date(e.last).toString() }, clock(e.last)), el('i'),
    el('span', {}, e.uid ? el('a', { href: '#/pods/' + encodeURIComponent(e.uid) }, e.pod) : '', e.uid ? ' ' : '', el('b', {}, e.reason), ` ${e.container ? e.container + ': ' : ''}${e.message}`),
    e.count > 1 ? el('em', {}, `${e.count} times since ${clock(e.first)}`) : '')));
}

// curve returns a line through points {at, value} with its area, from 0 to a little more than the largest value.
export function curve(points, label) {
  const w = 300, h = 60, root = svg('svg', { viewBox: `0 0 ${w} ${h}`, preserveAspectRatio: 'none', role: 'img', 'aria-label': label });
  root.append(svg('line', { class: 'base', x1: 0, x2: w, y1: h - .5, y2: h - .5 }));
  if (points.length < 2 || points.every(p => p.value === 0)) return root;
  const from = points[0].at, span = points.at(-1).at - from || 1;
  const top = Math.max(...points.map(p => p.value)) * 1.15 || 1;
  const line = points.map(p => `${((p.at - from) / span * w).toFixed(1)},${(h - 1 - p.value / top * (h - 3)).toFixed(1)}`).join(' ');
  root.append(svg('polygon', { class: 'area', points: `0,${h} ${line} ${w},${h}` }), svg('polyline', { class: 'line', points: line }));
  return root;
}

// steps are the distances of ticks of a time line, in seconds.
const steps = [5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800];

// timeline returns the entries of a history as lanes over time: one of the pod, one of each container. A bar is
// a container that ran, a dotted line the time over which an entry was repeated.
export function timeline(entries, width) {
  const now = Date.now(), narrow = width < 560, left = narrow ? 70 : 120, right = 10, lane = 30;
  const from = Math.min(...entries.map(e => +new Date(e.first)), now - 20000), span = (now - from) * 1.01;
  const x = t => left + Math.max(0, (new Date(t) - from) / span) * (width - left - right);
  const lanes = ['', ...new Set(entries.map(e => e.container || '').filter(Boolean))];
  const height = lanes.length * lane + 24;
  const root = svg('svg', { viewBox: `0 0 ${width} ${height}`, height, role: 'img', 'aria-label': `Time line of ${entries.length} entries; the list below has them as text` });
  const most = Math.max(2, Math.floor((width - left) / 90)), step = (steps.find(s => span / 1000 / s <= most) || Math.ceil(span / 86400000 / most) * 86400) * 1000;
  const zone = new Date(now).getTimezoneOffset() * 60000;
  for (let t = Math.ceil((from - zone) / step) * step + zone; t <= now; t += step) {
    root.append(svg('line', { class: 'grid', x1: x(t), x2: x(t), y1: 4, y2: height - 22 }));
    const text = step >= 86400000 ? new Date(t).toLocaleDateString([], { month: 'short', day: 'numeric' }) : new Date(t).toLocaleTimeString([], { hour12: false }).slice(0, step < 60000 ? 8 : 5);
    if (x(t) < width - 30) root.append(svg('text', { x: x(t), y: height - 6, 'text-anchor': x(t) < left + 20 ? 'start' : 'middle' }, text));
  }
  lanes.forEach((name, i) => {
    const y = i * lane + lane / 2 + 2, most = narrow ? 9 : 16, title = name || 'pod';
    const shown = title.length > most ? title.slice(0, most - 1) + '…' : title;
    root.append(svg('text', { class: 'name', x: 0, y: y + 4 }, shown, svg('title', {}, title)));
    root.append(svg('line', { class: 'grid', x1: left, x2: width - right, y1: y, y2: y }));
    const of = entries.filter(e => (e.container || '') === name).sort((a, b) => new Date(a.last) - new Date(b.last));
    const moments = of.flatMap(e => e.count > 1 ? [{ ...e, last: e.first }, e] : [e]).sort((a, b) => new Date(a.last) - new Date(b.last) || a.seq - b.seq);
    moments.forEach((e, k) => {
      if (!name || e.kind !== 'ContainerRunning') return;
      const end = moments.slice(k + 1).find(o => o.kind === 'ContainerExited' || o.kind === 'ContainerRunning');
      const a = x(e.last), b = end ? x(end.last) : x(now);
      root.append(svg('rect', { class: 'ran', 'data-tone': 'good', x: a, y: y - 7, width: Math.max(2, b - a), height: 14, rx: 3 }));
    });
    const repeats = of.filter(e => e.count > 1);
    if (repeats.length) {
      const worst = ['bad', 'waits', 'good'].find(tone => repeats.some(e => e.tone === tone)) || 'normal';
      const begin = Math.min(...repeats.map(e => +new Date(e.first))), end = Math.max(...repeats.map(e => +new Date(e.last)));
      root.append(svg('line', { class: 'repeats', 'data-tone': worst, x1: x(begin), x2: x(end), y1: y, y2: y }));
    }
    for (const e of [...of].sort((a, b) => (a.tone === 'bad') - (b.tone === 'bad'))) { // what went wrong is on top
      root.append(svg('circle', { class: 'mark', 'data-tone': e.tone, cx: x(e.last), cy: y, r: e.tone === 'bad' ? 5 : 4 }, svg('title', {}, clock(e.last) + '  ' + e.text)));
    }
  });
  return root;
}
