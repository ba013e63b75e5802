// The list of pods. A reading changes only what differs; a row is moved only if its place changes.

import { age, bytes, cores, curve, el, fresh, setText } from './draw.js';
import { read } from './net.js';
import { latest, series } from './usage.js';

const $ = id => document.getElementById(id);

const states = [['', 'All'], ['bad', 'With a problem'], ['waits', 'Waiting'], ['good', 'Running'], ['ended', 'Completed']];
const ranks = { bad: 0, waits: 1, good: 2, ended: 2 };
const text = key => (a, b) => a[key] < b[key] ? -1 : a[key] > b[key] ? 1 : 0;
const most = value => (a, b) => (value(b) ?? -1) - (value(a) ?? -1);
const byName = (a, b) => text('namespace')(a, b) || text('name')(a, b);

// orders are the ways to sort, as a person wants to see them first.
const orders = {
  problems: (a, b) => ranks[a.tone] - ranks[b.tone],
  name: byName,
  status: text('status'),
  ready: (a, b) => a.ready / (a.total || 1) - b.ready / (b.total || 1),
  restarts: most(p => p.restarts),
  age: most(p => p.since && +new Date(p.since)),
  cpu: most(p => latest(p.uid, 'cores')),
  memory: most(p => latest(p.uid, 'bytes')),
};

const largestFirst = ['restarts', 'cpu', 'memory'];

const view = { text: '', state: '', namespace: '', label: '', sort: 'problems' }; // as in the address; "-cpu" is reversed
let pods = [], latestList;

// listAddress is the address of the list as it was last seen.
export let listAddress = '#/';

// parseView reads the part of the address after the question mark.
function parseView(query) {
  const given = new URLSearchParams(query);
  for (const key of Object.keys(view)) view[key] = given.get(key) || '';
  if (!orders[view.sort.replace('-', '')]) view.sort = 'problems';
}

function writeAddress() {
  const given = Object.entries(view).filter(([key, value]) => value && !(key === 'sort' && value === 'problems'));
  listAddress = '#/' + (given.length ? '?' + new URLSearchParams(given) : '');
  history.replaceState(null, '', listAddress);
}

// matches reports whether a pod is to be shown. All words of the text must be in it.
function matches(p) {
  const [key, value] = view.label.split('=');
  if (view.state && p.tone !== view.state || view.namespace && p.namespace !== view.namespace) return false;
  if (view.label && (p.labels?.[key] === undefined || value !== undefined && !p.labels[key].startsWith(value))) return false;
  const all = `${p.namespace}/${p.name} ${p.status} ${p.why || ''}`.toLowerCase();
  return view.text.toLowerCase().split(/\s+/).every(word => all.includes(word));
}

const rows = new Map();

// Curves are drawn only of rows that can be seen.
const watcher = new IntersectionObserver(entries => {
  for (const e of entries) {
    const r = rows.get(e.target.dataset.uid);
    if (!r) continue;
    r.visible = e.isIntersecting;
    if (r.visible) drawCurves(e.target.dataset.uid, r);
  }
}, { rootMargin: '200px' });

function rowOf(uid) {
  if (rows.has(uid)) return rows.get(uid);
  const cell = (cls, ...children) => el('td', { class: cls, role: 'cell' }, ...children);
  const r = {
    name: el('a', { href: '#/pods/' + encodeURIComponent(uid) }), namespace: el('small'), reason: el('span'),
    state: el('span', { class: 'state' }), ready: cell('num'), restarts: cell('num'), age: cell('num'),
  };
  for (const key of ['cores', 'bytes']) {
    r[key] = { value: el('span'), curve: el('div', { 'aria-hidden': 'true' }) }; // the value says the same
  }
  r.row = el('tr', { role: 'row', 'data-uid': uid }, cell('names', r.name, ' ', r.namespace, el('small', { class: 'reason' }, r.reason)), cell('', r.state), r.ready, r.restarts, r.age,
    cell('use', r.cores.curve, r.cores.value), cell('use', r.bytes.curve, r.bytes.value));
  rows.set(uid, r);
  watcher.observe(r.row);
  return r;
}

