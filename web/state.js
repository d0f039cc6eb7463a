// What the page knows, as the worker tells it.
//
// Rows arrive in pieces; a frame takes as many as fit into a few milliseconds and leaves the rest to the next one. Whoever shows something subscribes and is
// told once per frame what changed: { nodes: Set of ids, rows: Set of ids, structure: nodes came, went or changed their labels, link, health, events }.
import { PHASES } from './format.js';

const BUDGET_MS = 4;

export const state = {
  nodes: new Map(),     // id -> node as the API shows it
  workloads: new Map(), // id -> row of fold.js, plus shown: the phase as users see it
  units: new Map(),     // node id -> its rows, by id
  sorted: [],           // all rows, by id
  waiting: new Map(),   // rows that are Pending or RetryPending
  counts: Object.fromEntries(PHASES.map((p) => [p, 0])),
  link: { state: 'connecting' }, health: null, cluster: null,
  loaded: false, expected: { nodes: 0, workloads: 0 },
};

const listeners = new Set();
export function subscribe(fn) {
  listeners.add(fn);
  return () => listeners.delete(fn);
}

const worker = new Worker(new URL('./worker.js', import.meta.url), { type: 'module', name: 'berth' });
let queue = [], at = 0, scheduled = false, generation = 0;
let seenNodes = new Set(), seenRows = new Set();

worker.onmessage = ({ data }) => {
  queue.push(data);
  schedule();
};
export const reconnectNow = () => worker.postMessage({ kind: 'again' });
document.addEventListener('visibilitychange', () => worker.postMessage({ kind: 'visible', visible: !document.hidden }));

function schedule() {
  if (scheduled) return;
  scheduled = true;
  if (document.hidden) setTimeout(frame, 50);
  else requestAnimationFrame(frame);
}

export function newChange() {
  return { nodes: new Set(), rows: new Set(), events: [], skipped: 0, structure: false, link: false, health: false, listed: false };
}

function frame() {
  scheduled = false;
  const until = performance.now() + (document.hidden ? 50 : BUDGET_MS), change = newChange();
  while (queue.length && performance.now() < until) {
    if (take(queue[0], change, until)) {
      queue.shift();
      at = 0;
    }
  }
  for (const fn of listeners) fn(change);
  if (queue.length) schedule();
}

// True when all of the message has been taken.
function take(m, change, until) {
  switch (m.kind) {
    case 'nodes':
    case 'workloads':
      for (; at < m.rows.length; at++) {
        if ((at & 63) === 63 && performance.now() > until) return false;
        const [id, row] = m.rows[at];
        if (m.kind === 'nodes') setNode(id, row, change);
        else setRow(id, row, change);
      }
      return true;
    case 'listing':
      generation = m.generation;
      seenNodes = new Set();
      seenRows = new Set();
      state.loaded = false;
      state.cluster = m.cluster;
      state.expected = { nodes: m.nodes, workloads: m.workloads };
      change.health = true;
      return true;
    case 'listed':
      if (m.generation !== generation) return true;
      for (const id of [...state.nodes.keys()]) if (!seenNodes.has(id)) setNode(id, null, change);
      for (const id of [...state.workloads.keys()]) if (!seenRows.has(id)) setRow(id, null, change);
      state.loaded = true;
      change.listed = true;
      return true;
    case 'events':
      change.events.push(...m.rows);
      change.skipped += m.skipped;
      return true;
    case 'link':
      state.link = m;
      change.link = true;
      return true;
    case 'health':
      state.health = m.health;
      change.health = true;
      return true;
  }
  return true;
}

function setNode(id, node, change) {
  const old = state.nodes.get(id);
  change.nodes.add(id);
  if (!node) {
    state.nodes.delete(id);
    change.structure = true;
  } else {
    seenNodes.add(id);
    state.nodes.set(id, node);
    if (!old || !sameLabels(old.labels, node.labels)) change.structure = true;
  }
  if (old?.status !== node?.status) for (const row of state.units.get(id) || []) show(row, change);
}

function sameLabels(a, b) {
  a ||= {};
  b ||= {};
  const keys = Object.keys(a);
  return keys.length === Object.keys(b).length && keys.every((k) => a[k] === b[k]);
}

// What a silent node runs is not known (the server says so too, when asked for the record).
function shownPhase(row) {
  const on = row.phase === 'Running' || row.phase === 'Scheduled' || row.phase === 'Updating';
  return on && state.nodes.get(row.node)?.status === 'NotReady' ? 'Unknown' : row.phase;
}

function show(row, change) {
  const phase = shownPhase(row);
  if (phase === row.shown) return;
  if (row.shown) state.counts[row.shown]--;
  state.counts[phase]++;
  row.shown = phase;
  change.rows.add(row.id);
}

function setRow(id, row, change) {
  const old = state.workloads.get(id);
  change.rows.add(id);
  if (old && (!row || old.node !== row.node)) leave(old, change);
  if (!row) {
    if (!old) return;
    state.workloads.delete(id);
    state.counts[old.shown]--;
    state.sorted.splice(place(state.sorted, id), 1);
    state.waiting.delete(id);
    return;
  }
  seenRows.add(id);
  if (old && old.node === row.node) {
    Object.assign(old, row);
    row = old;
    if (row.node) change.nodes.add(row.node);
  } else {
    row.shown = old?.shown;
    row.find = id.toLowerCase();
    state.workloads.set(id, row);
    const i = place(state.sorted, id);
    if (old) state.sorted[i] = row;
    else if (i === state.sorted.length) state.sorted.push(row);
    else state.sorted.splice(i, 0, row);
    if (row.node) {
      let units = state.units.get(row.node);
      if (!units) state.units.set(row.node, (units = []));
      units.splice(place(units, id), 0, row);
      change.nodes.add(row.node);
    }
  }
  show(row, change);
  if (row.phase === 'Pending' || row.phase === 'RetryPending') state.waiting.set(id, row);
  else state.waiting.delete(id);
}

function leave(row, change) {
  if (!row.node) return;
  const units = state.units.get(row.node), i = place(units, row.id);
  if (units[i]?.id === row.id) units.splice(i, 1);
  change.nodes.add(row.node);
}

// Where id is, or would be.
function place(list, id) {
  let low = 0, high = list.length;
  if (high === 0 || list[high - 1].id < id) return high;
  while (low < high) {
    const mid = (low + high) >> 1;
    if (list[mid].id < id) low = mid + 1;
    else high = mid;
  }
  return low;
}

// ---- searching ----

// Words that all must match: part of an id, label=value (or part of it), a phase or a node's status.
export function matcher(text) {
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  if (!words.length) return null;
  const labelled = (labels, word) => {
    for (const k in labels) if (`${k}=${labels[k]}`.toLowerCase().includes(word)) return true;
    return false;
  };
  return {
    row: (r) => words.every((w) => r.find.includes(w) || r.shown.toLowerCase() === w || (w.includes('=') && labelled(r.labels, w))),
    node: (n) => words.every((w) => n.id.toLowerCase().includes(w) || n.status?.toLowerCase() === w || (w.includes('=') && labelled(n.labels, w))),
  };
}
