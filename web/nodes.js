// All nodes.
import { h, setText, setHref, nodeHref, empty } from './dom.js';
import { state, matcher } from './state.js';
import { byNature, count, cores, mebibytes, labelText, ago, ms } from './format.js';
import { List } from './list.js';

export const NODE_PHASE = { Ready: 'Running', NotReady: 'Failed', Draining: 'Pending', Disabled: 'Stopped' };
export const nodeWord = (n) => (n.wish === 'cordoned' && n.status === 'Ready' ? 'Cordoned' : n.status || '');
export const nodePhase = (n) => (n.wish === 'cordoned' && n.status === 'Ready' ? 'Pending' : NODE_PHASE[n.status] || 'Unknown');

export function meter(cell) {
  cell.append(h('span.meter', null, h('i.alloc'), h('i.used')), h('span.num'));
}
export function setMeter(cell, allocated, used, total, text) {
  const [alloc, use] = cell.firstChild.children;
  const part = (n) => `${total > 0 ? Math.min(100, ((n || 0) / total) * 100) : 0}%`;
  alloc.style.width = part(allocated);
  use.style.width = part(used);
  alloc.classList.toggle('full', total > 0 && (allocated || 0) / total > 0.95);
  setText(cell.lastChild, text);
}

const STATUSES = ['', 'Ready', 'NotReady', 'Cordoned', 'Draining', 'Disabled'];

export function nodes({ go, params, query }) {
  let status = params.get('status') || '', timer = null, text = query(), sorted = [], stale = true;
  const list = new List({
    label: 'Nodes', open: (n) => go(nodeHref(n.id)),
    columns: [
      { name: 'Name', width: 'minmax(9rem, 1.6fr)', narrow: 'minmax(0, 1fr)', make: (c) => c.append(h('a.name')), cell: (c, n) => (setText(c.firstChild, n.id), setHref(c.firstChild, nodeHref(n.id))) },
      { name: 'Status', width: '7.6rem', narrow: true, make: (c) => c.append(h('span.badge', null, h('i', { 'aria-hidden': 'true' }), h('span'))), cell(c, n) { c.firstChild.dataset.phase = nodePhase(n); setText(c.firstChild.lastChild, nodeWord(n)); } },
      { name: 'CPU', width: 'minmax(9rem, 1.2fr)', make: meter, cell: (c, { resources: r = {} }) => setMeter(c, r.cpu_allocated, r.cpu_used, r.cpu_total, `${cores(r.cpu_allocated)} / ${cores(r.cpu_total)}`) },
      { name: 'Memory', width: 'minmax(11rem, 1.3fr)', make: meter, cell: (c, { resources: r = {} }) => setMeter(c, r.memory_allocated, r.memory_used, r.memory_total, `${mebibytes(r.memory_allocated)} / ${mebibytes(r.memory_total)}`) },
      { name: 'Workloads', width: '5.6rem', num: true, cell: (c, n) => setText(c, count(state.units.get(n.id)?.length)) },
      { name: 'Labels', width: 'minmax(0, 1.4fr)', muted: true, cell: (c, n) => setText(c, labelText(n.labels)) },
      { name: 'Since', width: '6.6rem', num: true, muted: true, cell: (c, n) => setText(c, ago(ms(n.status_updated_at))) },
    ],
    none: () => !state.loaded ? empty('Reading the nodes', 'One moment.') : state.nodes.size ? empty('Nothing matches', 'Another status or search shows more.')
      : [empty('No nodes yet', 'Start an agent on a machine:'), h('pre.command', null, `berth agent --server ${state.cluster?.grpc_address || 'HOST:8085'} --label zone=a`)],
  });
  const chips = h('div.filters', { role: 'group', 'aria-label': 'Status' });
  const buttons = STATUSES.map((s) => {
    const n = h('b');
    const el = h('button.filter', { type: 'button', 'data-phase': s ? (s === 'Cordoned' ? 'Pending' : NODE_PHASE[s]) : undefined, onclick: () => { status = s; draw(); } }, s && h('i', { 'aria-hidden': 'true' }), s || 'All', n);
    chips.append(el);
    return { s, n, el };
  });

  function draw() {
    timer = null;
    if (stale) {
      sorted = [...state.nodes.keys()].sort(byNature);
      stale = false;
    }
    const match = matcher(text), counts = {};
    const rows = [];
    for (const id of sorted) {
      const n = state.nodes.get(id);
      if (!n) continue;
      const word = nodeWord(n);
      counts[word] = (counts[word] || 0) + 1;
      if ((!status || word === status) && (!match || match.node(n))) rows.push(n);
    }
    for (const { s, n, el } of buttons) {
      setText(n, count(s ? counts[s] : sorted.length));
      el.setAttribute('aria-pressed', String(s === status));
      el.hidden = s !== '' && s !== status && !counts[s];
    }
    list.setRows(rows, true);
  }
  return {
    el: h('div.page.listing', null, h('div.bar', null, h('h1', null, 'Nodes'), chips), list.el), title: 'Nodes',
    start: draw,
    update(change) {
      if (change.structure) stale = true;
      if (change.nodes.size || change.listed) timer ??= setTimeout(draw, 120);
    },
    search(t) {
      text = t;
      draw();
    },
    focus: () => list.focus(),
    stop() {
      clearTimeout(timer);
      list.destroy();
    },
  };
}
