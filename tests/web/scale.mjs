// 5,000 nodes and 50,000 workloads: how soon something is seen, and whether frames keep coming.
import { Cluster, test, check, until, openPage, clean, note } from './rig.mjs';

const NODES = Number(process.env.BERTH_WEB_NODES || 5000), WORKLOADS = Number(process.env.BERTH_WEB_WORKLOADS || 50000), ZONES = 5;
const pick = (i, list) => list[(i * 7919) % list.length];

// Measured in the page: the time between frames, and tasks that took longer than 50 ms.
function measure() {
  globalThis.__frames = [];
  let last = performance.now();
  const frame = () => {
    const now = performance.now();
    globalThis.__frames.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  requestAnimationFrame(frame);
}
async function figures(page, name) {
  const f = (await page.evaluate(() => globalThis.__frames.splice(0))).sort((a, b) => a - b), q = (k) => f[Math.min(f.length - 1, Math.floor(f.length * k))];
  const r = { frames: f.length, p50: q(0.5), p95: q(0.95), p99: q(0.99), max: q(1) };
  note(`frames ${name}: n=${r.frames} p50=${r.p50.toFixed(1)} ms p95=${r.p95.toFixed(1)} ms p99=${r.p99.toFixed(1)} ms max=${r.max.toFixed(1)} ms`);
  return r;
}

// R: X4
test(`${NODES} nodes and ${WORKLOADS} workloads without stutter`, async ({ defer }) => {
  const agents = Array.from({ length: ZONES }, (_, i) => ['--runtime', 'mock', '--nodes', String(NODES / ZONES), '--node-id', `node-${'abcde'[i]}`, '--label', `zone=${'abcde'[i]}`, '--cpu', '16', '--memory', '64G']);
  const c = await Cluster.parts(agents);
  defer(() => c.close());
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === NODES, 120000);
  let began = Date.now();
  await c.load(WORKLOADS, (i) => ({ id: `svc-${String(i).padStart(6, '0')}`, type: 'process', spec: { command: ['x'] }, labels: { app: `app-${i % 50}` }, resources: { cpu: pick(i, [0.25, 0.5, 1, 2]), memory_mb: pick(i, [256, 512, 1024, 4096]) } }));
  await until('all to run', async () => (await c.get('/v1/cluster')).workloads_running === WORKLOADS, 300000);
  note(`${WORKLOADS} workloads ran after ${((Date.now() - began) / 1000).toFixed(1)} s`);

  began = Date.now();
  const page = await openPage(`${c.url}/`, { init: measure });
  defer(() => page.context().close());
  await page.waitForFunction((n) => globalThis.berth?.state.nodes.size >= n, NODES, { timeout: 60000 });
  note(`all nodes after ${Date.now() - began} ms`);
  await page.waitForFunction((n) => globalThis.berth.state.loaded && globalThis.berth.state.workloads.size >= n && globalThis.berth.state.link.state === 'live', WORKLOADS, { timeout: 120000 });
  note(`all workloads after ${Date.now() - began} ms`);
  const paint = await page.evaluate(() => performance.getEntriesByName('first-contentful-paint')[0].startTime);
  note(`first contentful paint after ${paint.toFixed(0)} ms`);
  await figures(page, 'while loading');
  check(paint < 2000, `first paint after ${paint} ms`);

  await page.waitForTimeout(4000);
  const idle = await figures(page, 'idle');
  check(idle.p50 < 20 && idle.p99 < 100, 'frames are late while nothing happens');

  // about 500 changes a second
  let going = true, changes = 0;
  const churn = Promise.all(Array.from({ length: 4 }, async (_, k) => {
    for (let i = k; going; i += 4) {
      await c.call('POST', `/v1/workloads/svc-${String((i * 7919) % WORKLOADS).padStart(6, '0')}/${i % 3 ? 'stop' : 'start'}`).catch(() => {});
      changes++;
      await new Promise((d) => setTimeout(d, 6));
    }
  }));
  await page.waitForTimeout(8000);
  const busy = await figures(page, 'during live updates');
  const before = await page.evaluate(() => document.querySelector('.figure[data-phase=Stopped] b').textContent);
  for (const level of ['S', 'M', 'L']) {
    await page.locator('.segments button', { hasText: new RegExp(`^${level}$`) }).click();
    await page.mouse.move(640, 500);
    await page.evaluate(() => globalThis.__frames.splice(0));
    for (let i = 0; i < 40; i++) {
      await page.mouse.wheel(0, 240);
      await page.waitForTimeout(25);
    }
    await figures(page, `scrolling at ${level} during updates`);
  }
  going = false;
  await churn;
  note(`${changes} changes were made meanwhile; ${before} stopped were shown`);
  check(busy.p50 < 20, `the median frame took ${busy.p50} ms`);
  check(busy.p99 < 100, `one frame in a hundred took ${busy.p99} ms or more`);

  await page.keyboard.press('/');
  began = Date.now();
  await page.keyboard.type('svc-0499');
  await page.locator('#found .hit', { hasText: 'svc-0499' }).first().waitFor();
  note(`found after ${Date.now() - began} ms`);
  await page.keyboard.press('Escape');
  await page.goto(`${c.url}/#/workloads`);
  await page.locator('.rows .row:visible').first().waitFor();
  await page.evaluate(() => globalThis.__frames.splice(0));
  await page.mouse.move(640, 500);
  for (let i = 0; i < 40; i++) {
    await page.mouse.wheel(0, 900);
    await page.waitForTimeout(25);
  }
  await figures(page, 'scrolling the list of workloads');
  check((await page.locator('.rows .row').count()) < 100, 'rows out of sight exist');
  const bytes = await page.evaluate(() => performance.memory?.usedJSHeapSize || 0);
  note(`page heap ${(bytes / 1e6).toFixed(0)} MB`);
  clean(page);
});
