// The nodes as a picture: panels by label, a tile per node, its cpu and memory as bars, its workloads as blocks.
//
// Drawn on one canvas that covers what is in sight. A change redraws only the tiles that it touched; scrolling, zooming and new nodes redraw what is in
// sight. Five levels of detail, from a card with the names of its workloads to a square whose fill is the load: 5,000 nodes then fit on a screen or two.
import { h, fill, badge } from './dom.js';
import { state } from './state.js';
import { PHASES, byNature, cores, mebibytes, plural, percent, phaseWord } from './format.js';

const LEVELS = [
  { name: 'dots', w: 10, h: 10, gap: 2, blocks: null },
  { name: 'small', w: 44, h: 32, gap: 5, blocks: { x: 3, y: 13, h: 17, first: 3 } },
  { name: 'medium', w: 132, h: 62, gap: 7, blocks: { x: 8, y: 38, h: 20, first: 2 } },
  { name: 'large', w: 244, h: 116, gap: 10, blocks: { x: 12, y: 72, h: 34, first: 0 } },
  { name: 'names', w: 370, h: 208, gap: 12, blocks: { x: 14, y: 76, h: 120, first: 0 }, names: { cols: 2, lines: 6, h: 20 } },
];
const PAD = 12, HEAD = 34, PANEL_GAP = 14;
const BLOCK_SIZES = [[10, 2], [8, 2], [6, 1.5], [4, 1], [3, 1], [2, 1]];

// "24 / 128 GiB", and "512M / 128 GiB" where the units differ.
function partOf(part, whole) {
  const [n, unit] = part.split(' ');
  return `${unit === whole.split(' ')[1] ? n : n + unit[0]} / ${whole}`;
}

export class Topology {
  constructor({ openNode, openWorkload, onLevel }) {
    Object.assign(this, { openNode, openWorkload, onLevel });
    this.groupBy = 'zone';
    this.zoom = 'auto';
    this.level = 4;
    this.match = null;
    this.hits = null;
    this.selected = '';
    this.dirty = new Set();
    this.whole = true;
    this.nodes = [];
    this.panels = [];
    this.where = new Map(); // node id -> index in nodes
    this.canvas = h('canvas', { 'aria-hidden': 'true' });
    this.spacer = h('div');
    this.option = h('div.quiet', { role: 'option', id: 'topo-option', 'aria-selected': 'true' });
    this.scroller = h('div.scroller', { tabindex: '0', role: 'listbox', 'aria-label': 'Nodes by group. Arrows move, Enter opens, plus and minus zoom.', id: 'topology' }, this.spacer, this.option);
    this.tip = h('div.tip', { hidden: true, 'aria-hidden': 'true' });
    this.el = h('div.topology', null, this.canvas, this.scroller, this.tip);
    this.ctx = this.canvas.getContext('2d', { alpha: false });
    this.scroller.addEventListener('scroll', () => {
      this.hideTip();
      this.redraw();
    });
    this.scroller.addEventListener('pointermove', (e) => this.hover(e));
    this.scroller.addEventListener('pointerleave', () => this.hideTip());
    this.scroller.addEventListener('click', (e) => this.click(e));
    this.scroller.addEventListener('keydown', (e) => this.key(e));
    this.scroller.addEventListener('wheel', (e) => {
      if (!e.ctrlKey) return;
      e.preventDefault();
      this.step(e.deltaY < 0 ? 1 : -1);
    }, { passive: false });
    this.watch = new ResizeObserver(() => this.arrange());
    this.watch.observe(this.el);
    this.theme = () => {
      this.colours = null;
      this.redraw();
    };
    document.addEventListener('berth-theme', this.theme);
  }
  destroy() {
    this.watch.disconnect();
    cancelAnimationFrame(this.frame);
    this.frame = -1;
    document.removeEventListener('berth-theme', this.theme);
  }

  // ---- what is where ----

