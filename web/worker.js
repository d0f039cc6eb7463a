// The page's link to the server, in a thread of its own, so that reading thousands of records never holds up a frame.
//
// Lists once (nodes, then workloads), then follows the one event stream from where the list began and folds events into rows; touched nodes are asked for
// again, in batches. After a gap, or when the server turns out to be another one, everything is listed anew. Only rows that changed go to the page.
//   (1) A row never goes back: see fold.js. A deleted id stays in `graves` for a while, so that an answer that was under way cannot raise it.
//   (2) last is the newest event that was folded; every reconnect goes on after it.
import { fold, rowOf, brief, movesCapacity } from './fold.js';
import { readStream } from './stream.js';

const ROOT = new URL('../../', import.meta.url).href;
const PAGE = 1000;
const FLUSH_MS = 60;
const NODES_MS = 250;
const SLICE = 250; // rows per message: the page reads one without missing a frame
const FEW = 24; // touched objects that are asked for one by one; more: one list

let rows = new Map(), nodes = new Map(), graves = new Map();
let changedRows = new Map(), changedNodes = new Map(), newEvents = [];
let touchedNodes = new Set(), touchedRows = new Set(), returned = new Set();
let last = 0, cluster = null, generation = 0, flushing = false, visible = true, nodesBusy = false, nodesListMs = 0, lastNodesList = 0;

const sleep = (ms) => new Promise((done) => setTimeout(done, ms));

// The server wants to know who we are (401), or lets us do nothing (403); the message is the server's.
class Stranger extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function get(path) {
  const answer = await fetch(ROOT + path, { cache: 'no-store' });
  if (answer.status === 404) return null;
  if (answer.status === 401 || answer.status === 403) throw new Stranger(answer.status, (await answer.json().catch(() => null))?.message || '');
  if (!answer.ok) throw new Error(`${path}: ${answer.status}`);
  return answer.json();
}

async function list(kind, query, each) {
  let cursor = '';
  do {
    const page = await get(`v1/${kind}?limit=${PAGE}${query}${cursor && `&cursor=${encodeURIComponent(cursor)}`}`);
    if (!page) return;
    each(page.items || [], page);
    cursor = page.next_cursor || '';
  } while (cursor);
}

// ---- out to the page ----

// In order, and full slices one by one: many at once would cost the page a frame.
const outbox = [];
let pumping = false;
async function send(message) {
  outbox.push(message);
  if (pumping) return;
  pumping = true;
  while (outbox.length) {
    const next = outbox.shift();
    postMessage(next);
    if (next.rows?.length >= SLICE) await sleep(12);
  }
  pumping = false;
}

// What the pages show of every node; the page of one node asks for the rest.
function shortNode(n) {
  return n && { id: n.id, status: n.status, wish: n.wish, labels: n.labels, resources: n.resources, status_updated_at: n.status_updated_at, resource_version: n.resource_version };
}

function flush() {
  if (flushing) return;
  flushing = true;
  setTimeout(() => {
    flushing = false;
    sendRows('nodes', [...changedNodes].map(([id, n]) => [id, shortNode(n)]));
    sendRows('workloads', [...changedRows]);
    if (newEvents.length) send({ kind: 'events', rows: newEvents.length > 500 ? newEvents.slice(-500) : newEvents, skipped: Math.max(0, newEvents.length - 500) });
    changedNodes = new Map();
    changedRows = new Map();
    newEvents = [];
  }, FLUSH_MS);
}

function sendRows(kind, all) {
  for (let i = 0; i < all.length; i += SLICE) send({ kind, generation, rows: all.slice(i, i + SLICE) });
}

function setRow(id, row) {
  if (row) {
    const old = rows.get(id);
    if ((old && old.seq > row.seq) || graves.get(id)?.seq > row.seq) return;
    rows.set(id, row);
  } else if (!rows.delete(id)) return;
  changedRows.set(id, row);
  flush();
}

function setNode(id, node) {
  if (node) {
    if (nodes.get(id)?.resource_version > node.resource_version) return; // asked for before the newest event
    nodes.set(id, node);
  } else if (!nodes.delete(id)) return;
  changedNodes.set(id, node);
  flush();
}

// ---- the whole ----

