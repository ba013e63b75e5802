import { age, bytes, clock, cores, curve, drawEvents, drawFacts, el, fresh, setText, timeline } from './draw.js';
import { drawListUsage, listAddress, openList, readList } from './list.js';
import { openLog, showContainers } from './logs.js';
import { openNode, readNode } from './node.js';
import { NoAgent, Missing, Refused, tokenOfTabs, keepToken, read, repeat, request, stream, takeToken } from './net.js';
import { endSession, openSession } from './session.js';
import { readUsage, series } from './usage.js';

const $ = id => document.getElementById(id);
const podsEvery = 2000, usageEvery = 5000, again = 3000; // milliseconds
const shownEntries = 8;

function linked(tone, text) {
  $('link').dataset.tone = tone;
  setText($('link'), text);
}

let asOf = 0; // the time of the last reading

function live() {
  asOf = Date.now();
  delete document.body.dataset.stale;
  $('outage').hidden = true;
  linked('good', 'Live');
}

// stale greys what the page shows, and says since when and why.
function stale(why) {
  document.body.dataset.stale = '';
  const time = asOf && clock(asOf);
  setText($('outage'), why + (asOf ? ` This page shows the state of ${time}, and goes on by itself.` : ' This page begins by itself.'));
  $('outage').hidden = false;
  linked('ended', asOf ? 'As of ' + time : 'Waiting');
}

function failed(e) {
  if (e instanceof Refused) return askToken();
  if (e instanceof Missing) {
    live();
    return notice('There is no such pod', 'It has left the node, and the agent does not remember it.');
  }
  if (e instanceof NoAgent) return stale('The agent does not answer: it has ended, or starts again.');
  if (e.name === 'TimeoutError') return stale('The agent has not answered for ten seconds.');
  if (e instanceof TypeError) return stale('The command minikubelet ui has ended, or cannot be reached.');
  stale((e.message || 'The agent does not answer') + '.');
}

// quiet is for what the page can do without.
function quiet(e) {
  if (e instanceof Refused) failed(e);
}

function show(id) {
  for (const section of document.querySelectorAll('main > section')) section.hidden = section.id !== id;
}

function notice(title, text) {
  setText($('notice').querySelector('h1'), title);
  setText($('notice').querySelector('p'), text);
  $('ask').hidden = true;
  show('notice');
}

// askToken asks the other tabs for the token, and then the person.
async function askToken() {
  stop.abort();
  if (await tokenOfTabs()) return route();
  notice('This page needs its token', 'Open the address that minikubelet ui has printed, or paste it here. Each start of the command makes a new one.');
  $('ask').hidden = false;
  $('token').focus();
  linked('bad', 'Stopped');
}

$('ask').addEventListener('submit', e => {
  e.preventDefault();
  if (!keepToken($('token').value)) return $('token').select();
  $('token').value = '';
  route();
});

let drawUsage = () => {}, containerUsage = {};

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
  live();
  show('pod');
  document.title = p.name + ' – minikubelet';
  setText($('name'), p.name);
  setText($('status'), p.gone ? 'Gone' : p.status);
  $('status').dataset.tone = $('why').dataset.tone = p.tone;
  setText($('why'), p.why);
  const facts = [{ name: 'Namespace', value: p.namespace }, ...(p.since ? [{ name: 'Age', value: age(p.since) }] : []), ...(p.facts || [])];
  $('facts').replaceChildren(...facts.map(f => el('div', {}, el('dt', {}, f.name), el('dd', {}, f.value))));
  grace = p.grace;
  drawContainers(p.containers);
  drawFacts($('volumes'), p.volumes || []);
  $('volumestitle').hidden = !p.volumes;
  drawEvents($('events'), p.events);
  showContainers(p.containers);
}

let grace = 0;

// confirm asks once more before it calls then. The field for a command is there if it has a value.
function confirm(question, effect, yes, command, then) {
  setText($('question'), question);
  setText($('effect'), effect);
  setText($('yes'), yes);
  $('command').parentElement.hidden = !command;
  $('command').value = command || '-';
  $('confirm').querySelector('form').onsubmit = then;
  $('confirm').showModal();
}

