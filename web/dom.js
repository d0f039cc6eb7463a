// Elements without markup: data only ever becomes text.

export const ROOT = new URL('../../', import.meta.url).href;

// h('a.name', { href: '#/', onclick: f }, 'text', child, null)
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split('.');
  const el = document.createElement(name || 'div');
  if (classes.length) el.className = classes.join(' ');
  for (const [key, value] of Object.entries(props || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) el.addEventListener(key.slice(2), value);
    else if (key in el && key !== 'list' && typeof value !== 'string') el[key] = value;
    else el.setAttribute(key, value === true ? '' : value);
  }
  add(el, children);
  return el;
}

function add(el, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) add(el, child);
    else el.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

export function fill(el, ...children) {
  el.replaceChildren();
  add(el, children);
  return el;
}

// Only what differs is touched: a selection or a pointer over the text stays.
export function setText(el, text) {
  if (el.textContent !== text) el.textContent = text;
}
export function setTitle(el, text) {
  if (el.title !== text) el.title = text;
}
export function setHref(el, href) {
  if (el.getAttribute('href') !== href) el.setAttribute('href', href);
}

export const workloadHref = (id) => `#/workloads/${encodeURIComponent(id)}`;
export const nodeHref = (id) => `#/nodes/${encodeURIComponent(id)}`;

export function rows(...pairs) {
  return h('dl.facts', null, pairs.filter((p) => p && p[1] !== '' && p[1] !== null && p[1] !== undefined).map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));
}

export function labels(map) {
  return h('span.labels', null, Object.entries(map || {}).map(([k, v]) => h('span.label', null, h('b', null, k), v ? `=${v}` : '')));
}

// A call that changes something or asks for one thing; errors are the server's own words.
export async function call(method, path, signal) {
  let answer;
  try {
    answer = await fetch(ROOT + path, { method, headers: { 'X-Berth-Actor': 'dashboard' }, cache: 'no-store', signal });
  } catch (e) {
    if (e.name === 'AbortError') throw e;
    throw new Error('the server cannot be reached');
  }
  const body = await answer.json().catch(() => null);
  if (answer.ok) return body;
  const e = new Error(body ? [body.message, body.detail, body.hint].filter(Boolean).join(' · ') : `the server answered ${answer.status}`);
  e.status = answer.status;
  throw e;
}

export function toast(text, bad) {
  const el = h(`div.toast${bad ? '.bad' : ''}`, null, text);
  const all = document.getElementById('toasts');
  all.append(el);
  while (all.children.length > 4) all.firstChild.remove();
  setTimeout(() => el.remove(), bad ? 9000 : 3500);
}

export function ask(title, text, verb, bad) {
  return new Promise((done) => {
    const yes = h(`button.button${bad ? '.danger' : '.primary'}`, { type: 'button' }, verb);
    const no = h('button.button', { type: 'button' }, 'Cancel');
    const dialog = h('dialog.ask', { 'aria-label': title }, h('h2', null, title), h('p', null, text), h('div.buttons', null, no, yes));
    const close = (answer) => {
      dialog.remove();
      done(answer);
    };
    yes.onclick = () => close(true);
    no.onclick = () => close(false);
    dialog.addEventListener('close', () => close(false));
    document.body.append(dialog);
    dialog.showModal();
    no.focus();
  });
}

export const badge = (phase, word) => h('span.badge', { 'data-phase': phase }, h('i', { 'aria-hidden': 'true' }), word || phase);
export const empty = (title, ...text) => h('div.empty', null, h('strong', null, title), h('p', null, ...text));
