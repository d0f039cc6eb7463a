// The pages on a small cluster: what they show, what they do, keys, colours, narrow screens, hostile text.
import { readFile } from 'node:fs/promises';
import path from 'node:path';
import { Cluster, test, atEnd, check, equal, until, openPage, live, clean, note } from './rig.mjs';

let shared = null;
const cluster = async () => (shared ??= await Cluster.dev(3));
const visit = async (defer, where = '', options) => {
  const c = await cluster();
  const page = await openPage(`${c.url}/${where}`, options);
  defer(() => page.context().close());
  await live(page);
  return [page, c];
};
const loop = ['sh', '-c', 'i=0; while :; do i=$((i+1)); echo "line $i of the log"; sleep 0.2; done'];

// R: C2
test('every page loads without an error in the console and asks nobody else', async ({ defer }) => {
  const [page, c] = await visit(defer);
  await c.cli('run', 'first', '--label', 'app=shop', '--', ...loop);
  await c.cli('run', 'impossible', '--cpu', '4096', '--', 'true');
  await until('first to run', async () => (await c.get('/v1/workloads/first')).status?.phase === 'Running');
  for (const where of ['#/', '#/workloads', '#/workloads/first', '#/workloads/impossible', '#/nodes', '#/nodes/node-1', '#/events', '#/workloads?phase=Pending', '#/nowhere']) {
    await page.goto(`${c.url}/${where}`);
    await page.waitForTimeout(400);
    check((await page.locator('main').innerText()).length > 20, `${where} is empty`);
  }
  clean(page);
});

// R: C2
test('files have types, tags and a strict policy; those with a hash may be kept for ever', async () => {
  const c = await cluster();
  const html = await fetch(`${c.url}/`), text = await html.text();
  check(/script-src 'self'/.test(html.headers.get('content-security-policy')) && !/unsafe/.test(html.headers.get('content-security-policy')), 'policy');
  check(!/<script>|style=|onclick=/.test(text), 'inline code in the page');
  const again = await fetch(`${c.url}/`, { headers: { 'If-None-Match': html.headers.get('etag') } });
  equal(again.status, 304, 'the same page again');
  const main = text.match(/ui\/[0-9a-f]{12}\/main\.js/)[0];
  const js = await fetch(`${c.url}/${main}`);
  check(/javascript/.test(js.headers.get('content-type')) && /immutable/.test(js.headers.get('cache-control')), 'main.js');
  check(/no-cache/.test((await fetch(`${c.url}/ui/000000000000/main.js`)).headers.get('cache-control')), 'an old hash must not be kept');
  equal((await fetch(`${c.url}/ui/nothing.js`)).status, 404, 'an unknown file');
  equal((await fetch(`${c.url}/ui/../../etc/passwd`)).status, 404, 'a path out of it');
});

// R: X4
test('what the command line applies appears within 2 s, and its phase changes live', async ({ defer }) => {
  const [page, c] = await visit(defer, '#/workloads');
  await page.evaluate(() => (globalThis.__here = true));
  await c.cli('run', 'newcomer', '--', 'sleep', '1000');
  const began = Date.now();
  const row = page.locator('.row[data-key="newcomer"]');
  await row.waitFor({ timeout: 2000 });
  await row.locator('.badge[data-phase=Running]').waitFor({ timeout: 4000 });
  note(`shown ${Date.now() - began} ms after the command had ended`);
  await c.cli('stop', 'newcomer');
  await row.locator('.badge[data-phase=Stopped]').waitFor({ timeout: 15000 });
  await c.cli('start', 'newcomer');
  await row.locator('.badge[data-phase=Running]').waitFor({ timeout: 15000 });
  await c.cli('delete', 'newcomer');
  await row.waitFor({ state: 'hidden', timeout: 15000 });
  check(await page.evaluate(() => globalThis.__here), 'the page was loaded again');
  clean(page);
});

