import { age, bytes, clock, cores, curve, el, setText, timeline } from './draw.js';

const $ = id => document.getElementById(id);
const podsEvery = 2000, usageEvery = 5000, again = 3000; // milliseconds
const mostPoints = 240, mostLog = 400000, shownEntries = 8;

// The token is in the fragment of the first address, and then kept for this tab only.
if (/^#[A-Z2-7]{16,}$/.test(location.hash)) {
  sessionStorage.setItem('token', location.hash.slice(1));
  history.replaceState(null, '', '#/');
}

class Refused extends Error {}
class Missing extends Error {}

async function request(path, signal) {
  const resp = await fetch(path, { signal, headers: { Authorization: 'Bearer ' + (sessionStorage.getItem('token') || '') } });
  if (resp.ok) return resp;
  const text = (await resp.text()).trim();
  throw new (resp.status === 401 ? Refused : resp.status === 404 ? Missing : Error)(text);
}

// stream calls take with each piece of text of an answer that does not end.
async function stream(path, signal, take) {
  const reader = (await request(path, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part; !(part = await reader.read()).done;) take(part.value);
}

const pause = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});

const visible = signal => document.hidden ? new Promise(done => {
  document.addEventListener('visibilitychange', done, { once: true, signal });
  signal.addEventListener('abort', done, { once: true });
}) : Promise.resolve();

// repeat calls what until the signal; while the page is hidden it waits.
async function repeat(ms, signal, what) {
  for (; !signal.aborted; await pause(ms, signal)) {
    await visible(signal);
    if (signal.aborted) return;
    try {
      await what();
    } catch (e) {
      if (!signal.aborted) failed(e);
    }
  }
}

function linked(tone, text) {
  $('link').dataset.tone = tone;
  setText($('link'), text);
}

function failed(e) {
  if (e instanceof Refused) return notice('This page needs its token', 'Open the address that minikubelet ui has printed. Each start of it makes a new one.');
  if (e instanceof Missing) return notice('There is no such pod', 'It has left the node, and the agent does not remember it.');
  linked('bad', e instanceof TypeError ? 'minikubelet ui has ended' : e.message || 'The agent does not answer');
}

function show(id) {
  for (const section of document.querySelectorAll('main > section')) section.hidden = section.id !== id;
}

function notice(title, text) {
  stop.abort();
  $('notice').replaceChildren(el('h1', {}, title), el('p', { class: 'muted' }, text));
  show('notice');
  linked('bad', 'Stopped');
}

// Usage is kept while the page is open: the agent has the present only.
const usage = new Map();

async function readUsage(signal) {
  for (const [uid, p] of Object.entries((await (await request('api/usage', signal)).json()).pods)) {
    const known = usage.get(uid) || [], at = +new Date(p.at);
    if (known.length && known.at(-1).at >= at) continue;
    usage.set(uid, [...known, { at, cores: p.cores, bytes: p.bytes }].slice(-mostPoints));
  }
  drawUsage();
}

function series(uid, key) {
  return (usage.get(uid) || []).filter(p => p[key] !== undefined).map(p => ({ at: p.at, value: p[key] }));
}

let drawUsage = () => {};

// The list of pods.

const rows = new Map();

function rowOf(uid) {
  if (!rows.has(uid)) {
    const cell = (cls, label) => el('td', { class: cls, 'data-label': label });
    const r = {
      name: el('a', { href: '#/pods/' + encodeURIComponent(uid) }), namespace: el('small'), reason: el('small', { class: 'reason' }),
      state: el('span', { class: 'state' }), ready: cell('num', 'Ready'), restarts: cell('num', 'Restarts'), age: cell('num', 'Age'), cpu: cell('use', 'CPU'), memory: cell('use', 'Memory'),
    };
    r.row = el('tr', {}, el('td', {}, r.name, r.namespace, r.reason), el('td', {}, r.state), r.ready, r.restarts, r.age, r.cpu, r.memory);
    rows.set(uid, r);
  }
  return rows.get(uid);
}

