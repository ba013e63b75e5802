// The page of the node.

import { age, bytes, cores, drawEvents, drawFacts, el, fresh, setText, svg } from './draw.js';
import { read } from './net.js';

const $ = id => document.getElementById(id);
const imagesEvery = 30000; // milliseconds

const formats = { bytes, cores: v => cores(v) + ' CPUs', '': v => String(Math.round(v)) };

// drawMeter returns how much is used, with its thresholds.
function drawMeter(m) {
  const x = v => Math.max(0, Math.min(100, v / m.capacity * 100)).toFixed(2), format = formats[m.unit];
  const text = `${format(m.used)} of ${format(m.capacity)}`, percent = Math.round(m.used / m.capacity * 100) + '%';
  const bar = svg('svg', { viewBox: '0 0 100 12', preserveAspectRatio: 'none', role: 'img', 'aria-label': `${m.name}: ${text}, ${percent}` },
    svg('rect', { class: 'all', y: 2, width: 100, height: 8 }), svg('rect', { class: 'used', y: 2, width: x(m.used), height: 8 }),
    ...m.marks.map(k => svg('line', { class: 'threshold', 'data-tone': k.tone, x1: x(k.at), x2: x(k.at), y1: 0, y2: 12 })));
  return el('figure', { class: 'card meter', 'data-tone': m.tone }, el('figcaption', {}, m.name, el('b', {}, percent)), bar,
    el('p', {}, text), ...m.marks.map(k => el('p', { class: 'mark', 'data-tone': k.tone }, k.text)));
}

function drawNode(n) {
  document.title = n.name + ' – minikubelet';
  setText($('node'), n.name);
  setText($('nodename'), n.name);
  setText($('nodestatus'), n.status);
  $('nodestatus').dataset.tone = n.tone;
  drawFacts($('nodefacts'), n.facts);
  if (fresh($('meters'), n.meters)) $('meters').replaceChildren(...n.meters.map(drawMeter));
  const titles = n.groups.map(g => g.title);
  if (fresh($('groups'), titles)) $('groups').replaceChildren(...titles.flatMap(t => [el('h2', {}, t), el('dl', { class: 'card table' })]));
  n.groups.forEach((g, i) => drawFacts($('groups').children[2 * i + 1], g.facts));
  drawEvents($('evictions'), n.evictions);
}

function drawImages(images) {
  $('noimages').hidden = images.length > 0;
  setText($('imagesize'), images.length ? `${images.length}, ${bytes(images.reduce((sum, i) => sum + i.size, 0))}` : '');
  if (!fresh($('images'), images)) return;
  $('images').replaceChildren(...images.map(i => el('li', {}, el('div', { class: 'head' },
    el('div', {}, el('strong', {}, i.tags?.[0] || i.digests?.[0] || i.id)),
    el('div', {}, el('small', {}, i.size ? bytes(i.size) : ''), el('small', {}, i.lastUsed ? `used ${age(i.lastUsed)} ago` : 'never used'), el('small', {}, 'age ' + age(i.firstSeen))),
    el('div', {}, el('small', {}, i.usedBy ? 'Used by ' + i.usedBy.join(', ') : 'No pod uses it'), el('small', {}, i.keptBy ? 'Kept by ' + i.keptBy : ''))))));
}

let imagesAt = 0;

// openNode begins with what was known, and reads the images again.
export function openNode() { imagesAt = 0; }

// readNode reads the node, and less often its images.
export async function readNode(signal) {
  drawNode(await read('api/node', signal));
  if (Date.now() - imagesAt < imagesEvery) return;
  drawImages(await read('api/images', signal));
  imagesAt = Date.now();
}
