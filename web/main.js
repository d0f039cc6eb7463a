// The frame around the pages: routes (the part after #), keys, search, the link's state, banners, colours.
import { h, fill, setText, workloadHref, nodeHref, ROOT } from './dom.js';
import { state, subscribe, matcher, reconnectNow } from './state.js';
import { phaseWord, duration, count, ms } from './format.js';
import { overview } from './overview.js';
import { workloads } from './workloads.js';
import { workload } from './workload.js';
import { nodes } from './nodes.js';
import { node } from './node.js';
import { events } from './events.js';
import { nodePhase, nodeWord } from './nodes.js';

const $ = (id) => document.getElementById(id);
const main = $('main'), search = $('search'), found = $('found');
let page = null, route = '';

// ---- pages ----

// At once, and not when the browser tells of it: the next key is for the new page. What it tells of then is no news.
const gone = [];
function go(href) {
  const before = location.hash;
  location.hash = href;
  if (location.hash === before) return;
  gone.push(location.href);
  open();
}

function open() {
  const [path, queryText] = (location.hash.slice(1) || '/').split('?');
  const parts = path.split('/').filter(Boolean).map((p) => {
    try {
      return decodeURIComponent(p);
    } catch {
      return p;
    }
  });
  const params = new URLSearchParams(queryText || ''), name = parts[0] || 'overview', id = parts.slice(1).join('/');
  const given = { go, id, params, query: () => search.value };
  const make = { overview, workloads: id ? workload : workloads, nodes: id ? node : nodes, events }[name] || overview;
  page?.stop();
  const changed = route !== path;
  route = path;
  page = make(given);
  fill(main, page.el);
  page.start();
  document.title = `${page.title} · berth`;
  for (const a of $('nav').children) {
    if (a.dataset.page === name) a.setAttribute('aria-current', 'page');
    else a.removeAttribute('aria-current');
  }
  if (changed) {
    scrollTo(0, 0);
    if (document.activeElement !== search) main.focus({ preventScroll: true });
  }
}
addEventListener('hashchange', (e) => {
  const i = gone.indexOf(e.newURL);
  if (i < 0) open();
  else gone.splice(0, i + 1);
});
$('skip').onclick = (e) => {
  e.preventDefault();
  main.focus();
};

// ---- search ----

let hits = [], pick = -1, searching = null;
function lookUp() {
  searching = null;
  const text = search.value.trim(), match = matcher(text);
  page?.search?.(search.value);
  hits = [];
  pick = -1;
  if (match) {
    for (const n of state.nodes.values()) {
      if (hits.length >= 5) break;
      if (match.node(n)) hits.push({ name: n.id, href: nodeHref(n.id), kind: 'node', phase: nodePhase(n), word: nodeWord(n) });
    }
    const most = hits.length + 8;
    for (const r of state.sorted) {
      if (hits.length >= most) break;
      if (match.row(r)) hits.push({ name: r.id, href: workloadHref(r.id), kind: 'workload', phase: r.shown, word: phaseWord(r.shown) });
    }
  }
  const open_ = !!match && document.activeElement === search;
  found.hidden = !open_;
  search.setAttribute('aria-expanded', String(open_));
  if (!open_) return;
  fill(found, hits.length ? hits.map((x, i) => h('a.hit', { href: x.href, role: 'option', id: `hit-${i}`, tabindex: '-1', 'aria-selected': 'false' },
    h('span.badge', { 'data-phase': x.phase }, h('i')), h('b', null, x.name), h('span.muted', null, `${x.kind}, ${x.word}`))) : h('div.hit.muted', null, 'Nothing has this name, label or status.'));
}
function choose(i) {
  pick = Math.max(0, Math.min(hits.length - 1, i));
  [...found.children].forEach((el, k) => el.setAttribute('aria-selected', String(k === pick)));
  search.setAttribute('aria-activedescendant', hits.length ? `hit-${pick}` : '');
}
const closeFound = () => {
  found.hidden = true;
  search.setAttribute('aria-expanded', 'false');
};
search.oninput = () => (searching ??= setTimeout(lookUp, 60));
search.onfocus = () => search.value && lookUp();
search.onblur = () => setTimeout(closeFound, 150);
search.onkeydown = (e) => {
  if (e.key === 'ArrowDown' || e.key === 'ArrowUp') {
    e.preventDefault();
    choose(pick + (e.key === 'ArrowDown' ? 1 : -1));
  } else if (e.key === 'Enter') {
    if (searching) lookUp();
    const hit = hits[Math.max(0, pick)];
    if (!hit) return;
    clearSearch();
    search.blur();
    go(hit.href);
  } else if (e.key === 'Escape') {
    e.stopPropagation();
    clearSearch();
    search.blur();
    page?.focus?.();
  }
};
function clearSearch() {
  search.value = '';
  clearTimeout(searching);
  lookUp();
}
found.onclick = () => clearSearch();