// R: A8
test('what waits is shown with its reason, and explained on its page', async ({ defer }) => {
  const [page, c] = await visit(defer);
  await c.cli('run', 'giant', '--cpu', '4096', '--', 'true');
  const chip = page.locator('.chip', { hasText: 'giant' });
  await chip.waitFor({ timeout: 2000 });
  check(/cpu insufficient/.test(await chip.innerText()), await chip.innerText());
  await chip.click();
  await page.locator('.sentence', { hasText: 'fits on none of 3 nodes' }).waitFor();
  check(await page.locator('.fits li').count() > 0, 'what would make it fit');
  const verdicts = await page.locator('.candidates tbody tr').allInnerTexts();
  equal(verdicts.length, 3, 'candidates');
  check(verdicts.every((t) => /cpu insufficient/.test(t)), verdicts.join());
  await c.cli('delete', 'giant');
  await page.locator('.title .badge', { hasText: 'Deleted' }).waitFor({ timeout: 5000 });
  clean(page, /404.*workloads\/giant/);
});

// R: A8
test('a placed workload shows why it is there', async ({ defer }) => {
  const [page, c] = await visit(defer, '#/workloads/first');
  const node = (await c.get('/v1/workloads/first')).assigned_node;
  await page.locator('.candidates .chosen', { hasText: node }).waitFor();
  await page.locator('.sentence', { hasText: `on ${node}` }).waitFor();
  clean(page);
});

// R: C40
test('logs stream live, pause and are searched', async ({ defer }) => {
  const [page] = await visit(defer, '#/workloads/first');
  const lines = page.locator('.lines > div');
  await lines.first().waitFor();
  const n = await lines.count();
  await until('more lines', async () => (await lines.count()) > n + 3, 5000);
  const pause = page.locator('.logs button');
  await pause.click();
  const frozen = await lines.count();
  await until('new ones to be counted', async () => /new/.test(await pause.innerText()), 5000);
  equal(await lines.count(), frozen, 'lines while paused');
  await pause.click();
  await until('to go on', async () => (await lines.count()) > frozen, 5000);
  const texts = await lines.allInnerTexts(), numbers = texts.map((t) => Number(t.match(/line (\d+)/)?.[1])).filter(Boolean);
  check(numbers.every((k, i) => i === 0 || k === numbers[i - 1] + 1), `lines are missing or doubled: ${numbers.slice(0, 30)}`);
  await page.fill('.logs input', `LINE ${numbers[2]} `);
  await until('only the match', async () => (await lines.count()) === 1, 3000);
  equal(await page.locator('mark').count(), 1, 'marks');
  clean(page);
});