  groupOf(node) {
    if (this.groupBy === '(none)') return '';
    if (this.groupBy === '(status)') return node.status || '';
    return node.labels?.[this.groupBy] ?? '';
  }
  setNodes() {
    this.nodes = [...state.nodes.values()];
    this.nodes.sort((a, b) => byNature(a.id, b.id));
    this.regroup();
  }
  regroup() {
    const groups = new Map();
    for (const node of this.nodes) {
      const name = this.groupOf(node);
      let g = groups.get(name);
      if (!g) groups.set(name, (g = { name, nodes: [] }));
      g.nodes.push(node.id);
    }
    this.panels = [...groups.values()].sort((a, b) => (a.name === '') - (b.name === '') || byNature(a.name, b.name));
    this.where.clear();
    this.panels.forEach((p) => p.nodes.forEach((id, i) => this.where.set(id, { panel: p, i })));
    this.arrange();
  }
  // Panels stand side by side where they fit, like books on shelves.
  place(level, width) {
    const L = LEVELS[level], pitch = L.w + L.gap, most = Math.max(1, Math.floor((width - 2 * PAD + L.gap) / pitch));
    let x = 0, y = 0, shelf = 0, row = [];
    // a shelf that is nearly full is filled
    const close = () => {
      const slack = width - x + PANEL_GAP, each = Math.floor(slack / row.length);
      if (row.length > 1 && slack > 0 && slack < width / 4)
        row.forEach((p, i) => {
          p.x += i * each;
          p.w += each;
          if (p.cols === p.nodes.length) p.tw = Math.floor((p.w - 2 * PAD + L.gap) / p.cols) - L.gap;
        });
      row = [];
    };
    const least = this.panels.length > 1 ? Math.min(width, 190) : width;
    for (const p of this.panels) {
      p.cols = Math.min(most, p.nodes.length);
      p.w = Math.max(least, p.cols * pitch - L.gap + 2 * PAD);
      if (p.nodes.length > most) p.w = width;
      // a row that fills the panel does so to its edge
      p.tw = p.cols === most ? Math.floor((p.w - 2 * PAD + L.gap) / p.cols) - L.gap : L.w;
      p.rows = Math.ceil(p.nodes.length / p.cols);
      p.h = HEAD + p.rows * (L.h + L.gap) - L.gap + PAD;
      if (x > 0 && x + p.w > width + 1) {
        close();
        x = 0;
        y += shelf + PANEL_GAP;
        shelf = 0;
      }
      p.x = x;
      p.y = y;
      x += p.w + PANEL_GAP;
      shelf = Math.max(shelf, p.h);
      row.push(p);
    }
    close();
    return y + shelf;
  }
  arrange() {
    const width = Math.min(this.scroller.clientWidth, this.el.clientWidth), height = this.el.clientHeight;
    if (!width || !height) return;
    let total;
    if (this.zoom === 'auto') {
      // one look should do; a few nodes, or a narrow screen, may take a little scrolling
      const screens = (level) => (width < 600 ? 2.5 : level >= 3 && this.nodes.length <= 60 ? 1.7 : 1.25);
      for (this.level = LEVELS.length - 1; (total = this.place(this.level, width)) > height * screens(this.level) && this.level > 0; this.level--);
    } else {
      this.level = this.zoom;
      total = this.place(this.level, width);
    }
    this.spacer.style.height = `${total}px`;
    const scale = Math.min(window.devicePixelRatio || 1, 2);
    const w = Math.round(this.el.clientWidth * scale), t = Math.round(height * scale);
    if (this.canvas.width !== w || this.canvas.height !== t) {
      this.canvas.width = w;
      this.canvas.height = t;
    }
    this.scale = scale;
    this.onLevel?.(this.level, this.zoom);
    this.redraw();
  }
  step(by) {
    this.zoom = Math.max(0, Math.min(LEVELS.length - 1, this.level + by));
    this.arrange();
  }
  setZoom(zoom) {
    this.zoom = zoom;
    this.arrange();
  }
  setMatch(match) {
    this.match = match;
    this.hits = null;
    if (match) {
      this.hits = new Set();
      for (const node of this.nodes) if (this.isHit(node)) this.hits.add(node.id);
    }
    this.redraw();
  }
  isHit(node) {
    return this.match.node(node) || (state.units.get(node.id) || []).some(this.match.row);
  }
  update(change) {
    if (change.structure || (this.groupBy === '(status)' && change.nodes.size)) {
      this.setNodes();
      if (this.match) this.setMatch(this.match);
      return;
    }
    for (const id of change.nodes) {
      this.dirty.add(id);
      const node = state.nodes.get(id);
      if (this.hits && node) {
        if (this.isHit(node)) this.hits.add(id);
        else this.hits.delete(id);
      }
    }
    for (const id of change.rows) {
      const row = state.workloads.get(id);
      if (row?.node) this.dirty.add(row.node);
    }
    if (this.dirty.size) this.ask();
  }

