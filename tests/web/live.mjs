// What holds while things go wrong: the server dies and returns, history has a hole, nodes fall silent; and the page's own fold agrees with the server.
import { Cluster, test, check, equal, until, openPage, live, clean, note } from './rig.mjs';

const mock = (zone, nodes, ...more) => ['--runtime', 'mock', '--nodes', String(nodes), '--node-id', `node-${zone}`, '--label', `zone=${zone}`, '--cpu', '8', '--memory', '16G', ...more];
const job = (i, more = {}) => ({ id: `job-${String(i).padStart(5, '0')}`, type: 'process', spec: { command: ['x'] }, resources: { cpu: 0.25, memory_mb: 128 }, ...more });
const random = (seed) => () => ((seed = (seed * 1103515245 + 12345) & 0x7fffffff) / 0x7fffffff);

// What the page shows of each workload and node, against what the server says.
async function agree(page, c) {
  const mine = () => page.evaluate(() => ({
    rows: [...globalThis.berth.state.workloads.values()].map((r) => [r.id, r.shown, r.node, r.desired]).sort(),
    nodes: [...globalThis.berth.state.nodes.values()].map((n) => [n.id, n.status, n.wish, n.resources?.cpu_allocated || 0]).sort(),
    counts: Object.entries(globalThis.berth.state.counts).filter(([, n]) => n).sort(),
    units: [...globalThis.berth.state.units].flatMap(([node, list]) => list.map((r) => [r.id, node])).sort(),
  }));
  await until('page and server to agree', async () => {
    const rows = (await c.list('workloads')).map((w) => [w.id, w.status.phase, w.assigned_node || '', w.desired_state]).sort();
    const nodes = (await c.list('nodes')).map((n) => [n.id, n.status, n.wish, n.resources?.cpu_allocated || 0]).sort();
    const tally = {};
    for (const [, phase] of rows) tally[phase] = (tally[phase] || 0) + 1;
    const m = await mine();
    equal(m.rows.filter((r, i) => JSON.stringify(r) !== JSON.stringify(rows[i])).slice(0, 3), [], `of ${rows.length} workloads (page ${m.rows.length}), these differ`);
    equal(m.rows.length, rows.length, 'workloads');
    equal(m.nodes, nodes, 'nodes');
    equal(m.counts, Object.entries(tally).sort(), 'counts');
    equal(m.units, rows.filter((r) => r[2]).map((r) => [r[0], r[2]]).sort(), 'units');
    return true;
  }, 20000);
}

// R: X4 A8
test('after a storm of changes the page agrees with the server, without asking for everything again', async ({ defer }) => {
  const c = await Cluster.parts([mock('a', 10, '--crash', '30000', '--start-fail', '100000', '--job-max', '500ms'), mock('b', 10)]);
  defer(() => c.close());
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === 20);
  const page = await openPage(`${c.url}/`);
  defer(() => page.context().close());
  await live(page);
  let lists = 0;
  page.context().on('request', (r) => /v1\/workloads\?limit/.test(r.url()) && !/node=/.test(r.url()) && lists++);
  const dice = random(7);
  await c.load(300, (i) => job(i, i % 5 === 0 ? { restart: 'on-failure' } : {}));
  for (let i = 0; i < 250; i++) {
    const id = job(Math.floor(dice() * 300)).id, kind = Math.floor(dice() * 6);
    try {
      if (kind === 0) await c.call('DELETE', `/v1/workloads/${id}`);
      else if (kind === 1) await c.call('PUT', `/v1/workloads/${id}`, { ...job(0), id, resources: { cpu: 0.1 + Math.floor(dice() * 5) / 10, memory_mb: 64 } });
      else await c.call('POST', `/v1/workloads/${id}/${['stop', 'start', 'retry', 'stop'][kind - 2]}`);
    } catch { /* gone, or nothing to retry */ }
    if (i === 100) await c.cli('drain', 'node-b-0003', '--wait=false').catch(() => c.call('POST', '/v1/nodes/node-b-0003/drain')).catch(() => {});
  }
  await agree(page, c);
  equal(lists, 0, 'lists of all workloads');
  clean(page);
});

