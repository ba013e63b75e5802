// What pods use, since the page was opened: the agent has the present only.

import { read } from './net.js';

const mostPoints = 240;
const known = new Map();

// readUsage reads what all pods use, and returns what the containers of a pod use, by name.
export async function readUsage(signal, uid = '') {
  const { pods, containers } = await read('api/usage?' + new URLSearchParams({ pod: uid }), signal);
  for (const [uid, p] of Object.entries(pods)) {
    const points = known.get(uid) || [], at = +new Date(p.at);
    if (points.length && points.at(-1).at >= at) continue;
    known.set(uid, [...points, { at, cores: p.cores, bytes: p.bytes }].slice(-mostPoints));
  }
  for (const uid of known.keys()) {
    if (!pods[uid]) known.delete(uid);
  }
  return containers || {};
}

// series returns the points {at, value} of a pod; the key is cores or bytes.
export function series(uid, key) {
  return (known.get(uid) || []).filter(p => p[key] !== undefined).map(p => ({ at: p.at, value: p[key] }));
}

export const latest = (uid, key) => known.get(uid)?.at(-1)[key];