  // ---- drawing ----

  redraw() {
    this.whole = true;
    this.ask();
  }
  ask() {
    if (this.frame === undefined) this.frame = requestAnimationFrame(() => this.draw());
  }
  palette() {
    const style = getComputedStyle(document.documentElement), get = (name) => style.getPropertyValue(name).trim();
    this.font = get('--font');
    this.colours = { bg: get('--bg'), panel: get('--panel'), card: get('--card'), line: get('--line'), text: get('--text'), muted: get('--muted'), track: get('--track'),
      alloc: get('--alloc'), used: get('--used'), full: get('--full'), accent: get('--accent'), bad: get('--bad'), warn: get('--warn'), off: get('--off'), phase: {} };
    for (const p of PHASES) this.colours.phase[p] = get(`--phase-${p.toLowerCase()}`);
  }
  draw() {
    if (this.frame === -1) return;
    this.frame = undefined;
    if (!this.colours) this.palette();
    const { ctx, scale } = this, top = this.scroller.scrollTop, height = this.el.clientHeight;
    ctx.setTransform(scale, 0, 0, scale, 0, -Math.round(top * scale));
    if (this.whole) {
      ctx.fillStyle = this.colours.bg;
      ctx.fillRect(0, top - 1, this.el.clientWidth, height + 2);
      for (const p of this.panels) if (p.y < top + height && p.y + p.h > top) this.drawPanel(p, top, height);
    } else {
      const heads = new Set();
      for (const id of this.dirty) {
        const at = this.where.get(id);
        if (!at) continue;
        heads.add(at.panel);
        const [x, y] = this.spot(at);
        if (y < top + height && y + LEVELS[this.level].h > top) this.drawNode(id, x, y, at.panel.tw, true);
      }
      for (const p of heads) if (p.y < top + height && p.y + HEAD > top) this.drawHead(p, true);
    }
    this.whole = false;
    this.dirty.clear();
  }
  spot({ panel, i }) {
    const L = LEVELS[this.level];
    return [panel.x + PAD + (i % panel.cols) * (panel.tw + L.gap), panel.y + HEAD + Math.floor(i / panel.cols) * (L.h + L.gap)];
  }
  drawPanel(p, top, height) {
    const { ctx, colours: c } = this, L = LEVELS[this.level], pitch = L.h + L.gap;
    ctx.fillStyle = c.panel;
    ctx.strokeStyle = c.line;
    ctx.lineWidth = 1;
    ctx.beginPath();
    ctx.roundRect(p.x + 0.5, p.y + 0.5, p.w - 1, p.h - 1, 8);
    ctx.fill();
    ctx.stroke();
    this.drawHead(p, false);
    const first = Math.max(0, Math.floor((top - p.y - HEAD) / pitch)), end = Math.min(p.rows, Math.ceil((top + height - p.y - HEAD) / pitch));
    for (let i = first * p.cols; i < Math.min(p.nodes.length, end * p.cols); i++) {
      const [x, y] = this.spot({ panel: p, i });
      this.drawNode(p.nodes[i], x, y, p.tw, false);
    }
  }
  drawHead(p, clear) {
    const { ctx, colours: c } = this;
    if (clear) {
      ctx.fillStyle = c.panel;
      ctx.fillRect(p.x + 8, p.y + 4, p.w - 16, HEAD - 8);
    }
    let ct = 0, ca = 0, mt = 0, ma = 0, down = 0;
    for (const id of p.nodes) {
      const n = state.nodes.get(id), r = n?.resources;
      if (!n) continue;
      if (n.status !== 'Ready') down++;
      ct += r?.cpu_total || 0;
      ca += r?.cpu_allocated || 0;
      mt += r?.memory_total || 0;
      ma += r?.memory_allocated || 0;
    }
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    ctx.font = `600 12.5px ${this.font}`;
    ctx.fillStyle = c.text;
    const title = this.groupBy === '(none)' ? 'all nodes' : p.name === '' ? `no ${this.groupBy.replace(/[()]/g, '')}` : this.groupBy === '(status)' ? p.name : `${this.groupBy} ${p.name}`;
    const y = p.y + HEAD / 2 + 1;
    const shown = this.cut(title, p.w * 0.5);
    ctx.fillText(shown, p.x + PAD, y);
    let x = p.x + PAD + ctx.measureText(shown).width + 10;
    ctx.font = `12px ${this.font}`;
    ctx.fillStyle = c.muted;
    const n = plural(p.nodes.length, 'node');
    ctx.fillText(n, x, y);
    x += ctx.measureText(n).width + 8;
    if (down) {
      ctx.fillStyle = c.bad;
      const t = `${down} not ready`;
      if (x + 70 < p.x + p.w - 130) ctx.fillText(t, x, y);
      x += ctx.measureText(t).width;
    }
    ctx.textAlign = 'right';
    ctx.fillStyle = c.muted;
    const sum = p.w > 330 ? `cpu ${percent(ca, ct)}   memory ${percent(ma, mt)}` : `${percent(ca, ct)} / ${percent(ma, mt)}`;
    if (x + ctx.measureText(sum).width < p.x + p.w - PAD) ctx.fillText(sum, p.x + p.w - PAD, y);
    ctx.textAlign = 'left';
  }
  cut(text, width) {
    const { ctx } = this;
    if (ctx.measureText(text).width <= width) return text;
    let n = text.length;
    while (n > 1 && ctx.measureText(`${text.slice(0, n)}…`).width > width) n--;
    return `${text.slice(0, n)}…`;
  }
  statusColour(node) {
    const c = this.colours;
    if (node.status === 'NotReady') return c.bad;
    if (node.status === 'Draining' || node.wish === 'cordoned') return c.warn;
    return node.status === 'Disabled' ? c.off : null;
  }
  drawNode(id, x, y, w, clear) {
    const node = state.nodes.get(id);
    if (!node) return;
    const { ctx, colours: c } = this, L = LEVELS[this.level], units = state.units.get(id) || [], mark = this.statusColour(node);
    if (clear) {
      ctx.fillStyle = c.panel;
      ctx.fillRect(x - 1, y - 1, w + 2, L.h + 2);
    }
    ctx.globalAlpha = this.hits && !this.hits.has(id) ? 0.22 : 1;
    if (this.level === 0) this.drawDot(node, units, mark, x, y, w, L.h);
    else {
      ctx.fillStyle = c.card;
      if (this.level === 1) ctx.fillRect(x, y, w, L.h);
      else {
        ctx.beginPath();
        ctx.roundRect(x, y, w, L.h, 6);
        ctx.fill();
        ctx.strokeStyle = mark || c.line;
        ctx.lineWidth = 1;
        ctx.beginPath();
        ctx.roundRect(x + 0.5, y + 0.5, w - 1, L.h - 1, 6);
        ctx.stroke();
      }
      this.drawBars(node, units, mark, x, y, w);
      const b = L.blocks;
      if (L.names && units.length <= L.names.cols * L.names.lines) this.drawNames(units, x + b.x, y + b.y, w - 2 * b.x, L.names);
      else this.drawBlocks(units, x + b.x, y + b.y, w - 2 * b.x, b.h);
      if (mark && this.level === 1) {
        ctx.fillStyle = mark;
        ctx.fillRect(x, y, w, 2);
      }
    }
    ctx.globalAlpha = 1;
    if (id === this.selected) {
      ctx.strokeStyle = c.accent;
      ctx.lineWidth = 2;
      ctx.strokeRect(x, y, w, L.h);
    }
  }
  drawDot(node, units, mark, x, y, w, height) {
    const { ctx, colours: c } = this, r = node.resources || {};
    const load = Math.max((r.cpu_allocated || 0) / (r.cpu_total || 1), (r.memory_allocated || 0) / (r.memory_total || 1));
    ctx.fillStyle = mark || c.track;
    ctx.fillRect(x, y, w, height);
    if (!mark && load > 0) {
      const t = Math.max(1, Math.round(Math.min(1, load) * height));
      ctx.fillStyle = load > 0.95 ? c.full : c.alloc;
      ctx.fillRect(x, y + height - t, w, t);
    }
    let bad = false;
    for (let i = 0; i < units.length && !bad; i++) bad = units[i].shown === 'Failed' || units[i].shown === 'RetryPending';
    if (bad) {
      ctx.fillStyle = c.phase.Failed;
      ctx.fillRect(x + w - 4, y, 4, 4);
    }
  }
  drawBars(node, units, mark, x, y, w) {
    const { ctx, colours: c } = this, r = node.resources || {};
    const cpu = [r.cpu_allocated || 0, r.cpu_used || 0, r.cpu_total || 0], mem = [r.memory_allocated || 0, r.memory_used || 0, r.memory_total || 0];
    if (this.level === 1) {
      this.bar(x + 3, y + 3, w - 6, 3, cpu);
      this.bar(x + 3, y + 8, w - 6, 3, mem);
      return;
    }
    ctx.textBaseline = 'middle';
    ctx.textAlign = 'left';
    ctx.fillStyle = mark === c.bad ? c.bad : c.text;
    if (this.level === 2) {
      ctx.font = `11px ${this.font}`;
      ctx.fillText(this.cut(node.id, w - 16), x + 8, y + 11);
      this.bar(x + 8, y + 21, w - 16, 5, cpu);
      this.bar(x + 8, y + 28, w - 16, 5, mem);
      return;
    }
    ctx.font = `600 13px ${this.font}`;
    ctx.fillText(this.cut(node.id, w - 104), x + 12, y + 17);
    ctx.font = `11.5px ${this.font}`;
    ctx.textAlign = 'right';
    ctx.fillStyle = mark || c.muted;
    ctx.fillText(mark ? (node.wish === 'cordoned' && node.status === 'Ready' ? 'cordoned' : node.status) : plural(units.length, 'workload'), x + w - 12, y + 17);
    const line = (name, figures, text, at) => {
      ctx.textAlign = 'left';
      ctx.fillStyle = c.muted;
      ctx.fillText(name, x + 12, at + 3.5);
      ctx.textAlign = 'right';
      ctx.fillText(text, x + w - 12, at + 3.5);
      this.bar(x + 44, at, w - 44 - 112, 7, figures);
    };
    line('cpu', cpu, `${cores(cpu[0])} / ${cores(cpu[2])}`, y + 34);
    line('mem', mem, partOf(mebibytes(mem[0]), mebibytes(mem[2])), y + 52);
    ctx.textAlign = 'left';
  }
  // Allocated as the wide bar, used as the line inside it.
  bar(x, y, w, t, [allocated, used, total]) {
    const { ctx, colours: c } = this;
    ctx.fillStyle = c.track;
    ctx.fillRect(x, y, w, t);
    if (!(total > 0)) return;
    const a = Math.min(1, allocated / total);
    if (a > 0) {
      ctx.fillStyle = a > 0.95 ? c.full : c.alloc;
      ctx.fillRect(x, y, Math.max(1, a * w), t);
    }
    if (used > 0) {
      ctx.fillStyle = c.used;
      const line = Math.max(1, Math.round(t / 3));
      ctx.fillRect(x, y + (t - line) / 2, Math.max(1, Math.min(1, used / total) * w), line);
    }
  }
  fit(n, w, t) {
    for (let i = LEVELS[this.level].blocks.first; i < BLOCK_SIZES.length; i++) {
      const [size, gap] = BLOCK_SIZES[i];
      const cols = Math.floor((w + gap) / (size + gap)), lines = Math.floor((t + gap) / (size + gap));
      if (lines > 0 && cols * lines >= n) return { size, gap, cols };
    }
    return null;
  }
  drawNames(units, x, y, w, { cols, lines, h: pitch }) {
    const { ctx, colours: c } = this, alpha = ctx.globalAlpha, width = w / cols;
    ctx.font = `12px ${this.font}`;
    ctx.textBaseline = 'middle';
    units.forEach((u, i) => {
      const bx = x + Math.floor(i / lines) * width, by = y + (i % lines) * pitch;
      if (this.match && alpha === 1) ctx.globalAlpha = this.match.row(u) ? 1 : 0.3;
      ctx.fillStyle = c.phase[u.shown];
      ctx.fillRect(bx, by + 5, 10, 10);
      if (u.shown === 'Failed' || u.shown === 'RetryPending') {
        ctx.fillStyle = c.card;
        ctx.fillRect(bx + 4, by + 7, 2, 4);
        ctx.fillRect(bx + 4, by + 12, 2, 1.5);
      }
      ctx.fillStyle = u.shown === 'Running' ? c.text : c.muted;
      ctx.fillText(this.cut(u.id, width - 26), bx + 16, by + 10.5);
    });
    ctx.globalAlpha = alpha;
  }
  drawBlocks(units, x, y, w, t) {
    const { ctx, colours: c } = this, f = this.fit(units.length, w, t);
    if (!units.length) return;
    if (!f) {
      // too many to tell apart: how they stand, in proportion
      const counts = {};
      for (const u of units) counts[u.shown] = (counts[u.shown] || 0) + 1;
      let at = x;
      for (const p of PHASES) {
        if (!counts[p]) continue;
        const part = (counts[p] / units.length) * w;
        ctx.fillStyle = c.phase[p];
        ctx.fillRect(at, y, Math.max(1, part), t);
        at += part;
      }
      return;
    }
    const pitch = f.size + f.gap, dim = this.match && ctx.globalAlpha === 1;
    let colour = '';
    for (let i = 0; i < units.length; i++) {
      const u = units[i], bx = x + (i % f.cols) * pitch, by = y + Math.floor(i / f.cols) * pitch;
      if (dim) ctx.globalAlpha = this.match.row(u) ? 1 : 0.3;
      if (c.phase[u.shown] !== colour) ctx.fillStyle = colour = c.phase[u.shown];
      ctx.fillRect(bx, by, f.size, f.size);
      if (f.size >= 8 && (u.shown === 'Failed' || u.shown === 'RetryPending')) {
        // not by colour alone
        ctx.fillStyle = colour = c.card;
        ctx.fillRect(bx + f.size / 2 - 1, by + 2, 2, f.size - 6);
        ctx.fillRect(bx + f.size / 2 - 1, by + f.size - 3, 2, 1.5);
      }
    }
    if (dim) ctx.globalAlpha = 1;
  }