async function listAll() {
  const began = await get('v1/cluster');
  if (!began) throw new Error('no cluster');
  cluster = began;
  last = began.head || 0;
  generation++;
  rows = new Map();
  nodes = new Map();
  graves = new Map();
  changedRows = new Map();
  changedNodes = new Map();
  touchedNodes.clear();
  touchedRows.clear();
  returned.clear();
  send({ kind: 'listing', generation, cluster, nodes: began.nodes || 0, workloads: began.workloads || 0 });
  const at = performance.now();
  await list('nodes', '', (items) => {
    for (const n of items) nodes.set(n.id, n);
    sendRows('nodes', items.map((n) => [n.id, shortNode(n)]));
  });
  nodesListMs = performance.now() - at;
  lastNodesList = performance.now();
  await list('workloads', '', (items) => {
    const some = items.map((w) => [w.id, rowOf(w)]);
    for (const [id, row] of some) rows.set(id, row);
    sendRows('workloads', some);
  });
  send({ kind: 'listed', generation });
}

// ---- events ----

function onEvent(id, name, data) {
  if (name === 'gap') throw new Gap();
  if (!data) return;
  const e = JSON.parse(data);
  if (e.seq <= last) return;
  last = e.seq;
  newEvents.push(brief(e));
  if (newEvents.length > 5000) newEvents.splice(0, 2500);
  if (e.type.startsWith('Eviction')) health();
  if (e.workload_id && e.type !== 'UnitRemoved' && e.type !== 'UnitUnknown') onWorkload(e);
  if (e.node_id) onNode(e);
  flush();
}

function onWorkload(e) {
  const before = rows.get(e.workload_id);
  const row = fold(before, e);
  if (row === null) {
    graves.set(e.workload_id, { seq: e.seq, at: Date.now() });
    if (before?.node) touchNode(before.node);
  } else if (row === undefined) {
    touchedRows.add(e.workload_id);
    askTouched();
    return;
  } else if (before?.phase === 'Unknown' && row.phase === 'Unknown') {
    // the record hid its phase behind a silent node
    touchedRows.add(e.workload_id);
    askTouched();
  }
  if (row !== before) setRow(e.workload_id, row);
  if (movesCapacity.has(e.type) && row?.node) touchNode(row.node);
}

function onNode(e) {
  if (e.type === 'NodeForgotten') {
    setNode(e.node_id, null);
    return;
  }
  const node = nodes.get(e.node_id);
  if (node && (e.type === 'NodeLost' || e.type === 'NodeReady'))
    setNode(e.node_id, { ...node, resource_version: e.seq, status: e.type === 'NodeLost' ? 'NotReady' : node.wish === 'draining' ? 'Draining' : 'Ready' });
  if (e.type === 'NodeReady' || e.type === 'NodeRegistered') {
    returned.add(e.node_id);
    askTouched();
  }
  if (movesCapacity.has(e.type)) touchNode(e.node_id);
}

// ---- what was touched ----

function touchNode(id) {
  touchedNodes.add(id);
  askTouched();
}

let asking = null;
function askTouched() {
  asking ??= setTimeout(async () => {
    try {
      await Promise.all([askNodes(), askRows()]);
    } catch { /* the stream notices a lost server by itself, and the next event asks again */ }
    asking = null;
    if (touchedNodes.size || touchedRows.size || returned.size) askTouched();
  }, NODES_MS);
}

async function askNodes() {
  if (nodesBusy) return;
  nodesBusy = true;
  try {
    if (touchedNodes.size > FEW) {
      // no more than a tenth of the time goes into lists of nodes
      if (performance.now() - lastNodesList < Math.max(1500, nodesListMs * 10)) return;
      await listNodes();
      return;
    }
    const ids = [...touchedNodes];
    touchedNodes.clear();
    await Promise.all(ids.map(async (id) => setNode(id, await get(`v1/nodes/${encodeURIComponent(id)}`))));
  } finally {
    nodesBusy = false;
  }
}

async function listNodes() {
  const at = performance.now(), mine = generation, seen = new Set();
  touchedNodes.clear();
  await list('nodes', '', (items) => {
    if (mine !== generation) return;
    for (const n of items) {
      seen.add(n.id);
      const old = nodes.get(n.id);
      if (!old || differs(old, n)) setNode(n.id, n);
      else nodes.set(n.id, n);
    }
  });
  if (mine !== generation) return;
  for (const id of nodes.keys()) if (!seen.has(id)) setNode(id, null);
  lastNodesList = performance.now();
  nodesListMs = lastNodesList - at;
}

