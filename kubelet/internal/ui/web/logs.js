// The log of a container.

import { el, fresh, setText } from './draw.js';
import { pause, request, stream } from './net.js';

const $ = id => document.getElementById(id);
const again = 3000; // milliseconds
const mostText = 400000, mostWhileRead = 4000000, mostMatches = 5000;

const addressOf = (uid, container, options) =>
  `api/pods/${encodeURIComponent(uid)}/logs/${encodeURIComponent(container)}?` + new URLSearchParams(options);

// chosen returns the options of the request.
function chosen() {
  return Object.fromEntries(['previous', 'timestamps'].filter(id => $(id).checked).map(id => [id, 'true']));
}

const atEnd = box => box.scrollHeight - box.scrollTop - box.clientHeight < 8;

// append adds text and follows it, unless a person reads or has selected some of it. An element has whole lines,
// if the log has, so that a match is in one of them.
function append(box, text) {
  const last = box.lastElementChild?.firstChild;
  if (last?.data && !last.data.endsWith('\n') && last.length < 65536) last.appendData(text);
  else box.append(el('span', { class: 'text' }, text));
  const following = $('follow').checked;
  let size = box.textContent.length;
  while (size > (following ? mostText : mostWhileRead) && box.childNodes.length > 1) {
    size -= box.firstChild.textContent.length;
    box.firstChild.remove();
  }
  if (following && getSelection().isCollapsed) box.scrollTop = box.scrollHeight;
}

// follow shows the log, and what is written to it, until the signal. The log stays when there is no answer.
async function follow(uid, container, signal) {
  const box = $('log');
  for (let note; !signal.aborted; await pause(again, signal)) {
    let first = true;
    try {
      await stream(addressOf(uid, container, chosen()), signal, text => {
        if (first) box.replaceChildren();
        first = false;
        append(box, text);
        find();
      });
      note = first ? 'The container has written nothing.' : '';
      if ($('previous').checked && !first) return; // it does not change any more
    } catch (e) {
      if (signal.aborted) return;
      note = e instanceof TypeError ? '' : e.message;
    }
    if (note && !signal.aborted && first && !box.querySelector('.text')) box.replaceChildren(el('span', { class: 'note' }, note));
  }
}

let matches = [], current = -1, drawing = 0;

// find marks what is searched, at most once a frame.
function find() {
  cancelAnimationFrame(drawing);
  drawing = requestAnimationFrame(() => {
    const what = $('find').value.toLowerCase();
    matches = what ? [...$('log').querySelectorAll('.text')].flatMap(span => matchesIn(span.firstChild, what)).slice(-mostMatches) : [];
    mark();
  });
}

function matchesIn(node, what) {
  const lower = node.data.toLowerCase(), text = lower.length === node.length ? lower : node.data, found = [];
  for (let at = text.indexOf(what); at >= 0; at = text.indexOf(what, at + what.length)) {
    const range = new Range();
    range.setStart(node, at);
    range.setEnd(node, at + what.length);
    found.push(range);
  }
  return found;
}

function mark() {
  current = Math.min(current, matches.length - 1);
  if (window.Highlight) {
    CSS.highlights.set('match', new Highlight(...matches));
    CSS.highlights.set('current', new Highlight(...matches.slice(current, current + 1).filter(() => current >= 0)));
  }
  const place = current >= 0 ? `${current + 1} of ${matches.length}` : matches.length;
  setText($('found'), !$('find').value ? '' : matches.length ? `${place} found` : 'Not found');
}

// next goes to another match; the log holds still there.
function next(step) {
  if (!matches.length) return;
  current = current < 0 ? (step > 0 ? 0 : matches.length - 1) : (current + step + matches.length) % matches.length;
  mark();
  $('follow').checked = false;
  const box = $('log'), at = matches[current].getBoundingClientRect(), frame = box.getBoundingClientRect();
  box.scrollTop += at.top - frame.top - frame.height / 2;
}

// download saves the whole log, not only what is shown.
async function download(uid, container, signal) {
  const blob = await (await request(addressOf(uid, container, { ...chosen(), all: 'true' }), signal)).blob();
  const link = el('a', { href: URL.createObjectURL(blob), download: `${$('name').textContent}-${container}${$('previous').checked ? '-previous' : ''}.log` });
  link.click();
  URL.revokeObjectURL(link.href);
}

// showContainers offers the logs of the containers.
export function showContainers(containers) {
  const names = containers.map(c => c.name), select = $('container');
  $('chooser').hidden = names.length < 2;
  if (!fresh(select, names)) return;
  select.replaceChildren(...names.map(n => el('option', { value: n }, n)));
  const main = containers.find(c => !c.kind);
  if (main) select.value = main.name;
  select.dispatchEvent(new Event('change'));
}

// openLog shows logs of a pod until the signal.
export function openLog(uid, signal) {
  const box = $('log'), on = (id, kind, take) => $(id).addEventListener(kind, take, { signal });
  let log = new AbortController();
  box.replaceChildren();
  delete $('container').dataset.key;
  $('previous').checked = false;
  $('follow').checked = true;
  $('find').value = '';
  find();
  for (const id of ['container', 'previous', 'timestamps']) {
    on(id, 'change', () => {
      log.abort();
      log = new AbortController();
      box.replaceChildren();
      $('follow').checked = true;
      follow(uid, $('container').value, AbortSignal.any([log.signal, signal]));
    });
  }
  const toEnd = () => { if ($('follow').checked) box.scrollTop = box.scrollHeight; };
  on('follow', 'change', toEnd);
  on('wrap', 'change', () => { box.classList.toggle('unwrapped', !$('wrap').checked); toEnd(); });
  on('log', 'scroll', () => { $('follow').checked = atEnd(box); });
  on('find', 'input', () => { current = -1; find(); });
  on('find', 'keydown', e => { if (e.key === 'Enter') next(e.shiftKey ? -1 : 1); });
  on('download', 'click', () => download(uid, $('container').value, signal).catch(e => { if (!signal.aborted) setText($('found'), e.message); }));
}