// R: C6 C28
test('stop, start, retry and delete work from the page; delete asks first', async ({ defer }) => {
  const [page, c] = await visit(defer);
  await c.cli('run', 'victim', '--', 'sleep', '1000');
  await c.cli('run', 'broken', '--retries', '1', '--', 'sh', '-c', 'exit 7');
  await page.goto(`${c.url}/#/workloads/victim`);
  const phase = (p) => page.locator(`.title .badge[data-phase=${p}]`).waitFor({ timeout: 15000 });
  await phase('Running');
  await page.getByRole('button', { name: 'Stop' }).click();
  await phase('Stopped');
  await page.getByRole('button', { name: 'Start' }).click();
  await phase('Running');
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Cancel' }).click();
  equal(await page.locator('dialog').count(), 0, 'dialogs');
  check((await c.get('/v1/workloads/victim')).desired_state === 'Running', 'cancelled, and yet deleted');
  await page.getByRole('button', { name: 'Delete' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Delete' }).click();
  await page.locator('.title .badge', { hasText: 'Deleted' }).waitFor({ timeout: 15000 });
  const last = (await c.get('/v1/events?workload=victim&type=WorkloadDeleting')).items[0];
  equal(last.actor, 'dashboard', 'who did it');

  await page.goto(`${c.url}/#/workloads/broken`);
  await phase('Failed');
  check(/exited with code 7/.test(await page.locator('.facts').innerText()), 'the reason');
  await page.getByRole('button', { name: 'Retry' }).click();
  await until('a second attempt', async () => (await c.get('/v1/events?workload=broken&type=RetryTriggered')).items?.length > 0);
  await c.cli('delete', 'broken');
  clean(page, /404.*workloads\/victim/);
});

// R: C12 C13
test('a node page shows what it has and runs; cordon, uncordon and drain work', async ({ defer }) => {
  const [page, c] = await visit(defer);
  const id = (await c.get('/v1/workloads/first')).assigned_node;
  await page.goto(`${c.url}/#/nodes/${id}`);
  await page.locator('.units .row[data-key=first]').waitFor();
  check(/allocated/.test(await page.locator('.capacity').innerText()), 'capacity');
  check(/registered/.test(await page.locator('.facts').innerText()), 'provenance');
  await page.getByRole('button', { name: 'Cordon', exact: true }).click();
  await page.locator('.title .badge', { hasText: 'Cordoned' }).waitFor();
  equal((await c.get(`/v1/nodes/${id}`)).wish, 'cordoned', 'wish');
  await page.getByRole('button', { name: 'Uncordon' }).click();
  await page.locator('.title .badge', { hasText: 'Ready' }).waitFor();
  await page.getByRole('button', { name: 'Drain' }).click();
  await page.locator('dialog').getByRole('button', { name: 'Drain' }).click();
  await page.locator('.title .badge', { hasText: 'Draining' }).waitFor();
  await until('first to be elsewhere', async () => {
    const w = await c.get('/v1/workloads/first');
    return w.assigned_node && w.assigned_node !== id && w.status.phase === 'Running';
  }, 30000);
  await page.locator('.units .row[data-key=first]').waitFor({ state: 'hidden' });
  await page.getByRole('button', { name: 'Uncordon' }).click();
  await page.locator('.title .badge', { hasText: 'Ready' }).waitFor();
  clean(page);
});

// R: X4
test('events: live, filtered by type, workload and node, paused and resumed', async ({ defer }) => {
  const [page, c] = await visit(defer, '#/events');
  const rows = page.locator('.rows .row:visible');
  await rows.first().waitFor();
  await c.cli('run', 'eventful', '--', 'sleep', '1000');
  await page.locator('.row', { hasText: 'eventful' }).first().waitFor({ timeout: 2000 });
  await page.selectOption('select', 'WorkloadStarted');
  await until('only that type', async () => {
    const t = await rows.allInnerTexts();
    return t.length > 0 && t.every((x) => /WorkloadStarted/.test(x));
  });
  await page.fill('input[aria-label=Workload]', 'eventful');
  await until('only that workload', async () => {
    const t = await rows.allInnerTexts();
    return t.length > 0 && t.every((x) => /WorkloadStarted/.test(x) && /eventful/.test(x));
  });
  check(/type=WorkloadStarted/.test(page.url()) && /workload=eventful/.test(page.url()), `the filter is part of the address: ${page.url()}`);
  const n = await rows.count();
  await page.click('#pause');
  await c.cli('stop', 'eventful');
  await until('stopped', async () => (await c.get('/v1/workloads/eventful')).status.phase === 'Stopped');
  await c.cli('start', 'eventful');
  await until('a held event', async () => /1 new/.test(await page.innerText('#pause')));
  equal(await rows.count(), n, 'rows while paused');
  await page.click('#pause');
  await until('the held one', async () => (await rows.count()) === n + 1);
  await page.fill('input[aria-label=Workload]', '');
  await page.fill('input[aria-label=Node]', 'node-2');
  await until('only that node', async () => {
    const t = await rows.allInnerTexts();
    return t.length > 0 && t.every((x) => /node-2/.test(x));
  });
  const left = await page.evaluate(async () => {
    const box = document.querySelector('input[aria-label=Node]');
    box.value = 'node-1';
    box.dispatchEvent(new Event('input'));
    for (const key of ['g', 'w']) document.body.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true }));
    await new Promise((done) => setTimeout(done, 300)); // behind what the page would do about it
    return location.hash;
  });
  equal(left, '#/workloads', 'what was typed last does not take the address back');
  await c.cli('delete', 'eventful');
  clean(page);
});