// The time of the last heartbeat alone is no reason to draw anything.
function differs(a, b) {
  return a.resource_version !== b.resource_version || a.status !== b.status || a.wish !== b.wish || a.connected !== b.connected || a.units !== b.units ||
    JSON.stringify(a.resources) !== JSON.stringify(b.resources);
}

async function askRows() {
  const ids = [...touchedRows].slice(0, FEW * 4), back = [...returned];
  for (const id of ids) touchedRows.delete(id);
  returned.clear();
  await Promise.all(ids.map(async (id) => {
    const w = await get(`v1/workloads/${encodeURIComponent(id)}`);
    if (w) setRow(id, rowOf(w));
  }));
  // what a silent node hid: its workloads were listed as Unknown
  const hidden = new Set();
  if (back.length) for (const row of rows.values()) if (row.phase === 'Unknown' && row.node) hidden.add(row.node);
  const due = back.filter((id) => hidden.has(id));
  const take = (items) => {
    for (const w of items) {
      const row = rowOf(w), old = rows.get(w.id);
      if (!old || old.seq < row.seq || old.phase !== row.phase) setRow(w.id, row);
    }
  };
  if (due.length > FEW) await list('workloads', '', take);
  else for (const id of due) await list('workloads', `&node=${encodeURIComponent(id)}`, take);
}

// ---- the loop ----

class Gap extends Error {}

let wake = () => {};
async function run() {
  let fresh = true, failures = 0;
  for (;;) {
    const stop = new AbortController();
    try {
      if (!fresh) {
        const now = await get('v1/cluster');
        if (!now || now.cluster_id !== cluster.cluster_id || now.epoch !== cluster.epoch || (now.head || 0) < last) fresh = true;
      }
      if (fresh) await listAll();
      fresh = false;
      await readStream(`${ROOT}v1/events/stream`, last, {
        open: () => {
          failures = 0;
          send({ kind: 'link', state: 'live' });
          health();
        },
        event: onEvent,
        chunk: () => {},
      }, stop.signal);
    } catch (e) {
      if (e instanceof Gap) fresh = true;
      if (e instanceof Stranger) {
        // Nothing changes until somebody gives a token: main.js asks for it.
        send({ kind: 'link', state: 'stranger', status: e.status, why: e.message });
        await new Promise((done) => (wake = done));
        send({ kind: 'link', state: 'connecting' });
        continue;
      }
    }
    stop.abort();
    if (fresh && cluster && failures === 0) {
      failures++;
      continue; // a gap: list at once
    }
    failures++;
    const wait = Math.min(5000, 250 * 2 ** Math.min(failures, 6));
    send({ kind: 'link', state: 'lost', again: Date.now() + wait });
    await Promise.race([sleep(wait), new Promise((done) => (wake = done))]);
    send({ kind: 'link', state: 'connecting' });
  }
}

async function health() {
  try {
    const health = await get('health');
    if (health?.eviction) health.brake = (await get('v1/cluster'))?.brake; // what was counted is not for strangers
    send({ kind: 'health', health });
  } catch { /* the link says it */ }
}

setInterval(() => {
  if (visible) health();
  const old = Date.now() - 60000;
  for (const [id, grave] of graves) if (grave.at < old) graves.delete(id);
}, 5000);

// Why something waits can change without an event about it: a node came back, another one filled up.
setInterval(async () => {
  if (!visible || !cluster) return;
  for (const row of rows.values()) {
    if (row.phase !== 'Pending') continue;
    try {
      const page = await get('v1/workloads?status=Pending&limit=200');
      for (const w of page?.items || []) {
        const now = rowOf(w), old = rows.get(w.id);
        if (old && old.seq === now.seq && old.phase === now.phase && old.reason !== now.reason) setRow(w.id, now);
      }
    } catch { /* next time */ }
    return;
  }
}, 10000);

// How much is used is told by heartbeats, which are no events.
setInterval(async () => {
  if (!visible || nodesBusy || !cluster || performance.now() - lastNodesList < (nodes.size > 500 ? 29000 : 9000)) return;
  nodesBusy = true;
  try {
    await listNodes();
  } catch { /* next time */ }
  nodesBusy = false;
}, 2000);

onmessage = ({ data }) => {
  if (data.kind === 'visible') {
    visible = data.visible;
    if (visible) wake();
  } else if (data.kind === 'again') wake();
};

run();
