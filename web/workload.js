// One workload: how it stands, why it is there (or nowhere), what happened to it, what it writes, and what can be done.
import { h, fill, setText, rows, labels, call, toast, ask, badge, empty, nodeHref } from './dom.js';
import { state } from './state.js';
import { cores, mebibytes, gibibytes, fullTime, ago, ms, duration, phaseWord, reasonWord, plural, percent } from './format.js';
import { Feed, eventColumns } from './events.js';
import { List } from './list.js';
import { Logs } from './logs.js';

const SHOWN = 12; // candidates at first

export function workload({ id, go }) {
  const head = h('div.title'), facts = h('div'), why = h('div'), spec = h('pre.code', { tabindex: '0' });
  const path = `v1/workloads/${encodeURIComponent(id)}`;
  let record = null, explained = null, gone = false, timer = null, busy = false, again = false, all = false, control = new AbortController();
  const logs = new Logs(id);
  const feed = new Feed({ filter: { workload: id }, onChange: () => history.setRows(feed.rows) });
  const history = new List({ label: 'History', rowHeight: 28, most: 12, columns: eventColumns('workload'), key: (e) => e.seq, open: (e) => e.node && go(nodeHref(e.node)),
    none: () => feed.loading ? 'one moment' : feed.error || 'nothing yet' });

  async function load() {
    timer = null;
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    try {
      [record, explained] = await Promise.all([call('GET', path, control.signal), call('GET', `${path}/explain`, control.signal)]);
      gone = false;
    } catch (e) {
      if (e.name === 'AbortError') return;
      if (e.status === 404) gone = true;
      else if (!record) fill(why, empty('That cannot be shown', e.message));
    }
    busy = false;
    draw();
    follow();
    if (again) {
      again = false;
      timer ??= setTimeout(load, 150);
    }
  }
  // Output exists as soon as it was launched somewhere; before that the server would only refuse.
  function follow() {
    const launched = !gone && record?.assigned_node && record.metadata?.last_launch_at;
    logs.el.hidden = !launched && !logs.control;
    if (launched && !logs.control) logs.start();
  }
  const soon = () => (timer ??= setTimeout(load, 120));

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
    stop: h('button.button', { type: 'button', onclick: () => act('stop', 'POST', `${path}/stop`, `${id} is being stopped`) }, 'Stop'),
    start: h('button.button', { type: 'button', onclick: () => act('start', 'POST', `${path}/start`, `${id} is being started`) }, 'Start'),
    retry: h('button.button', { type: 'button', onclick: () => act('retry', 'POST', `${path}/retry`, `${id} is tried again now`) }, 'Retry now'),
    delete: h('button.button.danger', { type: 'button', onclick: remove }, 'Delete'),
  };
  async function remove() {
    if (await ask(`Delete ${id}?`, 'It is stopped, and its record is removed. This cannot be undone.', 'Delete', true)) act('delete', 'DELETE', path, `${id} is being deleted`);
  }

  function draw() {
    const row = state.workloads.get(id), phase = gone ? 'Deleting' : record?.status?.phase || row?.shown || '';
    fill(head, h('h1', null, id), phase && badge(phase, gone ? 'Deleted' : phaseWord(phase)), h('div.buttons', null, gone ? null : Object.values(buttons)));
    if (!record) {
      if (gone) {
        fill(why, empty('There is no such workload', 'It may have been deleted; what happened to it is below while history is kept.'));
        fill(facts);
      }
      return;
    }
    const w = record, s = w.status || {}, p = w.placement || {}, r = w.resources || {}, retry = w.retry || {};
    const waits = ['Failed', 'RetryPending', 'Pending', 'Completed'].includes(s.phase);
    buttons.stop.hidden = w.desired_state !== 'Running';
    buttons.start.hidden = w.desired_state !== 'Stopped';
    buttons.retry.hidden = !(waits && s.phase !== 'Pending');
    buttons.delete.hidden = w.desired_state === 'Deleted';
    const alive = s.phase === 'Running' && s.started_at;
    fill(facts, rows(
      ['Node', w.assigned_node && h('a', { href: nodeHref(w.assigned_node) }, w.assigned_node)],
      ['Wanted', w.desired_state],
      [alive ? 'Running for' : 'Last change', alive ? duration(Date.now() - ms(s.started_at)) : ago(ms(s.last_updated))],
      ['Reason', s.failure_reason || (s.reason && s.reason !== 'placed' ? reasonWord(s.reason) : '')],
      ['Exit', s.exit_code !== undefined ? `code ${s.exit_code}` : s.signal !== undefined ? `signal ${s.signal}` : ''],
      ['Restarts', s.restarts || ''],
      ['Attempts', retry.attempts ? `${retry.attempts}${retry.max_attempts && retry.max_attempts < 2147483647 ? ` of ${retry.max_attempts}` : ''}` : ''],
      ['Next try', retry.next_retry_at ? `in ${duration(ms(retry.next_retry_at) - Date.now())}` : ''],
      ['Asks for', `${cores(r.cpu)} cpu, ${mebibytes(r.memory_mb)}${r.disk_gb ? `, ${gibibytes(r.disk_gb)} disk` : ''}`],
      ['Type', `${w.type}, restart ${w.restart}`],
      ['Labels', Object.keys(w.labels || {}).length ? labels(w.labels) : ''],
      ['Only on', Object.keys(w.node_selector || {}).length ? labels(w.node_selector) : ''],
      ['Revision', h('code', null, w.revision_id)],
      ['Created', `${fullTime(ms(w.metadata?.created_at))}`],
      ['Placed', p.placed_at ? `${ago(ms(p.placed_at))}${p.previous_node ? `, before on ${p.previous_node}` : ''}` : '']));
    setText(spec, JSON.stringify({ ...w.spec, ...(w.node_selector ? { node_selector: w.node_selector } : {}) }, null, 2));
    drawWhy();
  }

  function drawWhy() {
    const x = explained;
    if (!x) return;
    const list = x.candidates || [], total = Math.max(1, x.nodes || 0);
    fill(why,
      h('p.sentence', null, x.summary || ''),
      x.next && h('p.next', null, `Next: ${x.next}${x.next_at ? ` (in ${duration(ms(x.next_at) - Date.now())})` : ''}`),
      (x.would_fit_if || []).length > 0 && h('div.fits', null, h('h3', null, 'It would fit if you'), h('ul', null, x.would_fit_if.map((t) => h('li', null, t)))),
      h('div.reasons', null,
        (x.feasible || 0) > 0 && h('div.reason', null, h('span', null, 'could take it'), h('span.meter', null, width(h('i.alloc.good'), x.feasible / total)), h('b', null, plural(x.feasible, 'node'))),
        (x.reasons || []).map((r) => h('div.reason', null, h('span', null, reasonWord(r.reason)), h('span.meter', null, width(h('i.alloc.warn'), r.nodes / total)), h('b', null, plural(r.nodes, 'node'))))),
      list.length > 0 && h('table.candidates', null, h('thead', null, h('tr', null, ['Node', 'Utilised', 'Verdict'].map((t) => h('th', { scope: 'col' }, t)))),
        h('tbody', null, list.slice(0, all ? list.length : SHOWN).map((c) => h(`tr${c.chosen ? '.chosen' : ''}`, null,
          h('td', null, h('a', { href: nodeHref(c.node_id) }, c.node_id)), h('td.num', null, percent(c.score || 0, 1e6)),
          h('td', null, c.chosen ? 'chosen' : c.feasible ? 'could take it' : reasonWord(c.reason), c.detail && h('span.muted', null, ` · ${c.detail}`)))))),
      list.length > SHOWN && !all && h('button.button', { type: 'button', onclick: () => { all = true; drawWhy(); } }, `Show all ${list.length}`));
  }
  function width(el, part) {
    el.style.width = `${Math.round(part * 100)}%`;
    return el;
  }

  const el = h('div.page.detail', null, h('nav.crumbs', { 'aria-label': 'Where you are' }, h('a', { href: '#/workloads' }, 'Workloads'), ' / ', h('span', null, id)), head,
    h('div.columns', null,
      h('section.card', { 'aria-label': 'State' }, h('div.cardhead', null, h('h2', null, 'State')), facts),
      h('section.card', { 'aria-label': 'Why' }, h('div.cardhead', null, h('h2', null, 'Why')), why)),
    logs.el,
    h('div.columns', null,
      h('section.card.history', { 'aria-label': 'History' }, h('div.cardhead', null, h('h2', null, 'History')), history.el),
      h('section.card', { 'aria-label': 'Specification' }, h('div.cardhead', null, h('h2', null, 'Specification')), spec)));
  const tick = setInterval(() => record && draw(), 1000);
  return {
    el, title: id,
    start() {
      draw();
      load();
      feed.load();
      follow();
    },
    update(change) {
      feed.take(change);
      if (change.rows.has(id) && record && state.loaded && !state.workloads.has(id)) {
        gone = true;
        clearTimeout(timer);
        timer = null;
        draw();
      } else if (change.rows.has(id) || change.listed) soon();
      for (const e of change.events) if (e.workload === id && e.type === 'WorkloadStarted' && logs.ended) logs.start();
      if (change.link && state.link.state === 'live') {
        soon();
        if (logs.state === 'interrupted') logs.start();
      }
    },
    focus: () => history.focus(),
    stop() {
      control.abort();
      clearTimeout(timer);
      clearInterval(tick);
      logs.stop();
      history.destroy();
    },
  };
}
