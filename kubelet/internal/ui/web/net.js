// What requests data of minikubelet ui.

export class Refused extends Error {}
export class Missing extends Error {}
export class NoAgent extends Error {}

const kinds = { 401: Refused, 404: Missing, 503: NoAgent };
const tokenForm = /(?:^|#)([A-Z2-7]{16,})$/;
const answerWithin = 10000, tabsAnswer = 400; // milliseconds

// keepToken keeps the token of an address for this tab, and reports whether there is one.
export function keepToken(address) {
  const token = address.trim().match(tokenForm)?.[1];
  if (token) sessionStorage.setItem('token', token);
  return Boolean(token);
}

// takeToken moves the token from the address to the storage of this tab.
export function takeToken() {
  if (keepToken(location.hash)) history.replaceState(null, '', '#/');
}

// Tabs of this page share the token: the browser delivers these messages to pages of the same origin only.
const tabs = new BroadcastChannel('token');
let accepted = false;
tabs.addEventListener('message', e => {
  if (e.data === 'ask' && accepted) tabs.postMessage(sessionStorage.getItem('token'));
});

// tokenOfTabs asks the other tabs for another token than that of this tab, and reports whether there is one.
export async function tokenOfTabs() {
  const answer = new Promise(done => {
    setTimeout(done, tabsAnswer);
    tabs.addEventListener('message', e => { if (e.data !== 'ask') done(e.data); }, { once: true });
  });
  tabs.postMessage('ask');
  const token = await answer;
  return Boolean(token) && token !== sessionStorage.getItem('token') && keepToken(token);
}

export async function request(path, signal, method = 'GET', headers = {}) {
  const resp = await fetch(path, { method, signal, headers: { ...headers, Authorization: 'Bearer ' + (sessionStorage.getItem('token') || '') } });
  accepted = resp.status !== 401;
  if (resp.ok || resp.status === 304) return resp;
  throw new (kinds[resp.status] || Error)((await resp.text()).trim());
}

const protocol = 'v5.channel.k8s.io', tokenProtocol = 'base64url.bearer.authorization.k8s.io.';

// connect opens a session. A WebSocket has no headers, so the token is a subprotocol.
export function connect(path) {
  const address = new URL(path, location.href.split('#')[0]);
  address.protocol = address.protocol.replace('http', 'ws');
  const token = btoa(sessionStorage.getItem('token') || '').replaceAll('+', '-').replaceAll('/', '_').replace(/=+$/, '');
  return new WebSocket(address, [protocol, tokenProtocol + token]);
}

const answers = new Map(), mostAnswers = 8; // the latest values by path, with their tags

// read returns a value, the same object as before if it has not changed. The error is a TimeoutError if there is no
// answer for ten seconds.
export async function read(path, signal) {
  const old = answers.get(path);
  const resp = await request(path, AbortSignal.any([signal, AbortSignal.timeout(answerWithin)]), 'GET', old ? { 'If-None-Match': old.tag } : {});
  if (resp.status === 304) return old.value;
  const value = await resp.json();
  answers.delete(path);
  answers.set(path, { tag: resp.headers.get('ETag'), value });
  if (answers.size > mostAnswers) answers.delete(answers.keys().next().value);
  return value;
}

// stream calls take with each piece of text of an answer that does not end.
export async function stream(path, signal, take) {
  const reader = (await request(path, signal)).body.pipeThrough(new TextDecoderStream()).getReader();
  for (let part; !(part = await reader.read()).done;) take(part.value);
}

export const pause = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms);
  signal.addEventListener('abort', () => { clearTimeout(timer); done(); }, { once: true });
});

const visible = signal => document.hidden ? new Promise(done => {
  document.addEventListener('visibilitychange', done, { once: true, signal });
  signal.addEventListener('abort', done, { once: true });
}) : Promise.resolve();

// repeat calls what until the signal, and failed with its errors; while the page is hidden it waits.
// It spends a tenth of the time at most: what takes long is called less often. What fails is called as often as usual.
export async function repeat(ms, signal, what, failed) {
  for (let took = 0; !signal.aborted; await pause(Math.max(ms, 9 * took), signal)) {
    await visible(signal);
    if (signal.aborted) return;
    const began = performance.now();
    try {
      await what();
      took = performance.now() - began;
    } catch (e) {
      took = 0;
      if (!signal.aborted) failed(e);
    }
  }
}
