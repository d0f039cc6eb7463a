// Server-sent events over fetch: with Last-Event-ID under our control, errors that can be read, and a watch on the comments that the server sends every
// 15 s, so that a connection that died without a word is noticed. EventSource has none of these.

const SILENCE_MS = 40000;

// Reads until the stream ends or fails (throws). on.open() once it answers; on.event(id, name, data) per event; on.chunk() after each piece from the network.
export async function readStream(url, last, on, signal) {
  const own = new AbortController();
  const stop = () => own.abort();
  signal.addEventListener('abort', stop);
  let timer = setTimeout(stop, SILENCE_MS);
  try {
    const answer = await fetch(url, { headers: { Accept: 'text/event-stream', 'Last-Event-ID': String(last) }, cache: 'no-store', signal: own.signal });
    if (!answer.ok) throw new Error(`events: ${answer.status}`);
    on.open();
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const parser = new Parser(on.event);
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(stop, SILENCE_MS);
      parser.add(value);
      on.chunk();
    }
  } finally {
    clearTimeout(timer);
    signal.removeEventListener('abort', stop);
    own.abort();
  }
}

class Parser {
  constructor(event) {
    this.event = event;
    this.rest = '';
    this.clear();
  }
  clear() {
    this.id = this.name = '';
    this.data = null;
  }
  add(text) {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop();
    for (const line of lines) this.line(line.endsWith('\r') ? line.slice(0, -1) : line);
  }
  line(line) {
    if (line === '') {
      if (this.data !== null) this.event(this.id, this.name, this.data);
      this.clear();
    } else if (line.startsWith('data:')) {
      const d = line.slice(line[5] === ' ' ? 6 : 5);
      this.data = this.data === null ? d : `${this.data}\n${d}`;
    } else if (line.startsWith('id:')) this.id = line.slice(3).trim();
    else if (line.startsWith('event:')) this.name = line.slice(6).trim();
  }
}