$('no').addEventListener('click', () => $('confirm').close());

// restart has a container stopped.
function restart(uid, container, signal) {
  const effect = `It gets its preStop hook and its stop signal, and has ended within ${grace} s. The restart policy starts it again.`;
  confirm(`Restart container ${container} of pod ${$('name').textContent}?`, effect, 'Restart', '', async () => {
    setText($('action'), `Stopping ${container}, in up to ${grace} s …`);
    try {
      await request(`api/pods/${encodeURIComponent(uid)}/restart?` + new URLSearchParams({ container }), signal, 'POST');
      setText($('action'), `Stopped ${container}; the restart policy starts it again.`);
    } catch (e) {
      if (!signal.aborted) setText($('action'), `${container} was not restarted: ${e.message}`);
    }
  });
}

// exec executes a command in a container, in a terminal.
function exec(uid, container, signal) {
  const effect = 'Its words are separated by spaces; quotes mean nothing. It has the rights of the container. The command minikubelet ui prints who has run it.';
  confirm(`Run a command in container ${container} of pod ${$('name').textContent}?`, effect, 'Run', 'sh', async () => {
    try {
      await openSession(uid, container, $('command').value.trim().split(/\s+/), signal);
    } catch (e) {
      if (!signal.aborted) setText($('action'), `The terminal was not opened: ${e.message}`);
    }
  });
}

const useOf = (name, format, used, limit) => used === undefined ? '' : `${name} ${format(used)}` + (limit ? ` of ${format(limit)}` : '');

// drawContainers keeps the details that are open.
function drawContainers(containers) {
  const list = $('containers'), known = new Map([...list.children].map(li => [li.dataset.name, li]));
  const items = containers.map(c => {
    const li = known.get(c.name) || el('li', { 'data-name': c.name },
      el('div', { class: 'actions' }, el('button', { class: 'plain', type: 'button', 'data-exec': c.name, 'aria-label': 'Exec in container ' + c.name }, 'Exec'),
        el('button', { class: 'plain', type: 'button', 'data-restart': c.name, 'aria-label': 'Restart container ' + c.name }, 'Restart')), el('div', { class: 'head' }),
      el('details', {}, el('summary', {}, 'Resources, probes, ports, mounts, environment'), el('div', { class: 'groups' })));
    li.dataset.tone = c.tone;
    const used = containerUsage[c.name] || {}, use = [useOf('CPU', cores, used.cores, c.limits.cores), useOf('memory', bytes, used.bytes, c.limits.bytes)].filter(Boolean).join(', ');
    li.firstChild.firstChild.hidden = !c.exec;
    li.firstChild.lastChild.hidden = !c.restart;
    li.children[1].replaceChildren(
      el('div', {}, el('strong', {}, c.name), c.kind ? el('small', {}, c.kind) : ''),
      el('div', {}, el('span', { class: 'state' }, c.state), el('small', {}, c.since ? 'for ' + age(c.since) : '')),
      el('div', {}, el('small', {}, c.image), el('small', {}, c.restarts ? `${c.restarts} restart${c.restarts > 1 ? 's' : ''}` + (c.last ? `, last end: ${c.last}` : '') : ''),
        el('small', {}, use)),
      c.message ? el('div', { class: 'message' }, c.message) : '');
    li.lastChild.hidden = !c.groups;
    if (fresh(li, c.groups)) {
      li.lastChild.lastChild.replaceChildren(...(c.groups || []).map(g => {
        const facts = el('dl', { class: 'table' });
        drawFacts(facts, g.facts);
        return el('section', {}, el('h3', {}, g.title), facts);
      }));
    }
    return li;
  });
  if (fresh(list, containers.map(c => c.name))) list.replaceChildren(...items); // a focus in them stays
}

