// The terminal of a command in a container.

import { el, setText } from './draw.js';
import { connect } from './net.js';

const $ = id => document.getElementById(id);
const stdin = 0, stdout = 1, status = 3, resize = 4; // the first byte of a message

let sheets = [];

// createStyled makes the elements while there is a terminal: xterm.js writes styles into them as text, which the policy
// of the page allows only through objects.
function createStyled(name) {
  const node = Document.prototype.createElement.call(document, name === 'style' ? 'template' : name);
  if (name === 'style') {
    const sheet = new CSSStyleSheet();
    sheets.push(sheet);
    document.adoptedStyleSheets.push(sheet);
    Object.defineProperty(node, 'textContent', { set: text => sheet.replaceSync(text) });
  } else {
    node.setAttribute = (key, value) => {
      if (key === 'style') node.style.cssText = value; else Element.prototype.setAttribute.call(node, key, value);
    };
  }
  return node;
}

// ended returns how a command has ended.
function ended(text) {
  const s = JSON.parse(text);
  if (s.status === 'Success') return 'Ended';
  const code = s.details?.causes?.find(c => c.reason === 'ExitCode')?.message;
  return code ? 'Ended with exit code ' + code : s.message;
}

let current; // what ends the session that is open

export function endSession() {
  current?.();
  current = undefined;
  $('session').hidden = true;
  $('terminal').replaceChildren();
  delete document.createElement;
  document.adoptedStyleSheets = document.adoptedStyleSheets.filter(s => !sheets.includes(s));
  sheets = [];
}

// openSession executes a command in a container until it ends, or the session is ended.
export async function openSession(uid, container, command, signal) {
  endSession();
  const open = new AbortController();
  current = () => open.abort();
  setText($('sessiontitle'), `${command.join(' ')} in ${container}`);
  setText($('sessionstate'), 'Connecting');
  setText($('end'), 'End');
  $('session').hidden = false;
  $('end').addEventListener('click', () => {
    endSession();
    document.querySelector(`[data-exec="${CSS.escape(container)}"]`)?.focus();
  }, { signal: open.signal });
  const [{ Terminal }, { FitAddon }] = await Promise.all([import('./xterm/xterm.mjs'), import('./xterm/addon-fit.mjs')]);
  if (!document.querySelector('link[href="xterm/xterm.css"]')) {
    await new Promise(done => document.head.append(Object.assign(el('link', { rel: 'stylesheet', href: 'xterm/xterm.css' }), { onload: done, onerror: done })));
  }
  if (signal.aborted || open.signal.aborted) return;
  document.createElement = createStyled;
  const box = $('terminal'), colors = getComputedStyle(document.body), dark = matchMedia('(prefers-color-scheme: dark)');
  const theme = () => ({ background: getComputedStyle(box).backgroundColor, foreground: colors.color, cursor: colors.color, selectionBackground: colors.getPropertyValue('--waits-soft') });
  const term = new Terminal({ fontFamily: colors.getPropertyValue('--mono'), fontSize: 13, theme: theme(), minimumContrastRatio: 4.5 });
  const fit = new FitAddon();
  term.loadAddon(fit);
  term.open(box);

  const words = new URLSearchParams(command.map(word => ['command', word]));
  const socket = connect(`api/pods/${encodeURIComponent(uid)}/exec/${encodeURIComponent(container)}?${words}`);
  socket.binaryType = 'arraybuffer';
  const send = (channel, bytes) => {
    if (socket.readyState === WebSocket.OPEN) socket.send(new Uint8Array([channel, ...bytes]));
  };
  const sendText = (channel, text) => send(channel, new TextEncoder().encode(text));
  let end = '', began = false;
  socket.onopen = () => {
    began = true;
    setText($('sessionstate'), 'Connected');
    fit.fit();
    sendText(resize, JSON.stringify({ Width: term.cols, Height: term.rows }));
    term.focus();
  };
  socket.onmessage = e => {
    const channel = new Uint8Array(e.data, 0, 1)[0];
    if (channel === stdout) term.write(new Uint8Array(e.data, 1));
    if (channel === status) end = ended(new TextDecoder().decode(new Uint8Array(e.data, 1)));
  };
  socket.onclose = e => {
    if (open.signal.aborted) return;
    setText($('sessionstate'), end || (e.wasClean ? 'Ended' : began ? 'The connection has ended.' : 'Not begun; the command minikubelet ui says why.'));
    term.options.disableStdin = true;
    setText($('end'), 'Close');
    if (box.contains(document.activeElement)) $('end').focus();
  };
  term.onData(text => sendText(stdin, text));
  term.onBinary(text => send(stdin, Uint8Array.from(text, c => c.charCodeAt(0))));
  term.onResize(size => sendText(resize, JSON.stringify({ Width: size.cols, Height: size.rows })));
  term.attachCustomKeyEventHandler(e => {
    if (e.key !== 'F6' || !e.shiftKey) return true;
    if (e.type === 'keydown') $('end').focus();
    e.preventDefault();
    return false;
  });
  dark.addEventListener('change', () => { term.options.theme = theme(); }, { signal: open.signal });
  const sizes = new ResizeObserver(() => fit.fit());
  sizes.observe(box);
  open.signal.addEventListener('abort', () => {
    sizes.disconnect();
    socket.close();
    term.dispose();
  });
}
