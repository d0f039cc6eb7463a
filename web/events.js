// What happened, newest first: history from the server, and what happens from the stream. Each event once, by its sequence.
import { h, setText, setTitle, setHref, workloadHref, nodeHref, empty, call } from './dom.js';
import { count, plural, clockTime, fullTime, reasonWord } from './format.js';
import { brief } from './fold.js';
import { List } from './list.js';

export const TYPES = ['WorkloadApplied', 'WorkloadDesired', 'WorkloadDeleting', 'WorkloadDeleted', 'WorkloadScheduled', 'WorkloadPending', 'WorkloadLaunched', 'WorkloadStarted',
  'WorkloadStopped', 'WorkloadCompleted', 'WorkloadFailed', 'RetryScheduled', 'RetryTriggered', 'RetryReset', 'WorkloadKeepsFailing', 'Rescheduled', 'NodeRegistered', 'NodeReady', 'NodeLost',
  'NodeWishChanged', 'NodeForgotten', 'EvictionHeld', 'EvictionPaced', 'EvictionResumed', 'EvictionOrdered', 'UnitRemoved', 'UnitUnknown', 'ClaimRefused', 'ClusterCreated'];
const TONE = { WorkloadFailed: 'Failed', NodeLost: 'Failed', EvictionHeld: 'Failed', EvictionPaced: 'RetryPending', RetryScheduled: 'RetryPending', WorkloadPending: 'Pending', Rescheduled: 'RetryPending', WorkloadStarted: 'Running',
  NodeReady: 'Running', NodeRegistered: 'Running', WorkloadScheduled: 'Scheduled', WorkloadLaunched: 'Scheduled', WorkloadCompleted: 'Completed', UnitUnknown: 'RetryPending', ClaimRefused: 'Failed', WorkloadDeleting: 'Deleting', WorkloadDeleted: 'Deleting' };
const KEPT = 5000, HISTORY = 500;

const linkTo = (cell, id, href) => {
  setText(cell.firstChild, id);
  if (id) setHref(cell.firstChild, href(id));
};
export const eventColumns = (own) => [
  { name: 'Time', width: '6.6rem', narrow: true, muted: true, cell: (c, e) => (setText(c, clockTime(e.at)), setTitle(c, `${fullTime(e.at)} · event ${e.seq}`)) },
  { name: 'Event', width: '11.2rem', narrow: 'minmax(0, 1fr)', make: (c) => c.append(h('span.badge', null, h('i', { 'aria-hidden': 'true' }), h('span'))),
    cell(c, e) { c.firstChild.dataset.phase = TONE[e.type] || 'none'; setText(c.firstChild.lastChild, e.type); } },
  own !== 'workload' && { name: 'Workload', width: 'minmax(7rem, 1.2fr)', narrow: 'minmax(0, 1fr)', make: (c) => c.append(h('a.name')), cell: (c, e) => linkTo(c, e.workload, workloadHref) },
  own !== 'node' && { name: 'Node', width: 'minmax(6rem, 0.9fr)', make: (c) => c.append(h('a.name')), cell: (c, e) => linkTo(c, e.node, nodeHref) },
  { name: 'What', width: 'minmax(8rem, 3fr)', narrow: own && 'minmax(0, 1fr)', cell: (c, e) => (setText(c, e.message || reasonWord(e.reason)), setTitle(c, e.message)) },
  !own && { name: 'By', width: '6rem', muted: true, cell: (c, e) => setText(c, e.actor) },
].filter(Boolean);