// openYAML reads the manifest when it is unfolded.
function openYAML(uid, signal) {
  const box = $('yaml');
  box.open = false;
  box.addEventListener('toggle', async () => {
    if (!box.open) return;
    try {
      setText(box.querySelector('pre'), await (await request(`api/pods/${encodeURIComponent(uid)}/yaml`, signal)).text());
    } catch (e) {
      if (!signal.aborted) setText(box.querySelector('pre'), e.message);
    }
  }, { signal });
  $('copy').addEventListener('click', async () => {
    try {
      await navigator.clipboard.writeText(box.querySelector('pre').textContent);
      setText($('copied'), 'Copied');
    } catch {
      getSelection().selectAllChildren(box.querySelector('pre'));
      setText($('copied'), 'The browser does not allow it; the text is selected.');
    }
    setTimeout(() => setText($('copied'), ''), again);
  }, { signal });
}

// readHistory follows the history; an entry replaces the one with its key.
async function readHistory(uid, entries, signal, draw) {
  let rest = '', first = true;
  await stream(`api/pods/${encodeURIComponent(uid)}/history`, signal, text => {
    if (first) entries.clear();
    first = false;
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
  if (!fresh($('entries'), newest.map(e => e.seq).join() + all)) return;
  $('entries').replaceChildren(...shown.map(e => el('li', { 'data-tone': e.tone },
    el('time', { datetime: e.last, title: new Date(e.last).toString() }, clock(e.last)), el('i'), el('span', {}, e.text),
    e.count > 1 ? el('em', {}, `${e.count} times since ${clock(e.first)}`) : '')));
  $('more').hidden = newest.length <= shown.length;
  setText($('more'), `Show ${newest.length - shown.length} earlier`);
}

function openPod(uid, signal) {
  const entries = new Map(), draw = () => drawHistory(entries, all);
  let all = false;
  for (const id of ['containers', 'facts', 'entries', 'timeline', 'volumes', 'events']) {
    $(id).replaceChildren();
    delete $(id).dataset.key;
  }
  for (const id of ['name', 'status', 'why', 'action']) setText($(id), '');
  openLog(uid, signal);
  openYAML(uid, signal);
  $('containers').addEventListener('click', e => {
    if (e.target.dataset.restart) restart(uid, e.target.dataset.restart, signal);
    if (e.target.dataset.exec) exec(uid, e.target.dataset.exec, signal);
  }, { signal });
  $('more').addEventListener('click', () => { all = true; draw(); }, { signal });
  addEventListener('resize', draw, { signal });
  addEventListener('keydown', e => { if (e.key === 'Escape' && !e.target.matches('input, select, textarea') && !$('confirm').open) location.hash = listAddress; }, { signal });
  drawUsage = () => drawPodUsage(uid);
  drawUsage();
  document.querySelector('.back').href = listAddress;
  repeat(podsEvery, signal, async () => {
    drawPod(await read('api/pods/' + encodeURIComponent(uid), signal));
    draw();
  }, failed);
  repeat(again, signal, () => readHistory(uid, entries, signal, draw), quiet);
}

let stop = new AbortController();

function route() {
  stop.abort();
  stop = new AbortController();
  $('confirm').close();
  endSession();
  const { signal } = stop, uid = location.hash.match(/^#\/pods\/(.+)$/)?.[1], ofNode = location.hash === '#/node';
  show(uid ? 'pod' : ofNode ? 'nodepage' : 'list');
  document.title = 'minikubelet';
  for (const link of document.querySelectorAll('header nav a')) {
    if ((link.hash === '#/node') === ofNode) link.setAttribute('aria-current', uid ? 'true' : 'page'); else link.removeAttribute('aria-current');
  }
  if (uid) {
    openPod(decodeURIComponent(uid), signal);
  } else if (ofNode) {
    openNode();
    addEventListener('keydown', e => { if (e.key === 'Escape') location.hash = listAddress; }, { signal });
    repeat(usageEvery, signal, async () => { await readNode(signal); live(); }, failed);
  } else {
    drawUsage = drawListUsage;
    openList(location.hash.split('?')[1], signal);
    repeat(podsEvery, signal, async () => { await readList(signal); live(); }, failed);
  }
  if (!ofNode) repeat(usageEvery, signal, async () => { containerUsage = await readUsage(signal, uid && decodeURIComponent(uid)); drawUsage(); }, quiet);
  scrollTo(0, 0);
  $('main').focus({ preventScroll: true });
}

addEventListener('hashchange', () => {
  takeToken();
  route();
});
takeToken();
route();
