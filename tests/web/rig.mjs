// What the tests of the dashboard share: berth in a temporary place, a browser, and a small TAP printer.
import { spawn, execFile } from 'node:child_process';
import { mkdtemp, rm, readFile } from 'node:fs/promises';
import { rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import http from 'node:http';

const { chromium } = await import(process.env.BERTH_PLAYWRIGHT);
export const BERTH = process.env.BERTH_BINARY;

// ---- tests ----

const tests = [];
export const test = (name, fn) => tests.push({ name, fn });
const endings = [];
export const atEnd = (fn) => endings.push(fn);
export function check(condition, message) {
  if (!condition) throw new Error(message);
}
export function equal(a, b, message) {
  const x = JSON.stringify(a), y = JSON.stringify(b);
  if (x !== y) throw new Error(`${message}: ${x} is not ${y}`);
}
export const note = (text) => console.log(`# ${text}`);

export async function runAll(only) {
  let passed = 0, failed = 0, point = 0;
  for (const t of tests) {
    if (only && !only.test(t.name)) continue;
    point++;
    const began = Date.now(), closing = [];
    try {
      await t.fn({ defer: (fn) => closing.push(fn) });
      passed++;
      console.log(`ok ${point} - ${t.name} # ${Date.now() - began} ms`);
    } catch (e) {
      failed++;
      console.log(`not ok ${point} - ${t.name}`);
      for (const line of String(e.stack || e).split('\n').slice(0, 14)) console.log(`#   ${line}`);
    }
    for (const fn of closing.reverse()) await fn().catch((e) => note(`while closing: ${e.message}`));
  }
  for (const fn of endings) await fn();
  console.log(`1..${point}`);
  return { passed, failed };
}

// Waiting for it makes no sense any more.
export class Ended extends Error {}

export async function until(what, fn, timeout = 15000) {
  const end = Date.now() + timeout;
  let last;
  for (;;) {
    try {
      last = await fn();
      if (last) return last;
    } catch (e) {
      if (e instanceof Ended) throw e;
      last = e;
    }
    if (Date.now() > end) throw new Error(`waited ${timeout} ms for ${what}: ${last instanceof Error ? last.message : JSON.stringify(last)}`);
    await new Promise((done) => setTimeout(done, 25));
  }
}

// ---- berth ----

const started = new Set();
function start(args, options = {}) {
  const child = spawn(BERTH, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, BERTH_AUTH: 'none', BERTH_ALLOW: 'all', BERTH_UNIT_USERS: 'none' }, ...options });
  started.add(child);
  child.text = '';
  child.stdout.on('data', (d) => (child.text = (child.text + d).slice(-20000)));
  child.stderr.on('data', (d) => (child.text = (child.text + d).slice(-20000)));
  child.gone = new Promise((done) => child.on('exit', () => (started.delete(child), done())));
  return child;
}
const places = [];
process.on('exit', () => {
  for (const child of started) child.kill('SIGKILL');
  for (const place of places) rmSync(place, { recursive: true, force: true });
});

async function end(child, signal = 'SIGTERM') {
  if (!started.has(child)) return;
  child.kill(signal);
  const timer = setTimeout(() => child.kill('SIGKILL'), 30000);
  await child.gone;
  clearTimeout(timer);
}

