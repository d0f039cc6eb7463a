// Pictures for docs/screenshots, from clusters that look like something.
import { mkdir } from 'node:fs/promises';
import { fileURLToPath } from 'node:url';
import path from 'node:path';
import { Cluster, until, openPage, live, note } from './rig.mjs';

const OUT = path.join(path.dirname(fileURLToPath(import.meta.url)), '../../docs/screenshots');
const shoot = async (page, name) => {
  await page.mouse.move(5, 795);
  await page.waitForTimeout(500);
  await page.screenshot({ path: path.join(OUT, `${name}.png`) });
  note(`docs/screenshots/${name}.png`);
};
const mock = (zone, nodes, cpu, memory, ...more) => ['--runtime', 'mock', '--nodes', String(nodes), '--node-id', `${zone}`, '--label', `zone=${zone}`, '--cpu', String(cpu), '--memory', memory, '--job-max', '2s', ...more];
const APPS = ['checkout', 'search', 'catalog', 'payments', 'sessions', 'images', 'mailer', 'ledger', 'gateway', 'reports'];

async function city() {
  const c = await Cluster.parts([mock('fra', 9, 16, '64G'), mock('ams', 6, 32, '128G', '--label', 'disk=ssd'), mock('sto', 3, 8, '32G', '--start-fail', '900000')], '--heartbeat', '2s');
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === 18);
  await c.load(230, (i) => {
    const app = APPS[i % APPS.length];
    return { id: `${app}-${String(1 + Math.floor(i / APPS.length)).padStart(2, '0')}`, type: 'process', spec: { command: ['x'] }, labels: { app, tier: i % 3 ? 'web' : 'data' },
      resources: { cpu: [0.25, 0.5, 1, 2, 0.5][i % 5], memory_mb: [256, 512, 2048, 1024, 4096][i % 5] }, ...(i % 11 === 0 ? { restart: 'on-failure' } : {}) };
  });
  for (const [id, more] of [['train-resnet', { resources: { cpu: 48, memory_mb: 65536 } }], ['warehouse-load', { resources: { cpu: 2, memory_mb: 262144 } }], ['gpu-probe', { node_selector: { gpu: 'a100' }, resources: { cpu: 1, memory_mb: 512 } }]])
    await c.call('PUT', `/v1/workloads/${id}`, { type: 'process', spec: { command: ['x'] }, ...more });
  await c.call('POST', '/v1/nodes/fra-0002/cordon').catch(() => {});
  for (const id of ['mailer-03', 'mailer-04', 'reports-02']) await c.call('POST', `/v1/workloads/${id}/stop`).catch(() => {});
  await new Promise((d) => setTimeout(d, 7000));
  return c;
}

async function many() {
  const c = await Cluster.parts(['fra', 'ams', 'sto', 'mil'].map((zone, i) => mock(zone, 1250, 16, '64G', ...(i === 2 ? ['--start-fail', '30000'] : []))));
  await until('nodes', async () => (await c.get('/v1/cluster')).nodes_ready === 5000, 120000);
  await c.load(20000, (i) => ({ id: `svc-${String(i).padStart(6, '0')}`, type: 'process', spec: { command: ['x'] }, labels: { app: APPS[i % 10] }, resources: { cpu: [0.5, 1, 2, 4, 8][(i * 7919) % 5], memory_mb: 1024 } }));
  await new Promise((d) => setTimeout(d, 3000));
  return c;
}

export async function take() {
  await mkdir(OUT, { recursive: true });
  const all = await many();
  try {
    const page = await openPage(`${all.url}/`, { colorScheme: 'dark' });
    await live(page);
    await page.waitForTimeout(2000);
    await shoot(page, 'overview-5000');
    await page.context().close();
  } finally {
    await all.close();
  }
  const big = await city();
  try {
    let page = await openPage(`${big.url}/`, { height: 960 });
    await live(page);
    await page.waitForTimeout(1500);
    await shoot(page, 'overview');
    await page.context().close();
    page = await openPage(`${big.url}/#/workloads/train-resnet`, { colorScheme: 'dark' });
    await live(page);
    await shoot(page, 'pending-dark');
    await page.context().close();
    page = await openPage(`${big.url}/`, { width: 390, height: 800, scale: 2, colorScheme: 'dark' });
    await live(page);
    await page.waitForTimeout(1500);
    await shoot(page, 'phone');
    await page.context().close();
  } finally {
    await big.close();
  }
  const small = await Cluster.dev(3);
  try {
    const script = 'n=0; while :; do n=$((n+1)); printf "%s level=info msg=served path=/cart/%s status=200 ms=%s\\n" "$(date -u +%FT%TZ)" "$((n*7919%997))" "$((n*31%40))"; sleep 0.1; done';
    for (const name of ['cart', 'prices', 'stock', 'login']) await small.cli('run', name, '--label', `app=${name}`, '--label', 'team=shop', '--cpu', '0.05', '--', 'sh', '-c', script);
    await small.cli('run', 'flaky', '--retries', '4', '--', 'sh', '-c', 'echo starting; sleep 0.5; exit 3');
    await small.cli('run', 'nightly', '--job', '--', 'true');
    await new Promise((d) => setTimeout(d, 6000));
    const page = await openPage(`${small.url}/#/workloads/cart`, { height: 860 });
    await live(page);
    await page.waitForTimeout(1500);
    await shoot(page, 'workload');
    await page.context().close();
  } finally {
    await small.close();
  }
}