// R: X4
test('keys: search, pages, lists, topology, help, escape', async ({ defer }) => {
  const [page] = await visit(defer);
  const at = (p) => until(p, async () => new URL(page.url()).hash === p, 3000);
  await page.keyboard.press('g');
  await page.keyboard.press('w');
  await at('#/workloads');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('ArrowUp');
  equal(await page.locator('.row.active').getAttribute('data-key'), 'first', 'the active row');
  await page.keyboard.press('Enter');
  await at('#/workloads/first');
  await page.keyboard.press('Escape');
  await at('#/workloads');
  await page.keyboard.press('g');
  await page.keyboard.press('n');
  await at('#/nodes');
  await page.keyboard.press('g');
  await page.keyboard.press('e');
  await at('#/events');
  const spoken = await page.evaluate(() => {
    for (const key of ['g', 'o', 'ArrowRight']) document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key, bubbles: true, cancelable: true }));
    return document.querySelector('#topo-option')?.textContent;
  });
  check(/^node-\d, zone/.test(spoken), `a key right behind those that change the page is the new page's: ${spoken}`);
  await at('#/');
  await page.keyboard.press('ArrowRight');
  const chosen = await until('a spoken node', async () => /^(node-\d), zone/.exec(await page.textContent('#topo-option'))?.[1]);
  await page.keyboard.press('-');
  check((await page.getAttribute('.segments', 'data-level')) !== 'names', 'zoom by key');
  await page.keyboard.press('Enter');
  await at(`#/nodes/${chosen}`);
  await page.keyboard.press('?');
  await page.locator('dialog', { hasText: 'Keys' }).waitFor();
  await page.keyboard.press('Escape');
  await page.locator('dialog').waitFor({ state: 'detached' });
  await page.keyboard.press('/');
  await page.keyboard.type('app=shop');
  await page.locator('#found .hit', { hasText: 'first' }).waitFor();
  await page.keyboard.press('ArrowDown');
  await page.keyboard.press('Enter');
  await at('#/workloads/first');
  clean(page);
});

// R: X4
test('a filter is part of the address, and gone with it', async ({ defer }) => {
  const [page] = await visit(defer);
  const pressed = (phase, value) => page.locator(`.filter${phase ? `[data-phase=${phase}]` : ':not([data-phase])'}[aria-pressed=${value}]`).waitFor();
  await page.keyboard.press('g');
  await page.keyboard.press('w');
  await pressed('', true);
  await page.locator('.filter[data-phase=Running]').click();
  await pressed('Running', true);
  equal(new URL(page.url()).hash, '#/workloads?phase=Running', 'the address');
  await page.locator('nav a[data-page=workloads]').click();
  await pressed('', true);
  await pressed('Running', false);
  equal(new URL(page.url()).hash, '#/workloads', 'the address without it');
  clean(page);
});

// R: X4
test('dark by the system and by a switch that is remembered; contrast is enough', async ({ defer }) => {
  const [page] = await visit(defer, '', { colorScheme: 'dark' });
  const theme = () => page.evaluate(() => document.documentElement.dataset.theme);
  const contrast = () => page.evaluate(() => {
    const style = getComputedStyle(document.documentElement), probe = document.createElement('div');
    document.body.append(probe);
    const light = (name) => {
      probe.style.color = style.getPropertyValue(name);
      const [r, g, b] = getComputedStyle(probe).color.match(/[\d.]+/g).map((v) => (v / 255 <= 0.03928 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4));
      return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const out = {};
    for (const [text, ground] of [['--text', '--bg'], ['--text', '--card'], ['--muted', '--bg'], ['--muted', '--card'], ['--muted', '--panel'], ['--muted', '--hover'], ['--accent', '--card'], ['--bad', '--card'], ['--bad', '--badtint'], ['--warn', '--warntint'], ['--text', '--active']]) {
      const [a, b] = [light(text), light(ground)].sort((x, y) => y - x);
      out[`${text} on ${ground}`] = (a + 0.05) / (b + 0.05);
    }
    probe.remove();
    return out;
  });
  equal(await theme(), 'dark', 'by the system');
  const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const darkGround = await ground();
  for (const [pair, ratio] of Object.entries(await contrast())) check(ratio >= 4.5, `dark: ${pair} is ${ratio.toFixed(2)}`);
  await page.click('#theme');
  equal(await theme(), 'light', 'by the switch');
  check((await ground()) !== darkGround, 'the colours are the same');
  for (const [pair, ratio] of Object.entries(await contrast())) check(ratio >= 4.5, `light: ${pair} is ${ratio.toFixed(2)}`);
  await page.reload();
  equal(await theme(), 'light', 'after a reload');
  await page.keyboard.press('t');
  equal(await theme(), 'dark', 'by the key');
  clean(page);
});

// R: X4
test('everything that can be used has a name, and focus is seen', async ({ defer }) => {
  const [page, c] = await visit(defer);
  for (const where of ['#/', '#/workloads', '#/nodes', '#/events', '#/workloads/first', '#/nodes/node-1']) {
    await page.goto(`${c.url}/${where}`);
    await page.waitForTimeout(250);
    const nameless = await page.evaluate(() => [...document.querySelectorAll('a[href], button, input, select, [role=grid], [role=listbox], [role=log]')]
      .filter((e) => e.checkVisibility() && !(e.getAttribute('aria-label') || e.textContent.trim() || e.labels?.length)).map((e) => e.outerHTML.slice(0, 120)));
    equal(nameless, [], `${where}: without a name`);
    const twice = await page.evaluate(() => [...document.querySelectorAll('[id]')].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i));
    equal(twice, [], `${where}: ids that are there twice`);
    equal(await page.locator('h1').count(), 1, `${where}: headings`);
  }
  await page.keyboard.press('Tab');
  await page.keyboard.press('Tab');
  check(await page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle !== 'none'), 'focus cannot be seen');
});

