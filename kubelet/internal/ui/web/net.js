// What requests data of minikubelet ui.

export class Refused extends Error {}
export class Missing extends Error {}

const tokenForm = /^#?([A-Z2-7]{16,})$/;

// takeToken moves the token from the address to the storage of this tab, and reports whether there was one.
export function takeToken() {
  const token = location.hash.match(tokenForm)?.[1];
  if (!token) return false;
  sessionStorage.setItem('token', token);
  history.replaceState(null, '', '#/');
  return true;
}

export async function request(path, signal) {
  const resp = await fetch(path, { signal, headers: { Authorization: 'Bearer ' + (sessionStorage.getItem('token') || '') } });
  if (resp.ok) return resp;
  const text = (await resp.text()).trim();
  throw new (resp.status === 401 ? Refused : resp.status === 404 ? Missing : Error)(text);
}

export const read = async (path, signal) => (await request(path, signal)).json();

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
// It spends a tenth of the time at most: what takes long is called less often.
export async function repeat(ms, signal, what, failed) {
  for (let took = 0; !signal.aborted; await pause(Math.max(ms, 9 * took), signal)) {
    await visible(signal);
    if (signal.aborted) return;
    const began = performance.now();
    try {
      await what();
    } catch (e) {
      if (!signal.aborted) failed(e);
    }
    took = performance.now() - began;
  }
}
