// All workloads, by id, with filters by phase and by the search box.
import { h, setText, setTitle, setHref, workloadHref, nodeHref, empty } from './dom.js';
import { state, matcher } from './state.js';
import { PHASES, count, phaseWord, reasonWord, cores, mebibytes, ago, labelText } from './format.js';
import { List } from './list.js';

const link = (cell) => cell.append(h('a.name'));
export const phaseCell = {
  make: (cell) => cell.append(h('span.badge', null, h('i', { 'aria-hidden': 'true' }), h('span'))),
  cell(cell, phase) {
    const b = cell.firstChild;
    if (b.dataset.phase !== phase) {
      b.dataset.phase = phase;
      b.lastChild.textContent = phaseWord(phase);
    }
  },
};

export function workloadColumns(withNode) {
  return [
    { name: 'Name', width: 'minmax(9rem, 2.2fr)', narrow: 'minmax(0, 1fr)', make: link, cell: (c, r) => (setText(c.firstChild, r.id), setHref(c.firstChild, workloadHref(r.id))) },
    { name: 'Status', width: '8.2rem', narrow: true, make: phaseCell.make, cell: (c, r) => phaseCell.cell(c, r.shown) },
    withNode && { name: 'Node', width: 'minmax(6rem, 1.2fr)', make: link, cell(c, r) { setText(c.firstChild, r.node); if (r.node) setHref(c.firstChild, nodeHref(r.node)); } },
    { name: 'Why', width: 'minmax(8rem, 2fr)', muted: true, cell: (c, r) => (setText(c, r.text || (r.reason === 'placed' ? '' : reasonWord(r.reason))), setTitle(c, r.text)) },
    { name: 'CPU', width: '4.2rem', num: true, cell: (c, r) => setText(c, cores(r.cpu)) },
    { name: 'Memory', width: '5.4rem', num: true, cell: (c, r) => setText(c, mebibytes(r.mem)) },
    { name: 'Labels', width: 'minmax(0, 1.6fr)', muted: true, cell: (c, r) => setText(c, labelText(r.labels)) },
    { name: 'Changed', width: '6.6rem', num: true, muted: true, cell: (c, r) => setText(c, ago(r.changed)) },
  ].filter(Boolean);
}

export function workloads({ go, params, query }) {
  let phase = params.get('phase') || '', timer = null, text = query();
  const chips = h('div.filters', { role: 'group', 'aria-label': 'Status' });
  const total = h('span.muted', { role: 'status' });
  const list = new List({
    label: 'Workloads', columns: workloadColumns(true), open: (r) => go(workloadHref(r.id)),
    none: () => !state.loaded ? empty('Reading the workloads', 'One moment.')
      : state.workloads.size ? empty('Nothing matches', 'Another status or search shows more.')
      : [empty('Nothing runs here yet', 'Run something:'), h('pre.command', null, "berth run hello -- sh -c 'while :; do date; sleep 1; done'")],
  });
  const buttons = ['', ...PHASES].map((p) => {
    const n = h('b');
    const el = h('button.filter', { type: 'button', 'data-phase': p || undefined, 'aria-pressed': String(p === phase), onclick: () => { history.replaceState(null, '', p ? `#/workloads?phase=${p}` : '#/workloads'); phase = p; draw(); } }, p && h('i', { 'aria-hidden': 'true' }), p ? phaseWord(p) : 'All', n);
    chips.append(el);
    return { p, n, el };
  });

  function draw() {
    timer = null;
    const match = matcher(text);
    let rows = state.sorted;
    if (phase) rows = rows.filter((r) => r.shown === phase);
    if (match) rows = rows.filter(match.row);
    for (const { p, n, el } of buttons) {
      setText(n, count(p ? state.counts[p] : state.workloads.size));
      el.setAttribute('aria-pressed', String(p === phase));
      el.hidden = p !== '' && p !== phase && !state.counts[p];
    }
    setText(total, match ? `${count(rows.length)} match` : '');
    list.setRows(rows === state.sorted ? rows.slice() : rows, true);
  }
  const tick = setInterval(() => list.draw(), 5000);
  return {
    el: h('div.page.listing', null, h('div.bar', null, h('h1', null, 'Workloads'), chips, total), list.el), title: 'Workloads',
    start: draw,
    update(change) {
      if (change.rows.size || change.listed) timer ??= setTimeout(draw, state.sorted.length > 5000 ? 300 : 60);
    },
    search(t) {
      text = t;
      draw();
    },
    focus: () => list.focus(),
    stop() {
      clearTimeout(timer);
      clearInterval(tick);
      list.destroy();
    },
  };
}