function drawRow(p) {
  const r = rowOf(p.uid);
  if (r.row.dataset.tone !== p.tone) r.row.dataset.tone = p.tone;
  setText(r.name, p.name);
  setText(r.namespace, p.namespace);
  setText(r.reason, (p.why || '').replace(/^(Not running: |Running, but )/, '')); // the state is beside it
  r.reason.parentElement.hidden = !p.why;
  setText(r.state, p.status);
  setText(r.ready, p.ready + '/' + p.total);
  setText(r.restarts, p.restarts + (p.restarted ? ` (${age(p.restarted)} ago)` : ''));
  setText(r.age, p.since ? age(p.since) : '');
  setText(r.cores.value, cores(latest(p.uid, 'cores')));
  setText(r.bytes.value, bytes(latest(p.uid, 'bytes')));
  return r;
}

// place makes the rows the children of the table, in this order, and moves only those that are elsewhere.
function place(wanted) {
  const body = $('pods'), focused = document.activeElement, keep = new Set(wanted);
  for (const row of [...body.children]) {
    if (!keep.has(row)) row.remove();
  }
  let at = body.firstElementChild;
  for (const row of wanted) {
    if (at && at !== row && at.nextElementSibling === row) { // the row before it has moved down
      at.remove();
      at = row;
    }
    if (at === row) at = at.nextElementSibling; else body.insertBefore(row, at);
  }
  if (focused !== document.activeElement && body.contains(focused)) focused.focus({ preventScroll: true });
}

function draw() {
  const key = view.sort.replace('-', ''), sign = view.sort.startsWith('-') ? -1 : 1;
  const shown = pods.filter(matches).sort((a, b) => sign * orders[key](a, b) || byName(a, b));
  place(shown.map(p => drawRow(p).row));
  for (const head of document.querySelectorAll('.pods th')) {
    const mine = head.firstElementChild.dataset.sort === key;
    if (mine) head.setAttribute('aria-sort', sign > 0 === !largestFirst.includes(key) ? 'ascending' : 'descending'); else head.removeAttribute('aria-sort');
  }
  drawControls();
  setText($('shown'), shown.length < pods.length ? `${shown.length} of ${pods.length} pods` : '');
  document.querySelector('.pods').hidden = !shown.length;
  $('empty').hidden = !latestList || pods.length > 0;
  $('nomatch').hidden = !pods.length || shown.length > 0;
}

function drawControls() {
  const counts = Object.groupBy(pods, p => p.tone);
  for (const button of $('states').children) {
    const tone = button.dataset.state, n = tone ? counts[tone]?.length || 0 : pods.length;
    setText(button.lastElementChild, String(n));
    button.setAttribute('aria-pressed', String(view.state === tone));
    button.hidden = !n && tone && view.state !== tone;
  }
  options($('namespace'), [['', 'All namespaces'], ...[...new Set(pods.map(p => p.namespace))].sort().map(n => [n, n])], view.namespace);
  const labels = new Set(pods.flatMap(p => Object.entries(p.labels || {}).map(([k, v]) => k + '=' + v)));
  options($('labels'), [...labels].sort().slice(0, 500).map(l => [l, l]));
  for (const id of ['text', 'label']) {
    if (document.activeElement !== $(id)) $(id).value = view[id];
  }
  $('sort').value = view.sort.replace('-', '');
}

// options sets the options of a select or a datalist, if they are others.
function options(node, list, value) {
  if (value && !list.some(([v]) => v === value)) list.push([value, value]);
  if (fresh(node, list)) {
    node.replaceChildren(...list.map(([v, label]) => el('option', { value: v }, label)));
  }
  if (value !== undefined) node.value = value;
}

