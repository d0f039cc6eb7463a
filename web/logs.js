// What a workload writes, as it writes it: follow, pause, search.
import { h, fill, setText, ROOT } from './dom.js';
import { count, plural } from './format.js';

const KEPT = 5000, TAIL = 500;

export class Logs {
  constructor(id) {
    this.id = id;
    this.lines = [];
    this.rest = '';
    this.fresh = [];
    this.paused = false;
    this.find = '';
    this.pre = h('div.lines', { role: 'log', 'aria-label': 'Output', tabindex: '0' });
    this.note = h('span.muted', { role: 'status' });
    this.button = h('button.button', { type: 'button', 'aria-pressed': 'false', onclick: () => this.pause(!this.paused) }, 'Pause');
    this.input = h('input', { type: 'search', placeholder: 'find in output', 'aria-label': 'Find in output', spellcheck: 'false' });
    this.input.oninput = () => {
      this.find = this.input.value.toLowerCase();
      this.redraw();
    };
    this.el = h('section.card.logs', { 'aria-label': 'Logs' }, h('div.cardhead', null, h('h2', null, 'Logs'), this.note, this.input, this.button), this.pre);
  }
  // From the beginning of what is kept; also after a restart, whose output continues the same log.
  async start() {
    this.stop();
    const control = (this.control = new AbortController());
    this.lines = [];
    this.fresh = [];
    this.rest = '';
    this.state = 'connecting';
    this.redraw();
    try {
      const answer = await fetch(`${ROOT}v1/workloads/${encodeURIComponent(this.id)}/logs?follow=true&tail=${TAIL}`, { cache: 'no-store', signal: control.signal });
      if (!answer.ok) {
        const e = await answer.json().catch(() => ({}));
        throw new Error([e.message, e.hint].filter(Boolean).join(' · ') || `the server answered ${answer.status}`);
      }
      this.state = 'live';
      this.status();
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        this.add(value);
      }
      if (this.rest) this.add('\n');
      this.state = 'ended';
    } catch (e) {
      if (control.signal.aborted) return;
      this.state = /fetch|network/i.test(e.message) ? 'interrupted' : e.message;
    }
    this.ended = true;
    this.status();
  }
  stop() {
    this.control?.abort();
    this.control = null;
    this.ended = false;
    cancelAnimationFrame(this.frame);
    this.frame = undefined;
  }
  add(text) {
    const parts = (this.rest + text).split('\n');
    this.rest = parts.pop();
    if (this.rest.length > 65536) {
      parts.push(this.rest);
      this.rest = '';
    }
    for (const line of parts) this.fresh.push(line.endsWith('\r') ? line.slice(0, -1) : line);
    if (this.fresh.length > KEPT * 2) this.fresh.splice(0, this.fresh.length - KEPT);
    if (this.paused) this.status();
    else this.frame ??= requestAnimationFrame(() => this.show());
  }
  row(line) {
    const el = h('div');
    if (!this.find) {
      el.textContent = line || ' ';
      return el;
    }
    const low = line.toLowerCase();
    let at = 0, hit;
    if (low.length !== line.length) el.append(line); // letters that change their length: no marks
    else while ((hit = low.indexOf(this.find, at)) >= 0) {
      el.append(line.slice(at, hit), h('mark', null, line.slice(hit, hit + this.find.length)));
      at = hit + this.find.length;
    }
    if (low.length === line.length) el.append(line.slice(at));
    return el;
  }
  show() {
    this.frame = undefined;
    const fresh = this.fresh, follow = this.pre.scrollTop + this.pre.clientHeight > this.pre.scrollHeight - 30;
    this.fresh = [];
    this.lines.push(...fresh);
    if (this.lines.length > KEPT) this.lines.splice(0, this.lines.length - KEPT);
    const some = h('div');
    for (const line of fresh) if (!this.find || line.toLowerCase().includes(this.find)) some.append(this.row(line));
    this.pre.append(...some.childNodes);
    while (this.pre.childNodes.length > KEPT) this.pre.firstChild.remove();
    if (follow) this.pre.scrollTop = this.pre.scrollHeight;
    this.status();
  }
  redraw() {
    fill(this.pre);
    const all = this.lines.concat(this.paused ? [] : this.fresh);
    if (!this.paused) this.fresh = [];
    this.lines = all.slice(-KEPT);
    for (const line of this.lines) if (!this.find || line.toLowerCase().includes(this.find)) this.pre.append(this.row(line));
    this.pre.scrollTop = this.pre.scrollHeight;
    this.status();
  }
  pause(on) {
    this.paused = on;
    if (!on) this.show();
    this.status();
  }
  status() {
    setText(this.button, this.paused ? `Resume${this.fresh.length ? ` (${count(this.fresh.length)} new)` : ''}` : 'Pause');
    this.button.setAttribute('aria-pressed', String(this.paused));
    this.button.classList.toggle('primary', this.paused);
    const words = { live: this.paused ? 'paused' : 'live', ended: 'ended', connecting: 'connecting', interrupted: 'interrupted' };
    setText(this.note, `${words[this.state] ?? this.state}${this.lines.length ? ` · ${plural(this.find ? this.pre.childNodes.length : this.lines.length, this.find ? 'match' : 'line', this.find ? 'matches' : 'lines')}` : this.state === 'live' || this.state === 'ended' ? ' · nothing written yet' : ''}`);
  }
}