// ---- keys ----

const KEYS = [['/', 'search'], ['g o', 'overview'], ['g w', 'workloads'], ['g n', 'nodes'], ['g e', 'events'], ['↑ ↓ ← →', 'move in lists and among nodes'], ['Enter', 'open'], ['+  −  0', 'more, less, automatic detail'], ['t', 'colours'], ['Esc', 'close, clear, go back'], ['?', 'this help']];
let prefix = 0;
addEventListener('keydown', (e) => {
  if (e.ctrlKey || e.metaKey || e.altKey || document.querySelector('dialog[open]')) return;
  const typing = e.target.closest?.('input, textarea, select');
  if (e.key === 'Escape') {
    if (typing) return typing.blur();
    const up = route.split('/').filter(Boolean);
    if (up.length > 1) go(`#/${up[0]}`);
    return;
  }
  if (typing) return;
  if (prefix && Date.now() - prefix < 1500) {
    prefix = 0;
    const to = { o: '#/', w: '#/workloads', n: '#/nodes', e: '#/events' }[e.key];
    if (to) {
      e.preventDefault();
      return go(to);
    }
  }
  if (e.key === 'g') prefix = Date.now();
  else if (e.key === '/') {
    e.preventDefault();
    search.focus();
    search.select();
  } else if (e.key === '?') help();
  else if (e.key === 't') nextTheme();
  else if (['ArrowDown', 'ArrowUp', 'ArrowLeft', 'ArrowRight', '+', '=', '-', '0'].includes(e.key) && !e.target.closest?.('[role=grid], [role=listbox], [role=log], pre')) {
    page?.focus?.();
    page?.key?.(e);
    e.preventDefault();
  }
});

function help() {
  const close = h('button.button', { type: 'button' }, 'Close'), c = state.cluster || {};
  const dialog = h('dialog.ask', { 'aria-label': 'Help' }, h('h2', null, 'Keys'),
    h('dl.keys', null, KEYS.map(([k, what]) => [h('dt', null, k.split(' ').filter(Boolean).map((x) => h('kbd', null, x))), h('dd', null, what)])),
    h('p.muted', null, 'Search takes part of a name, label=value, or a status; several words must all match. In the overview the rest fades.'),
    h('p.muted', null, `berth ${c.version || ''}, cluster ${c.cluster_id || ''}. `, h('a', { href: 'openapi.json' }, 'API'), ' · ', h('a', { href: 'metrics' }, 'metrics')), h('div.buttons', null, hasToken() && h('button.button', { type: 'button', onclick: otherToken }, 'Use another token'), close));
  close.onclick = () => dialog.close();
  dialog.onclose = () => dialog.remove();
  document.body.append(dialog);
  dialog.showModal();
}
$('help').onclick = help;

// ---- colours ----

const THEMES = ['system', 'light', 'dark'], dark = matchMedia('(prefers-color-scheme: dark)');
let theme = localStorage.getItem('berth.theme') || 'system';
function setTheme() {
  const now = theme === 'system' ? (dark.matches ? 'dark' : 'light') : theme;
  document.documentElement.dataset.theme = now;
  $('theme').textContent = { system: '◐', light: '○', dark: '●' }[theme];
  $('theme').setAttribute('aria-label', `Colours: ${theme === 'system' ? 'as the system' : theme}`);
  $('theme').title = $('theme').getAttribute('aria-label');
  document.dispatchEvent(new Event('berth-theme'));
}
function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % 3];
  localStorage.setItem('berth.theme', theme);
  setTheme();
}
$('theme').onclick = nextTheme;
dark.addEventListener('change', setTheme);
setTheme();

// ---- the link to the server, and what must be said ----