// R: X4 A5
test('the server is killed and comes back: the page says so, goes on, and no event is lost or doubled', async ({ defer }) => {
  const c = await Cluster.parts([mock('a', 3)]);
  defer(() => c.close());
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === 3);
  await c.load(20, (i) => job(i));
  const page = await openPage(`${c.url}/#/events`);
  defer(() => page.context().close());
  await live(page);
  const total = () => page.evaluate(() => document.querySelector('[role=grid]').getAttribute('aria-rowcount') - 1);
  await until('history', async () => (await total()) >= 60);
  await c.killServer();
  await until('the loss to be shown', async () => /reconnecting|connecting/.test(await page.innerText('#link')), 5000);
  await page.locator('.banner', { hasText: 'No connection' }).waitFor({ timeout: 8000 });
  await c.startServer();
  await c.load(10, (i) => job(100 + i));
  const began = Date.now();
  await until('to be live again', async () => (await page.innerText('#link')) === 'live', 15000);
  note(`live again ${Date.now() - began} ms after the server`);
  await until('all to run', async () => (await c.get('/v1/cluster')).workloads_running === 30, 60000);
  await until('the same events as the server has', async () => {
    const head = (await c.get('/v1/cluster')).head;
    return (await total()) === head;
  });
  // every sequence once, in order: look at all rows by scrolling through them
  const seen = await page.evaluate(async () => {
    const body = document.querySelector('.rows'), found = new Set();
    for (let y = 0; ; y += 300) {
      body.scrollTop = y;
      await new Promise((d) => requestAnimationFrame(() => requestAnimationFrame(d)));
      for (const r of document.querySelectorAll('.rows .row:not([hidden])')) found.add(Number(r.dataset.key));
      if (y > body.scrollHeight) break;
    }
    return [...found].sort((a, b) => a - b);
  });
  equal(seen, Array.from({ length: seen.length }, (_, i) => i + 1), 'sequences');
  await page.locator('.banner').waitFor({ state: 'detached' });
  await page.goto(`${c.url}/#/`);
  await agree(page, c);
  check(page.problems.every((p) => /ERR_CONNECTION|ERR_INCOMPLETE|ERR_EMPTY|Failed to load resource/.test(p)), page.problems.join('\n'));
});

// R: X4
test('a gap in the stream makes the page list everything anew', async ({ defer }) => {
  const c = await Cluster.parts([mock('a', 3)]);
  defer(() => c.close());
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === 3);
  await c.load(5, (i) => job(i));
  let streams = 0;
  const page = await openPage(`${c.url}/`, {
    before: (p) => p.context().route(/events\/stream/, (route) => {
      if (++streams > 1) return route.continue();
      return route.fulfill({ status: 200, contentType: 'text/event-stream', body: 'id: 9\nevent: gap\ndata: {"from":1,"to":9,"message":"events 1 to 9 are no longer kept"}\n\n' });
    }),
  });
  defer(() => page.context().close());
  let lists = 0;
  page.context().on('request', (r) => /v1\/workloads\?limit/.test(r.url()) && lists++);
  await until('a second stream', async () => streams >= 2);
  await live(page);
  await c.load(5, (i) => job(10 + i));
  await agree(page, c);
});

// R: C35
test('a degraded server is told in a banner', async ({ defer }) => {
  const c = await Cluster.parts([mock('a', 1)]);
  defer(() => c.close());
  let degraded = true;
  const page = await openPage(`${c.url}/`, {
    before: (p) => p.context().route(/\/health$/, (route) => (degraded
      ? route.fulfill({ json: { status: 'degraded', mode: 'degraded', reason: 'the store is full', mode_changed_at: new Date(Date.now() - 90000).toISOString() } })
      : route.continue())),
  });
  defer(() => page.context().close());
  await live(page);
  await page.locator('.banner', { hasText: 'the store is full' }).waitFor({ timeout: 8000 });
  degraded = false;
  await page.locator('.banner').waitFor({ state: 'detached', timeout: 8000 });
  clean(page);
});

// R: C10 C11
test('silent nodes: their workloads turn Unknown, eviction is held, a banner says so; and back', async ({ defer }) => {
  const c = await Cluster.parts([mock('a', 4), mock('b', 1)], '--heartbeat', '1s', '--grace', '4s');
  defer(() => c.close());
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === 5);
  await c.load(20, (i) => job(i));
  await until('all to run', async () => (await c.get('/v1/cluster')).workloads_running === 20);
  const page = await openPage(`${c.url}/`);
  defer(() => page.context().close());
  await live(page);
  c.agents[0].kill('SIGSTOP');
  await page.locator('.figure[data-phase=Unknown]').waitFor({ timeout: 20000 });
  await page.locator('.banner', { hasText: 'Eviction is held' }).waitFor({ timeout: 20000 });
  await agree(page, c);
  // a page that is opened now knows it too
  const other = await openPage(`${c.url}/`);
  defer(() => other.context().close());
  await live(other);
  await other.locator('.banner', { hasText: 'Eviction is held' }).waitFor({ timeout: 8000 });
  await agree(other, c);
  c.agents[0].kill('SIGCONT');
  await page.locator('.banner').waitFor({ state: 'detached', timeout: 30000 });
  await until('all to run again', async () => (await c.get('/v1/cluster')).workloads_running === 20, 60000);
  await agree(page, c);
  await agree(other, c);
  clean(page);
});