export class Cluster {
  static async dir() {
    const place = await mkdtemp(path.join(tmpdir(), 'berth-web-'));
    places.push(place);
    return place;
  }
  // berth dev: a server and some nodes on one machine.
  static async dev(nodes = 3) {
    const c = new Cluster();
    c.data = await Cluster.dir();
    c.main = start(['dev', '--data', c.data, '--port', '0', '--nodes', String(nodes)]);
    await until('berth dev', () => /is up/.test(c.main.text) || (started.has(c.main) ? false : Promise.reject(new Ended(c.main.text))), 60000);
    c.http = c.main.text.match(/http:\/\/([\d.:]+)/)[1];
    c.grpc = c.main.text.match(/gRPC\s+([\d.:]+)/)[1];
    return c;
  }
  // A server and agents that can be killed one by one. agents: [[argument...]]
  static async parts(agents, ...options) {
    const c = new Cluster();
    c.data = await Cluster.dir();
    c.options = options;
    c.http = c.grpc = '127.0.0.1:0';
    await c.startServer();
    c.agents = agents.map((args, i) => start(['agent', '--server', c.grpc, '--data', path.join(c.data, `agent-${i}`), ...args]));
    return c;
  }
  async startServer() {
    await rm(path.join(this.data, 'server.address'), { force: true });
    this.main = start(['server', '--data', this.data, '--http', this.http, '--grpc', this.grpc, ...this.options]);
    const text = await until('the server', async () => {
      if (!started.has(this.main)) throw new Ended(this.main.text);
      const t = await readFile(path.join(this.data, 'server.address'), 'utf8').catch(() => '');
      return /http=/.test(t) && t;
    }, 30000);
    this.http = text.match(/http=(.*)/)[1];
    this.grpc = (text.match(/grpc=(.*)/) || text.match(/^([\d.]+:\d+)$/m))[1];
    await until('an answer', async () => (await this.get('/health')).status, 30000);
  }
  async killServer() {
    this.main.kill('SIGKILL');
    await this.main.gone;
  }
  get url() {
    return `http://${this.http}`;
  }
  cli(...args) {
    return new Promise((done, fail) =>
      execFile(BERTH, [...args.slice(0, 1), '--server', this.grpc, ...args.slice(1)], (e, out, err) => (e ? fail(new Error(`berth ${args.join(' ')}: ${err || e.message}`)) : done(out))));
  }
  async get(where) {
    const a = await fetch(this.url + where);
    return a.json();
  }
  async call(method, where, body) {
    const a = await fetch(this.url + where, { method, body: body && JSON.stringify(body), headers: body ? { 'Content-Type': 'application/json' } : {} });
    const value = await a.json().catch(() => null);
    if (!a.ok) throw new Error(`${method} ${where}: ${a.status} ${JSON.stringify(value)}`);
    return value;
  }
  async list(kind) {
    const all = [];
    let cursor = '';
    do {
      const page = await this.get(`/v1/${kind}?limit=5000${cursor && `&cursor=${cursor}`}`);
      all.push(...(page.items || []));
      cursor = page.next_cursor || '';
    } while (cursor);
    return all;
  }
  // Many workloads over kept connections.
  async load(count, make, connections = 12) {
    const agent = new http.Agent({ keepAlive: true, maxSockets: connections });
    const [host, port] = this.http.split(':');
    const put = (w) => new Promise((done, fail) => {
      const body = JSON.stringify(w);
      const r = http.request({ host, port, agent, method: 'PUT', path: `/v1/workloads/${w.id}`, headers: { 'Content-Type': 'application/json', 'Content-Length': Buffer.byteLength(body) } }, (a) => {
        a.resume();
        a.on('end', () => done(a.statusCode));
      });
      r.on('error', fail);
      r.end(body);
    });
    let next = 0;
    await Promise.all(Array.from({ length: connections }, async () => {
      while (next < count) {
        const w = make(next++);
        for (let status = 429; status === 429;) {
          status = await put(w);
          if (status === 429) await new Promise((d) => setTimeout(d, 100));
          else check(status < 300, `PUT ${w.id}: ${status}`);
        }
      }
    }));
    agent.destroy();
  }
  async close() {
    for (const a of this.agents || []) await end(a);
    await end(this.main, this.agents ? 'SIGTERM' : 'SIGINT');
    await rm(this.data, { recursive: true, force: true });
  }
}

// ---- the browser ----

let browser = null;
export async function openBrowser() {
  browser ??= await chromium.launch({
    executablePath: '/usr/bin/chromium', headless: true,
    args: ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'],
  });
  return browser;
}
export async function closeBrowser() {
  await browser?.close();
}

// A page in a profile of its own; page.problems collects what should never be there.
export async function openPage(url, { width = 1280, height = 800, colorScheme = 'light', init, scale = 1, before } = {}) {
  const context = await (await openBrowser()).newContext({ viewport: { width, height }, colorScheme, deviceScaleFactor: scale });
  const page = await context.newPage();
  page.problems = [];
  page.on('console', (m) => m.type() === 'error' && page.problems.push(`${m.text()} ${m.location().url}`));
  page.on('pageerror', (e) => page.problems.push(e.stack));
  page.on('request', (r) => {
    if (!r.url().startsWith(new URL(url).origin)) page.problems.push(`asked another host: ${r.url()}`);
  });
  if (init) await page.addInitScript(init);
  if (before) await before(page);
  await page.goto(url);
  return page;
}
export const live = (page) => page.waitForFunction(() => globalThis.berth?.state.loaded && globalThis.berth.state.link.state === 'live', null, { timeout: 60000 });
// late: what was asked for may have been deleted just before.
export const clean = (page, late = null) => equal(page.problems.filter((p) => !late?.test(p)), [], 'errors in the browser');
