// Overview: the cluster in one look. Counts by phase, what waits and why, the nodes by label.
import { h, fill, setText, workloadHref, nodeHref, empty } from './dom.js';
import { state, matcher } from './state.js';
import { PHASES, count, phaseWord, reasonWord, cores, mebibytes, percent, duration } from './format.js';
import { Topology, LEVEL_NAMES } from './topology.js';

const CHIPS = 40;

export function overview({ go, query }) {
  const figures = h('div.figures', { 'aria-label': 'Counts' });
  const strip = h('section.waiting', { 'aria-label': 'Waiting workloads', hidden: true });
  const group = h('select', { 'aria-label': 'Group nodes by', id: 'group' });
  const zoom = h('div.segments', { role: 'group', 'aria-label': 'Detail' });
  const legend = h('div.legend', { 'aria-hidden': 'true' }, h('span', null, h('i.alloc'), 'allocated'), h('span', null, h('i.used'), 'used'));
  const bar = h('div.bar', null, h('label', null, 'Group by ', group), legend, zoom);
  const blank = h('div.blank', { hidden: true });
  let due = true, timer = null, keys = '';

  const topology = new Topology({
    openNode: (id) => go(nodeHref(id)),
    openWorkload: (id) => go(workloadHref(id)),
    onLevel: (level, wish) => {
      for (const b of zoom.children) b.setAttribute('aria-pressed', b.dataset.zoom === String(wish));
      zoom.dataset.level = LEVEL_NAMES[level];
    },
  });
  topology.groupBy = localStorage.getItem('berth.group') || 'zone';
  for (const [value, name] of [['auto', 'Auto'], [0, 'Dots'], [1, 'S'], [2, 'M'], [3, 'L'], [4, 'XL']])
    zoom.append(h('button', { type: 'button', 'data-zoom': value, 'aria-pressed': String(value === 'auto'), onclick: () => topology.setZoom(value) }, name));
  group.onchange = () => {
    topology.groupBy = group.value;
    localStorage.setItem('berth.group', group.value);
    topology.regroup();
  };

  // The figures: one cell per thing that is counted, made once and only ever given new text.
  const cells = {};
  const figure = (key, name, href, phase) => {
    const value = h('b', null, '0'), note = h('small');
    cells[key] = { value, note, el: h('a.figure', { href, 'data-phase': phase }, h('span', null, phase && h('i', { 'aria-hidden': 'true' }), name), h('span', null, value, note)) };
    figures.append(cells[key].el);
  };
  figure('nodes', 'Nodes ready', '#/nodes');
  figure('cpu', 'CPU allocated', '#/nodes');
  figure('mem', 'Memory allocated', '#/nodes');
  for (const p of PHASES) figure(p, phaseWord(p), `#/workloads?phase=${p}`, p);

  function drawFigures() {
    let ready = 0, ct = 0, ca = 0, mt = 0, ma = 0;
    for (const n of state.nodes.values()) {
      const r = n.resources || {};
      if (n.status === 'Ready' || n.status === 'Draining') ready++;
      ct += r.cpu_total || 0;
      ca += r.cpu_allocated || 0;
      mt += r.memory_total || 0;
      ma += r.memory_allocated || 0;
    }
    setText(cells.nodes.value, count(ready));
    setText(cells.nodes.note, ` of ${count(state.nodes.size)}`);
    cells.nodes.el.classList.toggle('bad', ready < state.nodes.size);
    setText(cells.cpu.value, percent(ca, ct));
    setText(cells.cpu.note, ` of ${cores(ct)}`);
    setText(cells.mem.value, percent(ma, mt));
    setText(cells.mem.note, ` of ${mebibytes(mt)}`);
    for (const p of PHASES) {
      setText(cells[p].value, count(state.counts[p]));
      cells[p].el.classList.toggle('zero', !state.counts[p]);
      // those that are rare are shown only while there are some
      cells[p].el.hidden = !state.counts[p] && !['Running', 'Pending', 'Failed'].includes(p);
    }
  }

  function drawWaiting() {
    const n = state.waiting.size;
    strip.hidden = n === 0;
    if (!n) return;
    const reasons = new Map(), shown = [], later = [];
    for (const row of state.waiting.values()) {
      const why = row.phase === 'RetryPending' ? 'retry backoff' : reasonWord(row.reason) || 'being placed';
      reasons.set(why, (reasons.get(why) || 0) + 1);
      // what cannot be placed comes first; what waits for its next attempt takes care of itself
      const list = row.phase === 'Pending' ? shown : later;
      if (list.length < CHIPS) list.push([row, why]);
    }
    shown.push(...later.slice(0, CHIPS - shown.length));
    const most = [...reasons].sort((a, b) => b[1] - a[1]).slice(0, 4);
    fill(strip,
      h('div.what', null, h('strong', null, count(n)), n === 1 ? ' waits' : ' wait', h('span.muted', null, most.map(([why, k]) => ` · ${why}${n > 1 ? ` ${count(k)}` : ''}`))),
      h('div.chips', null,
        shown.map(([row, why]) => h('a.chip', { href: workloadHref(row.id), 'data-phase': row.phase, title: row.text || why }, h('i', { 'aria-hidden': 'true' }), h('b', null, row.id),
          h('span', null, row.phase === 'RetryPending' && row.retryAt ? `retry in ${duration(row.retryAt - Date.now())}` : why))),
        n > shown.length && h('a.chip.more', { href: '#/workloads?phase=Pending' }, `${count(n - shown.length)} more`)));
  }

  function drawGroups() {
    const names = new Map();
    for (const n of state.nodes.values()) for (const k in n.labels) names.set(k, (names.get(k) || 0) + 1);
    const all = [...new Set(['zone', ...[...names].sort((a, b) => b[1] - a[1]).map(([k]) => k)])];
    if (topology.groupBy[0] !== '(' && !all.includes(topology.groupBy)) all.push(topology.groupBy);
    const next = all.join('\n');
    if (next !== keys) {
      keys = next;
      fill(group, all.map((k) => h('option', { value: k }, k)), h('option', { value: '(status)' }, 'status'), h('option', { value: '(none)' }, 'nothing'));
    }
    group.value = topology.groupBy;
  }

  function drawBlank() {
    const none = state.nodes.size === 0;
    blank.hidden = !none;
    topology.el.hidden = none;
    if (!none) return;
    if (!state.loaded && state.link.state === 'stranger') fill(blank, empty('Nothing to see without a token', 'The cluster is shown as soon as you have given one.'));
    else if (!state.loaded) fill(blank, empty('Reading the cluster', state.expected.nodes ? `${count(state.expected.nodes)} nodes, ${count(state.expected.workloads)} workloads` : 'One moment.'));
    else fill(blank, empty('No nodes yet', 'Start an agent on a machine, and it appears here:'), h('pre.command', null, `berth agent --server ${state.cluster?.grpc_address || 'HOST:8085'} --label zone=a`));
  }

  function draw() {
    timer = null;
    due = false;
    drawFigures();
    drawWaiting();
    drawBlank();
  }

  const el = h('div.page.overview', null, h('h1.quiet', null, 'Overview'), figures, strip, bar, blank, topology.el);
  const tick = setInterval(() => {
    if (state.waiting.size) drawWaiting();
  }, 1000);
  return {
    el, title: 'Overview',
    start() {
      drawGroups();
      draw();
      topology.setNodes();
      topology.setMatch(matcher(query()));
    },
    update(change) {
      if (change.structure) drawGroups();
      if (change.nodes.size || change.rows.size || change.structure || change.listed || change.health || change.link) {
        due = true;
        timer ??= setTimeout(draw, 150);
      }
      if (topology.el.hidden && state.nodes.size) drawBlank();
      topology.update(change);
    },
    search(text) {
      topology.setMatch(matcher(text));
    },
    focus: () => topology.scroller.focus(),
    key(e) {
      topology.key(e);
    },
    stop() {
      clearTimeout(timer);
      clearInterval(tick);
      topology.destroy();
    },
  };
}
