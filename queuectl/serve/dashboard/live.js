// The line to the controller: server-sent events that say "something changed", and a small question now and then.
//
// A browser does not show a stream's heartbeats, so a connection that died without a word would look like an idle cluster.
// The question finds that out, brings the time forward while nothing changes, and stands in where no stream is to be had.

const POLL = 5000; // ms between two questions
const HURRY = 2000; // ms, while there is no answer
const AGAIN = 10000; // ms after which a stream that was refused is asked for again

/** Calls `heard(state)` whenever the controller told its state, and `lost()` whenever it did not. */
export class Live {
  constructor(heard, lost) {
    this.streaming = false; // events come as they happen
    this.silent = 0; // ms for which nothing was heard
    this._heard = heard;
    this._lost = lost;
    this._last = performance.now();
    this._source = null;
    this._timer = 0;
    document.addEventListener("visibilitychange", () => (document.hidden ? this._stop() : this._start()));
    if (!document.hidden) this._start();
  }

  _start() {
    this._last = performance.now();
    this._connect();
    this._poll();
  }

  // Nobody looks: a hidden page costs the controller nothing, and leaves its stream to others.
  _stop() {
    clearTimeout(this._timer);
    this._source?.close();
    this._source = null;
    this.streaming = false;
  }

  _connect() {
    this._source?.close();
    const source = new EventSource("api/v1/events");
    this._source = source;
    this._asked = performance.now();
    source.addEventListener("state", (event) => {
      this.streaming = true;
      this._tell(JSON.parse(event.data));
    });
    source.addEventListener("error", () => {
      if (source !== this._source) return;
      this.streaming = false;
      this._ask(0);
    });
  }

  _ask(wait) {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => this._poll(), wait);
  }

  async _poll() {
    let answered = false;
    try {
      const reply = await fetch("api/v1/controller", { cache: "no-store", signal: AbortSignal.timeout(POLL) });
      if (reply.ok) {
        this._tell(await reply.json());
        answered = true;
      }
    } catch {
      // Not reached: `lost` says so.
    }
    if (document.hidden) return;
    if (!answered) {
      this.silent = performance.now() - this._last;
      this._lost();
    }
    const refused = this._source?.readyState === EventSource.CLOSED && performance.now() - this._asked > AGAIN;
    if (refused && answered) this._connect();
    this._ask(answered ? POLL : HURRY);
  }

  _tell(state) {
    this._last = performance.now();
    this.silent = 0;
    this._heard(state);
  }
}
