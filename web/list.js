// A table of any length: only the rows in sight exist. Arrows move, Enter opens, the pointer follows links.
//
// columns: [{ name, width (grid track), make(el) once, cell(el, row), num, muted, narrow: shown on a phone too (its track there) }]. open(row): Enter or a
// click. most: no higher than so many rows; 0: as high as there is room.
import { h, fill } from './dom.js';

export class List {
  constructor({ label, columns, rowHeight = 34, open, key = (row) => row.id, none, most = 0 }) {
    Object.assign(this, { columns, rowHeight, open, key, none, most });
    this.rows = [];
    this.pool = [];
    this.active = -1;
    this.spacer = h('div.spacer');
    this.window = h('div.window', { role: 'presentation' });
    this.head = h('div.row.head', { role: 'row' }, columns.map((c) => h(`span.cell${c.narrow ? '' : '.wide'}${c.num ? '.num' : ''}`, { role: 'columnheader' }, c.name)));
    this.body = h('div.rows', { role: 'rowgroup', tabindex: '-1' }, this.spacer, this.window);
    this.nothing = h('div.nothing', { hidden: true });
    this.el = h('div.table', { role: 'grid', tabindex: '0', 'aria-label': label }, this.head, this.body, this.nothing);
    this.el.style.setProperty('--columns', columns.map((c) => c.width).join(' '));
    this.el.style.setProperty('--columns-narrow', columns.filter((c) => c.narrow).map((c) => c.narrow === true ? c.width : c.narrow).join(' '));
    this.el.style.setProperty('--row', `${rowHeight}px`);
    this.body.addEventListener('scroll', () => this.draw());
    this.el.addEventListener('keydown', (e) => this.key_(e));
    this.body.addEventListener('click', (e) => this.click(e));
    this.watch = new ResizeObserver(() => this.draw());
    this.watch.observe(this.body);
  }
  destroy() {
    this.watch.disconnect();
  }
  // keep: what is in sight stays in sight although rows came in above it.
  setRows(rows, keep) {
    const top = keep && this.body.scrollTop > this.rowHeight ? this.rows[Math.floor(this.body.scrollTop / this.rowHeight)] : null;
    const active = this.rows[this.active];
    this.rows = rows;
    if (active && this.key(active) !== (rows[this.active] && this.key(rows[this.active]))) this.active = rows.findIndex((r) => this.key(r) === this.key(active));
    this.el.setAttribute('aria-rowcount', rows.length + 1);
    this.spacer.style.height = `${rows.length * this.rowHeight}px`;
    if (top) {
      const i = rows.findIndex((r) => this.key(r) === this.key(top));
      if (i >= 0) this.body.scrollTop = i * this.rowHeight + (this.body.scrollTop % this.rowHeight);
    }
    if (this.most) this.el.style.height = `${33 + Math.max(1, Math.min(this.most, rows.length)) * this.rowHeight}px`;
    this.nothing.hidden = rows.length > 0;
    this.body.hidden = rows.length === 0;
    if (!rows.length) fill(this.nothing, this.none ? this.none() : 'nothing');
    this.draw();
  }
  draw() {
    const first = Math.max(0, Math.floor(this.body.scrollTop / this.rowHeight) - 4);
    const n = Math.min(this.rows.length - first, Math.ceil((this.body.clientHeight || 600) / this.rowHeight) + 8);
    while (this.pool.length < n) this.grow();
    // a row keeps its element while it is in sight, so scrolling by a line touches one row
    for (let i = first; i < first + this.pool.length; i++) {
      const slot = this.pool[i % this.pool.length], row = i < first + n ? this.rows[i] : null;
      if (slot.el.hidden !== !row) slot.el.hidden = !row;
      if (!row) continue;
      if (slot.index !== i) {
        slot.index = i;
        slot.el.style.transform = `translateY(${i * this.rowHeight}px)`;
        slot.el.setAttribute('aria-rowindex', i + 2);
      }
      slot.el.classList.toggle('active', i === this.active);
      const key = String(this.key(row));
      if (slot.el.dataset.key !== key) slot.el.dataset.key = key;
      for (let k = 0; k < this.columns.length; k++) this.columns[k].cell(slot.cells[k], row);
    }
    this.el.setAttribute('aria-activedescendant', this.pool.find((s) => s.index === this.active && !s.el.hidden)?.el.id || '');
  }
  grow() {
    const cells = this.columns.map((c) => {
      const cell = h(`span.cell${c.narrow ? '' : '.wide'}${c.num ? '.num' : ''}${c.muted ? '.muted' : ''}`, { role: 'gridcell' });
      if (c.make) c.make(cell);
      for (const a of cell.querySelectorAll('a')) a.tabIndex = -1; // the grid is one stop for Tab; arrows and Enter do the rest
      return cell;
    });
    const el = h('div.row', { role: 'row', id: `row-${++List.ids}` }, cells);
    this.pool.push({ el, cells, index: -1 });
    this.window.append(el);
  }
  key_(e) {
    const page = Math.max(1, Math.floor(this.body.clientHeight / this.rowHeight) - 1);
    const step = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity, j: 1, k: -1 }[e.key];
    if (e.ctrlKey || e.metaKey || e.altKey) return;
    if (step !== undefined) {
      e.preventDefault();
      this.active = Math.max(0, Math.min(this.rows.length - 1, this.active + step));
      const top = this.active * this.rowHeight, view = this.body;
      if (top < view.scrollTop) view.scrollTop = top;
      else if (top + this.rowHeight > view.scrollTop + view.clientHeight) view.scrollTop = top + this.rowHeight - view.clientHeight;
      this.draw();
    } else if (e.key === 'Enter' && this.active >= 0 && !e.target.closest('a, button')) {
      e.preventDefault();
      this.open?.(this.rows[this.active]);
    }
  }
  click(e) {
    if (e.target.closest('a, button')) return;
    if (getSelection()?.toString()) return;
    const slot = this.pool.find((s) => s.el.contains(e.target));
    if (slot && this.rows[slot.index]) {
      this.active = slot.index;
      this.open?.(this.rows[slot.index]);
    }
  }
  focus() {
    if (this.active < 0 && this.rows.length) this.active = 0;
    this.el.focus({ preventScroll: true });
    this.draw();
  }
}
List.ids = 0;
