// Reading the JSON API: what the page has already is not sent again (ETag).

/** An answer that is an error: `status`, a `message` for people, and `nearest` names where one was not found. */
export class Failure extends Error {
  constructor(status, message, nearest = []) {
    super(message);
    this.status = status;
    this.nearest = nearest;
  }
}

const PATIENCE = 15000; // ms

/** Remembers the last answer to each path that the present page asks for. */
export class Reader {
  constructor() {
    this._had = new Map();
  }

  /** Forget what no page asks for any more. */
  keep(paths) {
    for (const path of this._had.keys()) if (!paths.includes(path)) this._had.delete(path);
  }

  /** The object under a path of the API. Throws Failure. */
  async get(path) {
    const had = this._had.get(path);
    let reply;
    try {
      reply = await fetch(`api/v1/${path}`, {
        cache: "no-store",
        headers: had ? { "If-None-Match": had.tag } : {},
        signal: AbortSignal.timeout(PATIENCE),
      });
    } catch {
      throw new Failure(0, "the controller was not reached");
    }
    if (reply.status === 304 && had) return had.body;
    let body;
    try {
      body = await reply.json();
    } catch {
      throw new Failure(reply.status, `the answer is no JSON (HTTP ${reply.status})`);
    }
    if (!reply.ok) throw new Failure(reply.status, body.message ?? `HTTP ${reply.status}`, body.details?.nearest ?? []);
    this._had.set(path, { tag: reply.headers.get("ETag"), body });
    return body;
  }
}