async function readList(signal) {
  const list = await (await request('api/pods', signal)).json();
  linked('good', 'Live');
  setText($('node'), list.node);
  const present = new Set(list.pods.map(p => p.uid));
  for (const [uid, r] of rows) {
    if (!present.has(uid)) { r.row.remove(); rows.delete(uid); }
  }
  list.pods.forEach((p, i) => {
    const r = rowOf(p.uid);
    r.row.dataset.tone = p.tone;
    setText(r.name, p.name);
    setText(r.namespace, p.namespace);
    setText(r.reason, p.why || '');
    r.reason.title = p.why || '';
    r.reason.hidden = !p.why;
    setText(r.state, p.status);
    setText(r.ready, p.ready + '/' + p.total);
    setText(r.restarts, p.restarts + (p.restarted ? ` (${age(p.restarted)} ago)` : ''));
    setText(r.age, p.since ? age(p.since) : '');
    if ($('pods').children[i] !== r.row) $('pods').insertBefore(r.row, $('pods').children[i] || null);
  });
  const count = tone => list.pods.filter(p => p.tone === tone).length;
  const counts = [[count('good'), 'running'], [count('bad'), 'with a problem'], [count('waits'), 'waiting'], [count('ended'), 'completed']];
  setText($('counts'), counts.filter(([n]) => n).map(([n, what]) => n + ' ' + what).join(' · '));
  document.querySelector('.pods').hidden = !($('empty').hidden = list.pods.length > 0);
  items('problems', list.problems || [], p => [el('code', {}, p.path), el('span', {}, p.error)]);
  items('gone', list.gone, p => [el('a', { href: '#/pods/' + encodeURIComponent(p.uid) }, p.namespace + '/' + p.name), el('span', { class: 'state', 'data-tone': 'ended' }, p.status), el('span', { class: 'muted' }, age(p.gone) + ' ago')]);
}

// items shows a list below the table, if it has anything.
function items(id, list, children) {
  $(id).hidden = !list.length;
  const key = JSON.stringify(list) + (id === 'gone' ? Math.floor(Date.now() / 10000) : '');
  if ($(id).dataset.key === key) return; // a focus in it stays
  $(id).dataset.key = key;
  $(id).querySelector('ul').replaceChildren(...list.map(p => el('li', {}, ...children(p))));
}

function drawListUsage() {
  for (const [uid, r] of rows) {
    for (const [cell, key, format] of [[r.cpu, 'cores', cores], [r.memory, 'bytes', bytes]]) {
      const points = series(uid, key), last = points.at(-1)?.value;
      cell.replaceChildren(...(points.length ? [curve(points, ''), el('span', {}, format(last))] : []));
      cell.querySelector('svg')?.setAttribute('aria-hidden', 'true'); // the text beside it has the value
    }
  }
}

// The page of a pod.

function drawPodUsage(uid) {
  for (const [id, key, format, what] of [['cpu', 'cores', cores, 'CPU'], ['memory', 'bytes', bytes, 'Memory']]) {
    const points = series(uid, key);
    setText($(id), points.length ? format(points.at(-1).value) : 'not known yet');
    const range = points.length ? `, from ${format(Math.min(...points.map(p => p.value)))} to ${format(Math.max(...points.map(p => p.value)))}` : '';
    $(id + 'curve').replaceChildren(curve(points, `${what} since this page was opened${range}`));
  }
}

function drawPod(p) {
  linked('good', 'Live');
  document.title = p.name + ' – minikubelet';
  setText($('name'), p.name);
  setText($('status'), p.gone ? 'Gone' : p.status);
  $('status').dataset.tone = $('why').dataset.tone = p.tone;
  setText($('why'), p.why);
  const facts = [{ name: 'Namespace', value: p.namespace }, ...(p.since ? [{ name: 'Age', value: age(p.since) }] : []), ...(p.facts || [])];
  $('facts').replaceChildren(...facts.map(f => el('div', {}, el('dt', {}, f.name), el('dd', {}, f.value))));
  $('containers').replaceChildren(...p.containers.map(c => el('li', { 'data-tone': c.tone },
    el('div', {}, el('strong', {}, c.name), c.kind ? el('small', {}, c.kind) : ''),
    el('div', {}, el('span', { class: 'state' }, c.state), el('small', {}, c.since ? 'for ' + age(c.since) : '')),
    el('div', {}, el('small', {}, c.image), el('small', {}, c.restarts ? `${c.restarts} restart${c.restarts > 1 ? 's' : ''}` + (c.last ? `, last end: ${c.last}` : '') : '')),
    c.message ? el('div', { class: 'message' }, c.message) : '')));
  const names = p.containers.map(c => c.name), select = $('container');
  if (select.dataset.names !== JSON.stringify(names)) {
    select.dataset.names = JSON.stringify(names);
    const main = p.containers.find(c => !c.kind);
    select.replaceChildren(...names.map(n => el('option', { value: n }, n)));
    if (main) select.value = main.name;
    select.dispatchEvent(new Event('change'));
  }
  $('chooser').hidden = names.length < 2;
}