let lost = 0;
function drawLink() {
  const { state: s, again } = state.link, el = $('link');
  el.dataset.state = s;
  if (s === 'live') lost = 0;
  else lost ||= Date.now();
  const wait = again ? Math.ceil((again - Date.now()) / 1000) : 0;
  setText(el.lastChild, s === 'live' ? 'live' : s === 'lost' ? `reconnecting${wait > 1 ? ` in ${wait}s` : ''}` : s === 'stranger' ? 'no token' : 'connecting');
}
// What the brake has counted: C11.
const silent = (b) => (b ? ` (${b.silent} of ${b.nodes} nodes, beyond ${b.limit_percent} % is held${b.zone ? `; of zone ${b.zone} ${b.zone_silent} of ${b.zone_nodes}` : ''})` : '');
function drawBanners() {
  const x = state.health, said = [];
  if (!['live', 'stranger'].includes(state.link.state) && lost && Date.now() - lost > 1500 && state.loaded)
    said.push(h('div.banner.bad', null, h('strong', null, 'No connection to the server. '), `What you see is ${duration(Date.now() - lost)} old; it is read again as soon as the server answers. `, h('button.button', { type: 'button', onclick: reconnectNow }, 'Try now')));
  else if (x?.status === 'degraded')
    said.push(h('div.banner.warn', null, h('strong', null, 'The server is degraded. '), `${x.reason || 'its store is away'}: reads go on, changes wait${x.mode_changed_at ? `, for ${duration(Date.now() - ms(x.mode_changed_at))} now` : ''}.`));
  if (x?.eviction === 'held')
    said.push(h('div.banner.warn', null, h('strong', null, 'Eviction is held. '), `Too many nodes fell silent at once${silent(x.brake)}, so the server may be the one that is cut off. Nothing is moved until some return, or until somebody says so (berth evict --now).`));
  else if (x?.eviction === 'paced')
    said.push(h('div.banner.warn', null, h('strong', null, 'Eviction is paced. '), `A part of a zone is silent${silent(x.brake)}; its units move at most ${x.brake?.units_per_second} a second (berth evict --now moves them at once).`));
  const text = said.map((b) => b.textContent).join('');
  if ($('banners').textContent !== text) fill($('banners'), said);
}
setInterval(() => {
  drawLink();
  drawBanners();
}, 500);

subscribe((change) => {
  if (change.link) drawLink();
  if (change.health || change.link) drawBanners();
  page?.update(change);
});

// ---- who we are ----

// The server keeps the token in a cookie of this browser session that no script can read; every call of the page and its worker carries it, and other sites' pages cannot make the
// browser send it (SameSite).
const TOLD = 'berth.token', hasToken = () => Boolean(localStorage.getItem(TOLD)); // that there is one: it cannot be seen from here
let asking = false;
function askToken({ status, why }) {
  if (asking) return;
  asking = true;
  const heading = h('h2'), refused = h('p.refused', { role: 'alert', hidden: true });
  const say = (code, text) => {
    setText(heading, code === 403 ? 'This token may not look at the cluster' : 'This cluster wants to know who you are');
    refused.textContent = text && `${text[0].toUpperCase()}${text.slice(1)}.`;
    refused.hidden = !text;
  };
  say(status, why && !/needs a token/.test(why) ? why : ''); // a reason of another kind: one was sent, and is not good
  const input = h('input', { type: 'password', name: 'token', autocomplete: 'off', required: true, 'aria-label': 'Token', placeholder: 'berth_…' });
  const form = h('form', { method: 'dialog' }, heading, refused,
    h('p', null, 'Paste a token. The first one is in the server’s data directory (admin.token); others come from ', h('code', null, 'berth token create NAME --role viewer'), '.'),
    input, h('div.buttons', null, h('button.button.primary', { type: 'submit' }, 'Go on')));
  const dialog = h('dialog.ask', { 'aria-label': 'Token' }, form);
  form.onsubmit = async (e) => {
    e.preventDefault();
    try {
      const answer = await fetch(`${ROOT}v1/session`, { method: 'POST', headers: { Authorization: `Bearer ${input.value.trim()}` } });
      if (answer.ok) {
        localStorage.setItem(TOLD, '1');
        location.reload(); // what the page has asked for so far was refused
        return;
      }
      say(answer.status, (await answer.json().catch(() => null))?.message || `the server says ${answer.status}`);
      input.value = ''; // nobody sees what is wrong with it: the next one is pasted whole
      input.focus();
    } catch (error) {
      say(0, `the server does not answer: ${error.message}`);
    }
  };
  dialog.addEventListener('cancel', (e) => e.preventDefault());
  document.body.append(dialog);
  dialog.showModal();
  input.focus();
}
// Everything on the page may have been seen with the old one's rights: it begins anew, and asks.
async function otherToken() {
  localStorage.removeItem(TOLD);
  await fetch(`${ROOT}v1/session`, { method: 'DELETE' }).catch(() => {});
  location.reload();
}
subscribe((change) => {
  if (change.link && state.link.state === 'stranger') askToken(state.link);
});

// For tests, and for the curious.
globalThis.berth = { state, count };
open();
