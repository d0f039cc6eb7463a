// How figures, times and names are shown.

export const PHASES = ['Running', 'Scheduled', 'Updating', 'Pending', 'RetryPending', 'Failed', 'Unknown', 'Stopped', 'Completed', 'Deleting'];
export const PHASE_WORDS = { RetryPending: 'Retrying' };
export const phaseWord = (phase) => PHASE_WORDS[phase] || phase || '';

// cpu-insufficient -> cpu insufficient
export const reasonWord = (reason) => (reason || '').replaceAll('-', ' ').replaceAll('_', ' ');

// Orders node-2 before node-10; plain strings compare much faster than a collator, which counts with thousands.
const keys = new Map();
export function natural(id) {
  let key = keys.get(id);
  if (key === undefined) {
    if (keys.size > 200000) keys.clear();
    keys.set(id, (key = id.replace(/\d+/g, (d) => d.padStart(12, '0'))));
  }
  return key;
}
export const byNature = (a, b) => {
  const x = natural(a), y = natural(b);
  return x < y ? -1 : x > y ? 1 : 0;
};

export const count = (n) => (n || 0).toLocaleString('en-US');
export const plural = (n, one, many = one + 's') => `${count(n)} ${n === 1 ? one : many}`;

export function cores(n) {
  n = n || 0;
  return n >= 100 ? Math.round(n).toLocaleString('en-US') : String(Math.round(n * 1000) / 1000);
}
export function mebibytes(n) {
  n = n || 0;
  if (n < 1024) return `${n} MiB`;
  if (n < 1024 * 1024) return `${trim(n / 1024)} GiB`;
  return `${trim(n / 1024 / 1024)} TiB`;
}
export const gibibytes = (n) => mebibytes((n || 0) * 1024);
const trim = (n) => (n >= 100 ? Math.round(n) : Math.round(n * 10) / 10).toString();
export const percent = (part, whole) => (whole > 0 ? `${Math.round((part / whole) * 100)} %` : '–');

export const ms = (text) => (text ? Date.parse(text) : 0);

const two = (n) => String(n).padStart(2, '0');
export function clockTime(t) {
  const d = new Date(t);
  return `${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}.${String(d.getMilliseconds()).padStart(3, '0')}`;
}
export function fullTime(t) {
  if (!t) return '';
  const d = new Date(t);
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())} ${two(d.getHours())}:${two(d.getMinutes())}:${two(d.getSeconds())}`;
}
export function duration(millis) {
  const s = Math.max(0, Math.round(millis / 1000));
  if (s < 60) return `${s}s`;
  if (s < 3600) return s < 600 && s % 60 ? `${Math.floor(s / 60)}m ${s % 60}s` : `${Math.floor(s / 60)}m`;
  if (s < 86400) return `${Math.floor(s / 3600)}h ${Math.floor((s % 3600) / 60)}m`;
  return `${Math.floor(s / 86400)}d ${Math.floor((s % 86400) / 3600)}h`;
}
export const ago = (t) => (t ? `${duration(Date.now() - t)} ago` : '');

export const labelText = (labels) => Object.entries(labels || {}).map(([k, v]) => (v ? `${k}=${v}` : k)).join('  ');