// readHistory follows the history; an entry replaces the one with its key.
async function readHistory(uid, entries, signal, draw) {
  let rest = '';
  entries.clear();
  await stream(`api/pods/${encodeURIComponent(uid)}/history`, signal, text => {
    const lines = (rest + text).split('\n');
    rest = lines.pop();
    for (const e of lines.filter(Boolean).map(l => JSON.parse(l))) {
      entries.delete(e.key);
      entries.set(e.key, e);
    }
    draw();
  });
}

function drawHistory(entries, all) {
  const list = [...entries.values()].sort((a, b) => a.seq - b.seq), box = $('timeline');
  box.replaceChildren(list.length ? timeline(list, box.clientWidth || 600) : el('p', { class: 'muted' }, 'Nothing is known of the pod yet.'));
  const newest = list.reverse(), shown = all ? newest : newest.slice(0, shownEntries);
  const key = newest.map(e => e.seq).join() + all;
  if ($('entries').dataset.key === key) return;
  $('entries').dataset.key = key;
  $('entries').replaceChildren(...shown.map(e => el('li', { 'data-tone': e.tone },
    el('time', { datetime: e.last, title: new Date(e.last).toString() }, clock(e.last)), el('i'), el('span', {}, e.text),
    e.count > 1 ? el('em', {}, `${e.count} times since ${clock(e.first)}`) : '')));
  $('more').hidden = newest.length <= shown.length;
  setText($('more'), `Show ${newest.length - shown.length} earlier`);
}

// followLog shows the log of a container, and what it writes, until the signal.
async function followLog(uid, container, signal) {
  const box = $('log');
  for (let note; !signal.aborted; await pause(again, signal)) {
    let first = true;
    try {
      await stream(`api/pods/${encodeURIComponent(uid)}/logs/${encodeURIComponent(container)}`, signal, text => {
        if (first) box.replaceChildren();
        first = false;
        box.append(text);
        for (let size = box.textContent.length; size > mostLog && box.childNodes.length > 1;) {
          size -= box.firstChild.textContent.length;
          box.firstChild.remove();
        }
        if ($('follow').checked) box.scrollTop = box.scrollHeight;
      });
      note = first ? 'The container has written nothing.' : '';
    } catch (e) {
      if (signal.aborted) return;
      note = e instanceof TypeError ? '' : e.message;
    }
    if (note && !signal.aborted && first) box.replaceChildren(el('span', { class: 'note' }, note));
  }
}

function openPod(uid, signal) {
  const entries = new Map(), draw = () => drawHistory(entries, all);
  let all = false, log = new AbortController();
  for (const id of ['containers', 'facts', 'entries', 'timeline', 'log']) $(id).replaceChildren();
  for (const id of ['name', 'status', 'why']) setText($(id), '');
  delete $('entries').dataset.key;
  delete $('container').dataset.names;
  $('more').addEventListener('click', () => { all = true; draw(); }, { signal });
  $('container').addEventListener('change', () => {
    log.abort();
    log = new AbortController();
    $('log').replaceChildren();
    followLog(uid, $('container').value, AbortSignal.any([log.signal, signal]));
  }, { signal });
  $('follow').addEventListener('change', () => { if ($('follow').checked) $('log').scrollTop = $('log').scrollHeight; }, { signal });
  addEventListener('resize', draw, { signal });
  addEventListener('keydown', e => { if (e.key === 'Escape') location.hash = '#/'; }, { signal });
  drawUsage = () => drawPodUsage(uid);
  drawUsage();
  repeat(podsEvery, signal, async () => {
    drawPod(await (await request('api/pods/' + encodeURIComponent(uid), signal)).json());
    draw();
  });
  repeat(again, signal, () => readHistory(uid, entries, signal, draw));
}

let stop = new AbortController();

function route() {
  stop.abort();
  stop = new AbortController();
  const { signal } = stop, uid = location.hash.match(/^#\/pods\/(.+)$/)?.[1];
  show(uid ? 'pod' : 'list');
  document.title = 'minikubelet';
  if (uid) {
    openPod(decodeURIComponent(uid), signal);
  } else {
    drawUsage = drawListUsage;
    repeat(podsEvery, signal, async () => { await readList(signal); drawUsage(); });
  }
  repeat(usageEvery, signal, () => readUsage(signal));
  scrollTo(0, 0);
  $('main').focus({ preventScroll: true });
}

addEventListener('hashchange', () => {
  if (/^#[A-Z2-7]{16,}$/.test(location.hash)) return location.reload(); // another token
  route();
});
route();