// R: X4
test('at 390 px nothing sticks out', async ({ defer }) => {
  const [page, c] = await visit(defer, '', { width: 390, height: 800 });
  for (const where of ['#/', '#/workloads', '#/workloads/first', '#/workloads/impossible', '#/nodes', '#/nodes/node-1', '#/events']) {
    await page.goto(`${c.url}/${where}`);
    await page.waitForTimeout(300);
    const over = await page.evaluate(() => Math.max(document.documentElement.scrollWidth, document.querySelector('main').scrollWidth) - innerWidth);
    check(over <= 0, `${where} is ${over} px too wide`);
    check(await page.locator('nav a', { hasText: 'Events' }).isVisible(), `${where}: no way to the events`);
  }
  clean(page);
});

// R: A9
test('markup in names, labels, messages and logs is shown as text', async ({ defer }) => {
  const c = await cluster();
  const evil = '<img src=x onerror="globalThis.__xss=1">';
  await c.call('PUT', '/v1/workloads/markup', { type: 'process', spec: { command: ['sh', '-c', `echo '${evil}<b>bold</b>'; sleep 1000`], env: { HTML: evil } }, resources: { cpu: 0.01, memory_mb: 1 } });
  await c.call('PUT', '/v1/workloads/markup-path', { type: 'process', spec: { command: [`/nowhere/${evil}`] }, resources: { cpu: 0.01, memory_mb: 1 } });
  // The server refuses such names; a page must not depend on that.
  const forge = async (page) => {
    await page.context().route(/\/v1\/workloads\?limit/, async (route) => {
      const answer = await route.fetch(), body = await answer.json();
      const w = structuredClone((body.items || []).find((x) => x.id === 'markup'));
      if (w) body.items.push({ ...w, id: evil, labels: { [evil]: evil }, assigned_node: '', status: { phase: 'Pending', reason: evil, failure_reason: evil } });
      await route.fulfill({ response: answer, json: body });
    });
    await page.context().route(/\/v1\/nodes\?limit/, async (route) => {
      const answer = await route.fetch(), body = await answer.json();
      body.items.push({ ...body.items[0], id: evil, labels: { zone: evil, [evil]: evil } });
      await route.fulfill({ response: answer, json: body });
    });
  };
  const page = await openPage(`${c.url}/`, { before: forge });
  defer(() => page.context().close());
  await live(page);
  await page.locator('.chip', { hasText: evil }).first().waitFor();
  for (const where of ['#/', '#/workloads', '#/nodes', '#/events', '#/workloads/markup', '#/workloads/markup-path', `#/workloads/${encodeURIComponent(evil)}`, `#/nodes/${encodeURIComponent(evil)}`]) {
    await page.goto(`${c.url}/${where}`);
    await page.waitForTimeout(350);
    equal(await page.locator('main img, main script, .lines b').count(), 0, `${where}: markup became an element`);
  }
  await page.goto(`${c.url}/#/workloads/markup`);
  await page.locator('.lines', { hasText: `${evil}<b>bold</b>` }).waitFor();
  await page.fill('#search', evil);
  await page.waitForTimeout(300);
  equal(await page.locator('#found img').count(), 0, 'in the search');
  equal(await page.evaluate(() => globalThis.__xss), undefined, 'script ran');
  await c.cli('delete', 'markup', 'markup-path');
});

atEnd(() => shared?.close());