  // ---- pointer and keys ----

  find(e) {
    const box = this.el.getBoundingClientRect(), L = LEVELS[this.level];
    const x = e.clientX - box.left, y = e.clientY - box.top + this.scroller.scrollTop;
    const p = this.panels.find((q) => x >= q.x && x < q.x + q.w && y >= q.y + HEAD && y < q.y + q.h);
    if (!p) return null;
    const col = Math.floor((x - p.x - PAD) / (p.tw + L.gap)), line = Math.floor((y - p.y - HEAD) / (L.h + L.gap)), i = line * p.cols + col;
    if (col < 0 || col >= p.cols || i >= p.nodes.length) return null;
    const [tx, ty] = this.spot({ panel: p, i });
    if (x > tx + p.tw || y > ty + L.h) return null;
    const id = p.nodes[i], units = state.units.get(id) || [];
    let unit = null;
    const wide = L.blocks && p.tw - 2 * L.blocks.x;
    if (L.names && units.length <= L.names.cols * L.names.lines) {
      const c = Math.floor((x - tx - L.blocks.x) / (wide / L.names.cols)), r = Math.floor((y - ty - L.blocks.y) / L.names.h);
      if (c >= 0 && c < L.names.cols && r >= 0 && r < L.names.lines) unit = units[c * L.names.lines + r] || null;
    } else if (L.blocks) {
      const f = this.fit(units.length, wide, L.blocks.h), bx = x - tx - L.blocks.x, by = y - ty - L.blocks.y;
      if (f && bx >= 0 && by >= 0) {
        const c = Math.floor(bx / (f.size + f.gap));
        if (c < f.cols) unit = units[Math.floor(by / (f.size + f.gap)) * f.cols + c] || null;
      }
    }
    return { id, unit, x, y: y - this.scroller.scrollTop };
  }
  hover(e) {
    if (e.pointerType === 'touch') return;
    const hit = this.find(e);
    this.scroller.classList.toggle('over', !!hit);
    if (!hit) return this.hideTip();
    const node = state.nodes.get(hit.id), key = `${hit.id} ${hit.unit?.id} ${hit.unit?.seq}`;
    if (!node) return this.hideTip();
    if (this.tipKey !== key) {
      this.tipKey = key;
      const r = node.resources || {}, units = state.units.get(hit.id) || [];
      if (hit.unit)
        fill(this.tip, h('strong', null, hit.unit.id), badge(hit.unit.shown, phaseWord(hit.unit.shown)), h('div', null, `${cores(hit.unit.cpu)} cpu, ${mebibytes(hit.unit.mem)}, on ${hit.id}`),
          hit.unit.text && h('div.muted', null, hit.unit.text));
      else
        fill(this.tip, h('strong', null, hit.id), badge(node.status === 'Ready' ? 'Running' : node.status === 'NotReady' ? 'Failed' : 'Pending', node.wish === 'cordoned' ? `${node.status}, cordoned` : node.status),
          h('div', null, `cpu ${cores(r.cpu_allocated)} of ${cores(r.cpu_total)} allocated, ${cores(r.cpu_used)} used`),
          h('div', null, `memory ${mebibytes(r.memory_allocated)} of ${mebibytes(r.memory_total)}, ${mebibytes(r.memory_used)} used`),
          h('div.muted', null, plural(units.length, 'workload')));
    }
    this.tip.hidden = false;
    const w = this.tip.offsetWidth, t = this.tip.offsetHeight;
    this.tip.style.left = `${Math.max(4, Math.min(hit.x + 14, this.el.clientWidth - w - 6))}px`;
    this.tip.style.top = `${hit.y + 18 + t > this.el.clientHeight ? Math.max(2, hit.y - t - 10) : hit.y + 18}px`;
  }
  hideTip() {
    this.tip.hidden = true;
    this.tipKey = '';
  }
  click(e) {
    const hit = this.find(e);
    if (!hit) return;
    if (hit.unit) this.openWorkload(hit.unit.id);
    else this.openNode(hit.id);
  }
  select(id) {
    this.selected = id;
    const at = this.where.get(id), node = state.nodes.get(id);
    if (!at || !node) return;
    const [, y] = this.spot(at), view = this.scroller;
    if (y - HEAD < view.scrollTop) view.scrollTop = y - HEAD;
    else if (y + LEVELS[this.level].h > view.scrollTop + view.clientHeight) view.scrollTop = y + LEVELS[this.level].h - view.clientHeight + 8;
    const r = node.resources || {}, units = state.units.get(id) || [];
    this.option.textContent = `${id}, ${this.groupBy} ${at.panel.name || 'none'}, ${node.status}, cpu ${percent(r.cpu_allocated || 0, r.cpu_total)} allocated, memory ${percent(r.memory_allocated || 0, r.memory_total)} allocated, ${plural(units.length, 'workload')}`;
    this.scroller.setAttribute('aria-activedescendant', 'topo-option');
    this.redraw();
  }
  key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (e.key === '+' || e.key === '=') this.step(1);
    else if (e.key === '-') this.step(-1);
    else if (e.key === '0') this.setZoom('auto');
    else if (e.key === 'Enter' && this.selected) this.openNode(this.selected);
    else if (e.key.startsWith('Arrow') && this.panels.length) this.move(e.key);
    else return;
    e.preventDefault();
  }
  move(key) {
    const at = this.where.get(this.selected);
    if (!at) return this.select(this.panels[0].nodes[0]);
    const { panel, i } = at, k = this.panels.indexOf(panel);
    const next = i + { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -panel.cols, ArrowDown: panel.cols }[key];
    if (next >= 0 && next < panel.nodes.length) return this.select(panel.nodes[next]);
    const other = this.panels[k + (key === 'ArrowLeft' || key === 'ArrowUp' ? -1 : 1)];
    if (other) this.select(other.nodes[key === 'ArrowLeft' || key === 'ArrowUp' ? other.nodes.length - 1 : 0]);
    else if (key === 'ArrowDown') this.select(panel.nodes[panel.nodes.length - 1]);
  }
}
export const LEVEL_NAMES = LEVELS.map((l) => l.name);