// Events of one filter: history first, then what comes in. Used by this page and by those of a workload and a node.
export class Feed {
  constructor({ filter, onChange }) {
    Object.assign(this, { filter, onChange });
    this.rows = []; // newest first
    this.held = []; // came in while paused, newest first
    this.paused = this.ended = false;
    this.error = '';
    this.turn = 0;
  }
  queryText() {
    const q = new URLSearchParams();
    for (const [k, v] of Object.entries(this.filter)) if (v) q.set(k, v);
    return q.size ? `&${q}` : '';
  }
  async load(before) {
    const turn = before ? this.turn : ++this.turn;
    this.loading = true;
    try {
      const page = await call('GET', `v1/events?newest_first=true&limit=${HISTORY}${this.queryText()}${before ? `&before=${before}` : ''}`);
      if (turn !== this.turn) return;
      const items = (page.items || []).map(brief);
      this.error = '';
      this.ended = items.length < HISTORY;
      if (before) this.rows = this.rows.concat(items.filter((e) => e.seq < before));
      else {
        // what the stream brought while we asked stays
        const newest = items.length ? items[0].seq : 0;
        this.rows = this.rows.filter((e) => e.seq > newest).concat(items);
      }
    } catch (e) {
      if (turn === this.turn) this.error = e.message;
    }
    this.loading = false;
    this.onChange();
  }
  setFilter(filter) {
    this.filter = filter;
    this.rows = [];
    this.held = [];
    this.load();
  }
  matches(e) {
    const f = this.filter;
    return (!f.type || f.type.split(',').includes(e.type)) && (!f.workload || e.workload === f.workload) && (!f.node || e.node === f.node);
  }
  take(change) {
    if (change.skipped || (change.listed && this.rows.length)) {
      // more than was told: history has it
      if (this.paused) this.missed = true;
      else this.load();
    }
    const into = this.paused ? this.held : this.rows;
    let added = [];
    const newest = into.length ? into[0].seq : this.paused && this.rows.length ? this.rows[0].seq : 0;
    for (const e of change.events) if (e.seq > newest && this.matches(e)) added.push(e);
    if (!added.length) return;
    added = added.reverse().concat(into);
    if (added.length > KEPT) {
      added.length = KEPT;
      this.ended = false;
    }
    if (this.paused) this.held = added;
    else this.rows = added;
    this.onChange();
  }
  pause(on) {
    this.paused = on;
    if (!on) {
      if (this.missed || this.held.length >= KEPT) this.load();
      else this.rows = this.held.concat(this.rows).slice(0, KEPT);
      this.held = [];
      this.missed = false;
    }
    this.onChange();
  }
}

export function events({ go, params }) {
  let timer = null;
  const filter = { type: params.get('type') || '', workload: params.get('workload') || '', node: params.get('node') || '' };
  const type = h('select', { 'aria-label': 'Type of event' }, h('option', { value: '' }, 'all types'), TYPES.map((t) => h('option', { value: t }, t)));
  if (filter.type.includes(',')) type.append(h('option', { value: filter.type }, filter.type.replaceAll(',', ', ')));
  const workload = h('input', { type: 'search', placeholder: 'workload', 'aria-label': 'Workload', spellcheck: 'false', size: '14' });
  const node = h('input', { type: 'search', placeholder: 'node', 'aria-label': 'Node', spellcheck: 'false', size: '12' });
  type.value = filter.type;
  workload.value = filter.workload;
  node.value = filter.node;
  const pause = h('button.button', { type: 'button', id: 'pause', 'aria-pressed': 'false', onclick: () => feed.pause(!feed.paused) }, 'Pause');
  const older = h('button.button', { type: 'button', onclick: () => feed.rows.length && feed.load(feed.rows[feed.rows.length - 1].seq) }, 'Load older');
  const note = h('span.muted', { role: 'status' });
  const list = new List({
    label: 'Events', rowHeight: 30, columns: eventColumns(''), key: (e) => e.seq, open: (e) => (e.workload ? go(workloadHref(e.workload)) : e.node ? go(nodeHref(e.node)) : null),
    none: () => feed.loading ? empty('Reading history', 'One moment.') : feed.error ? empty('That cannot be shown', feed.error) : empty('No such events', 'They appear here as they happen.'),
  });
  const feed = new Feed({ filter, onChange: () => (timer ??= setTimeout(draw, 80)) });
  function draw() {
    timer = null;
    list.setRows(feed.rows, true);
    setText(pause, feed.paused ? `Resume${feed.held.length ? ` (${count(feed.held.length)} new)` : ''}` : 'Pause');
    pause.setAttribute('aria-pressed', String(feed.paused));
    pause.classList.toggle('primary', feed.paused);
    older.hidden = feed.ended || !feed.rows.length;
    setText(note, feed.error || `${plural(feed.rows.length, 'event')}${feed.ended ? '' : ', older ones are kept'}`);
  }
  const changed = () => {
    const next = { type: type.value, workload: workload.value.trim(), node: node.value.trim() };
    const q = new URLSearchParams(Object.entries(next).filter(([, v]) => v));
    history.replaceState(null, '', `#/events${q.size ? `?${q}` : ''}`);
    feed.setFilter(next);
  };
  let typing = null;
  type.onchange = changed;
  workload.oninput = node.oninput = () => {
    clearTimeout(typing);
    typing = setTimeout(changed, 250);
  };
  return {
    el: h('div.page.listing', null, h('div.bar', null, h('h1', null, 'Events'), type, workload, node, pause, older, note), list.el), title: 'Events',
    start() {
      draw();
      feed.load();
    },
    update: (change) => feed.take(change),
    focus: () => list.focus(),
    stop() {
      clearTimeout(timer);
      clearTimeout(typing);
      list.destroy();
    },
  };
}