// R: C32 X4
test('a server that wants tokens is asked with one: the page asks for it, says why one is refused, and shows the cluster then', async ({ defer }) => {
  const c = await Cluster.parts([], '--auth', 'token');
  defer(() => c.close());
  const admin = (await readFile(path.join(c.data, 'admin.token'), 'utf8')).trim(), as = { Authorization: `Bearer ${admin}`, 'Content-Type': 'application/json' };
  const api = async (method, where, body) => {
    const a = await fetch(`${c.url}/v1/${where}`, { method, headers: as, body: body && JSON.stringify(body) });
    check(a.ok, `${method} ${where}: ${a.status}`);
    return a.json();
  };
  const viewer = (await api('POST', 'tokens', { name: 'eve', role: 'viewer' })).secret, node = (await api('POST', 'tokens', { name: 'machine', role: 'node' })).secret;
  await api('PUT', 'workloads/waits', { type: 'process', spec: { command: ['x'] } });
  const page = await openPage(`${c.url}/`, { width: 390, height: 800 });
  defer(() => page.context().close());
  const input = page.locator('dialog input[name=token]'), refused = page.locator('dialog .refused');
  await input.waitFor();
  equal(await refused.isVisible(), false, 'nobody was refused yet');
  const [box, around] = [await input.boundingBox(), await page.locator('dialog').boundingBox()];
  check(box.x > around.x && box.x + box.width < around.x + around.width && box.width > around.width * 0.8, 'the field fills the dialog, and stays in it');
  await input.press('Enter'); // nothing is no token
  const give = async (token) => {
    await input.fill(token);
    await input.press('Enter');
  };
  await give('berth_wrong');
  await refused.filter({ hasText: 'The token is not known here.' }).waitFor();
  equal(await input.inputValue(), '', 'asked again');
  await give(node);
  await page.locator('dialog h2', { hasText: 'may not look' }).waitFor();
  await refused.filter({ hasText: 'needs the role viewer' }).waitFor();
  await give(viewer);
  await live(page);
  const kept = (await page.context().cookies()).filter((k) => decodeURIComponent(k.value).includes(viewer));
  equal(kept.map((k) => [k.httpOnly, k.sameSite, k.expires]), [[true, 'Strict', -1]], 'one cookie has the token, for this session and no script');
  const seen = await page.evaluate(() => document.cookie + JSON.stringify({ ...localStorage, ...sessionStorage }));
  check(!seen.includes(viewer) && !seen.includes('berth_'), `a script of the page sees ${seen}`);

  // What this token may not do is said in the server's words; another one is asked for on demand.
  await page.goto(`${c.url}/#/workloads/waits`);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.toast.bad', { hasText: 'needs the role operator' }).waitFor();
  await page.click('#help');
  await page.getByRole('button', { name: 'Use another token' }).click();
  await give(admin);
  await live(page);
  await page.getByRole('button', { name: 'Stop' }).click();
  await page.locator('.title .badge[data-phase=Stopped]').waitFor();
  const stopped = (await api('GET', 'events?workload=waits&type=WorkloadDesired')).items[0];
  equal(stopped?.actor, 'admin', 'who did it');

  // Every page is whole once the token is there, whichever was open before.
  for (const [where, shown] of [['#/workloads/waits', '.sentence, .fits'], ['#/workloads/waits', '.row:visible >> text=WorkloadApplied'], ['#/events', '.row:visible >> text=waits'], ['#/workloads', '.row[data-key=waits]']]) {
    await page.goto(`${c.url}/${where}`);
    await page.click('#help');
    await page.getByRole('button', { name: 'Use another token' }).click();
    await give(viewer);
    await live(page);
    await page.locator(shown).first().waitFor({ timeout: 5000 }).catch((e) => check(false, `${where}: ${e.message}`));
  }

  // Revoked while the page is open: it says so, and what is shown stays.
  await api('DELETE', 'tokens/eve');
  await refused.filter({ hasText: 'The token eve was revoked.' }).waitFor();
  await page.waitForTimeout(2000); // when a lost connection would be told
  equal(await page.locator('.banner').count(), 0, 'the server is there: no banner says otherwise');
  await give(admin);
  await live(page);
  clean(page, / 401 |403.*(waits\/stop|v1\/session)/);
});