// items shows a list below the table, if it has anything.
function items(id, list, children) {
  $(id).hidden = !list.length;
  if (!fresh($(id), [list, id === 'gone' ? Math.floor(Date.now() / 10000) : 0])) return;
  $(id).querySelector('ul').replaceChildren(...list.map(p => el('li', {}, ...children(p))));
}

export async function readList(signal) {
  const list = await read('api/pods', signal);
  if (list === latestList) return; // ages are drawn with the usage
  latestList = list;
  setText($('node'), list.node);
  pods = list.pods;
  const present = new Set(pods.map(p => p.uid));
  for (const [uid, r] of rows) {
    if (present.has(uid)) continue;
    watcher.unobserve(r.row);
    rows.delete(uid);
  }
  draw();
  drawBelow();
}

function drawBelow() {
  items('problems', latestList.problems || [], p => [el('code', {}, p.path), el('span', {}, p.error)]);
  items('gone', latestList.gone, p => [el('a', { href: '#/pods/' + encodeURIComponent(p.uid) }, p.namespace + '/' + p.name), el('span', { class: 'state', 'data-tone': 'ended' }, p.status), el('span', { class: 'muted' }, age(p.gone) + ' ago')]);
}

function drawCurves(uid, r) {
  for (const key of ['cores', 'bytes']) {
    const points = series(uid, key);
    r[key].curve.replaceChildren(...(points.length ? [curve(points, '')] : []));
  }
}

export function drawListUsage() {
  draw();
  if (latestList) drawBelow();
  for (const [uid, r] of rows) {
    if (r.visible) drawCurves(uid, r);
  }
}

// set changes the view.
function set(changes) {
  Object.assign(view, changes);
  writeAddress();
  draw();
}

// sortBy sorts by a column; the second time it reverses the order, the third time problems are first again.
function sortBy(key) {
  set({ sort: view.sort === key ? '-' + key : view.sort === '-' + key ? 'problems' : key });
}

// openList shows the list with the filter of the address, until the signal.
export function openList(query, signal) {
  parseView(query);
  writeAddress();
  for (const id of ['text', 'label']) $(id).value = view[id];
  if (!$('states').children.length) {
    $('states').append(...states.map(([tone, label]) => el('button', { type: 'button', 'data-state': tone, 'data-tone': tone || 'normal' }, label + ' ', el('b'))));
  }
  const on = (target, kind, take) => target.addEventListener(kind, take, { signal });
  for (const id of ['text', 'label', 'namespace']) on($(id), 'input', () => set({ [id]: $(id).value.trim() }));
  on($('sort'), 'change', () => set({ sort: $('sort').value }));
  on($('states'), 'click', e => {
    const button = e.target.closest('button');
    if (button) set({ state: view.state === button.dataset.state ? '' : button.dataset.state });
  });
  on(document.querySelector('.pods thead'), 'click', e => { if (e.target.dataset.sort) sortBy(e.target.dataset.sort); });
  on($('clear'), 'click', () => {
    set({ text: '', state: '', namespace: '', label: '' });
    $('text').focus();
  });
  on(window, 'keydown', e => {
    const typing = e.target.matches('input, select'), row = e.target.closest('tr');
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === '/' && !typing) {
      $('text').focus();
      $('text').select();
    } else if (e.key === 'Escape' && typing) {
      if (e.target.matches('input')) { e.target.value = ''; set({ [e.target.id]: '' }); }
      e.target.blur();
    } else if ((e.key === 'ArrowDown' || e.key === 'ArrowUp') && (row || e.target.id === 'text')) {
      const next = !row ? $('pods').firstElementChild : e.key === 'ArrowDown' ? row.nextElementSibling : row.previousElementSibling;
      (next?.querySelector('a') || (e.key === 'ArrowUp' && row ? $('text') : e.target)).focus();
    } else {
      return;
    }
    e.preventDefault();
  });
  draw();
}
