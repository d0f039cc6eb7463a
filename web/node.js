// One node: what it has, what it runs, how its status came about, and what can be done.
import { h, fill, setText, rows, labels, call, toast, ask, badge, empty, workloadHref } from './dom.js';
import { state } from './state.js';
import { cores, mebibytes, gibibytes, percent, fullTime, ago, ms, plural, count } from './format.js';
import { Feed, eventColumns } from './events.js';
import { nodePhase, nodeWord, meter, setMeter } from './nodes.js';
import { workloadColumns } from './workloads.js';
import { List } from './list.js';

export function node({ id, go }) {
  const head = h('div.title'), facts = h('div'), path = `v1/nodes/${encodeURIComponent(id)}`;
  const capacity = h('div.capacity'), title = h('h2', null, 'Workloads');
  let record = state.nodes.get(id) || null, gone = false, timer = null, drawing = null;
  const feed = new Feed({ filter: { node: id }, onChange: () => history.setRows(feed.rows) });
  const history = new List({ label: 'Events', rowHeight: 28, most: 12, columns: eventColumns('node'), key: (e) => e.seq, open: (e) => e.workload && go(workloadHref(e.workload)), none: () => feed.loading ? 'one moment' : feed.error || 'nothing yet' });
  const units = new List({ label: 'Workloads', rowHeight: 30, most: 11, columns: workloadColumns(false), open: (r) => go(workloadHref(r.id)), none: () => 'nothing runs here' });

  async function load() {
    timer = null;
    try {
      record = await call('GET', path);
      gone = false;
    } catch (e) {
      if (e.status === 404) gone = true;
    }
    draw();
  }
  const soon = () => (timer ??= setTimeout(load, 150));
  async function act(verb, method, where, done) {
    try {
      await call(method, where);
      toast(done);
      soon();
    } catch (e) {
      toast(`${verb}: ${e.message}`, true);
    }
  }
  const buttons = {
    cordon: h('button.button', { type: 'button', onclick: () => act('cordon', 'POST', `${path}/cordon`, `${id} gets nothing new`) }, 'Cordon'),
    uncordon: h('button.button', { type: 'button', onclick: () => act('uncordon', 'POST', `${path}/uncordon`, `${id} takes work again`) }, 'Uncordon'),
    drain: h('button.button.danger', { type: 'button', async onclick() {
      const n = state.units.get(id)?.length || 0;
      if (await ask(`Drain ${id}?`, `${plural(n, 'workload')} will be moved to other nodes, as far as they fit there. Nothing new is placed here until it is uncordoned.`, 'Drain', true))
        act('drain', 'POST', `${path}/drain`, `${id} is being drained`);
    } }, 'Drain'),
  };
  const kinds = [
    ['CPU', (r) => [r.cpu_allocated, r.cpu_used, r.cpu_total], (n) => cores(n)],
    ['Memory', (r) => [r.memory_allocated, r.memory_used, r.memory_total], mebibytes],
    ['Disk', (r) => [r.disk_allocated, r.disk_used, r.disk_total], gibibytes],
  ].map(([name, take, text]) => {
    const line = h('div.line'), words = h('span.muted'), part = h('b');
    meter(line);
    capacity.append(h('div.kind', null, h('div', null, h('span', null, name), part), line, words));
    return { take, text, line, words, part };
  });

  function draw() {
    drawing = null;
    const n = record;
    fill(head, h('h1', null, id), gone ? badge('Deleting', 'Forgotten') : n && badge(nodePhase(n), nodeWord(n)), h('div.buttons', null, gone || !n ? null : Object.values(buttons)));
    if (!n) {
      if (gone) fill(facts, empty('There is no such node', 'It may have been forgotten; what happened there is below while history is kept.'));
      return;
    }
    buttons.cordon.hidden = n.wish !== 'schedulable';
    buttons.uncordon.hidden = n.wish === 'schedulable';
    buttons.drain.hidden = n.wish === 'draining';
    const r = n.resources || {}, rowsHere = state.units.get(id) || [];
    const known = r.used_known || r.cpu_used || r.memory_used || r.disk_used; // 0 is not the same as not known
    for (const k of kinds) {
      const [a = 0, u = 0, t = 0] = k.take(r);
      setMeter(k.line, a, u, t, '');
      setText(k.part, percent(a, t));
      setText(k.words, `${k.text(a)} of ${k.text(t)} allocated, ${known ? `${k.text(u)} used` : 'use not known'}, ${k.text(Math.max(0, Math.round((t - a) * 1000) / 1000))} free`);
    }
    fill(facts, rows(
      ['Status', `${n.status}: ${n.status_reason || ''}`],
      ['Set by', `${n.status_updated_by || ''}, ${ago(ms(n.status_updated_at))}`],
      ['Wanted', n.wish],
      ['Heartbeat', ago(ms(n.last_heartbeat))],
      ['Agent', `${n.agent_version || '?'}, ${n.connected ? 'connected' : 'not connected'}${n.agent_endpoint ? `, ${n.agent_endpoint}` : ''}`],
      ['Runs', (n.supported_workload_types || []).join(', ')],
      ['Old copies', n.tombstones ? `${plural(n.tombstones, 'copy', 'copies')} not yet proved gone` : ''],
      ['Labels', Object.keys(n.labels || {}).length ? labels(n.labels) : ''],
      ['Registered', fullTime(ms(n.registered_at))]));
    setText(title, `Workloads ${count(rowsHere.length)}`);
    units.setRows(rowsHere.slice(), true);
  }
  const el = h('div.page.detail', null, h('nav.crumbs', { 'aria-label': 'Where you are' }, h('a', { href: '#/nodes' }, 'Nodes'), ' / ', h('span', null, id)), head,
    h('div.columns', null,
      h('section.card', { 'aria-label': 'Capacity' }, h('div.cardhead', null, h('h2', null, 'Capacity')), capacity),
      h('section.card', { 'aria-label': 'Status' }, h('div.cardhead', null, h('h2', null, 'Status')), facts)),
    h('section.card.units', { 'aria-label': 'Workloads' }, h('div.cardhead', null, title), units.el),
    h('section.card.history', { 'aria-label': 'Events' }, h('div.cardhead', null, h('h2', null, 'Events')), history.el));
  const tick = setInterval(load, 5000);
  return {
    el, title: id,
    start() {
      draw();
      load();
      feed.load();
    },
    update(change) {
      feed.take(change);
      if (change.nodes.has(id)) {
        if (!state.nodes.has(id)) gone = true;
        else record = { ...record, ...state.nodes.get(id) };
        drawing ??= setTimeout(draw, 60);
      }
      if (change.listed || (change.link && state.link.state === 'live')) soon();
    },
    focus: () => units.focus(),
    stop() {
      clearTimeout(timer);
      clearTimeout(drawing);
      clearInterval(tick);
      units.destroy();
      history.destroy();
    },
  };
}
