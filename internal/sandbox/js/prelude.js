// The globals that programs have beside the language's own. It runs once, before
// any program, and takes the host's functions away from the global object: what
// a program changes of the globals later does not change what is used here.
(function () {
  "use strict";
  const G = globalThis;
  const host = {};
  for (const name of ["__write", "__exit", "__read", "__save", "__map", "__now", "__random"]) {
    host[name.slice(2)] = G[name];
    delete G[name];
  }
  const { apply, ownKeys, getPrototypeOf, getOwnPropertyDescriptor, defineProperty } = Reflect;
  const uncurry = (f) => (self, ...args) => apply(f, self, args);
  const toStr = uncurry(Object.prototype.toString);
  const isArray = Array.isArray;
  const jsonText = JSON.stringify;
  const MapC = Map, SetC = Set, ErrorC = Error, TypeErrorC = TypeError, PromiseC = Promise, U8 = Uint8Array;
  const hide = (name, value) => defineProperty(G, name, { value, writable: true, configurable: true, enumerable: false });

  // --- how values are shown -------------------------------------------------

  const quote = (s) => {
    const q = !s.includes("'") ? "'" : !s.includes('"') ? '"' : !s.includes("`") ? "`" : "'";
    let out = "";
    for (const c of s) {
      if (c === "\n") out += "\\n";
      else if (c === "\r") out += "\\r";
      else if (c === "\t") out += "\\t";
      else if (c === "\b") out += "\\b";
      else if (c === "\f") out += "\\f";
      else if (c === "\v") out += "\\v";
      else if (c === "\\") out += "\\\\";
      else if (c === q) out += "\\" + c;
      else if (c < " " || c === "\x7f") out += "\\x" + c.charCodeAt(0).toString(16).toUpperCase().padStart(2, "0");
      else out += c;
    }
    return q + out + q;
  };
  const plainKey = /^[A-Za-z_$][A-Za-z0-9_$]*$/;
  const showKey = (k) => typeof k === "symbol" ? `[${String(k)}]` : plainKey.test(k) ? k : quote(k);
  const number = (n) => Object.is(n, -0) ? "-0" : String(n);
  const className = (v) => {
    for (let o = v; o !== null; o = getPrototypeOf(o)) {
      const d = getOwnPropertyDescriptor(o, "constructor");
      if (d && typeof d.value === "function" && d.value.name) return d.value.name;
    }
    return "";
  };
  const custom = Symbol.for("nodejs.util.inspect.custom");

  const errorText = (e) => {
    let head;
    try {
      const name = e.name === undefined ? "Error" : String(e.name);
      const message = e.message === undefined ? "" : String(e.message);
      head = message === "" ? name : name === "" ? message : `${name}: ${message}`;
    } catch {
      head = "Error";
    }
    let stack = "";
    try {
      if (typeof e.stack === "string") stack = host.map(e.stack);
    } catch { /* a getter that throws has nothing to tell */ }
    stack = stack.replace(/\n+$/, "");
    return stack === "" ? head : stack.startsWith(head) ? stack : head + "\n" + stack;
  };

  function show(v, depth, seen, indent) {
    switch (typeof v) {
      case "string": return quote(v);
      case "number": return number(v);
      case "bigint": return v + "n";
      case "symbol": return String(v);
      case "undefined": return "undefined";
      case "boolean": return String(v);
      case "function": {
        let kind = "Function";
        try {
          const src = Function.prototype.toString.call(v);
          if (/^class\b/.test(src)) {
            const up = getPrototypeOf(v);
            return `[class ${v.name || "(anonymous)"}${up && up.name ? ` extends ${up.name}` : ""}]`;
          }
          kind = /^async\s*(function)?\s*\*/.test(src) ? "AsyncGeneratorFunction" : /^async\b/.test(src) ? "AsyncFunction" : /^function\s*\*|^\*/.test(src) ? "GeneratorFunction" : "Function";
        } catch { /* a proxy */ }
        return `[${kind}${v.name ? `: ${v.name}` : " (anonymous)"}]`;
      }
    }
    if (v === null) return "null";
    if (seen.includes(v)) return "[Circular *1]";
    try {
      if (typeof v[custom] === "function") {
        const got = v[custom](depth, {}, (x) => inspect(x));
        return typeof got === "string" ? got : show(got, depth, seen.concat([v]), indent);
      }
    } catch { /* shown as any other */ }
    const tag = toStr(v);
    const name = className(v);
    if (v instanceof ErrorC || tag === "[object Error]") {
      let text = errorText(v);
      const extra = ownKeys(v).filter((k) => k !== "stack" && k !== "message" && k !== "name" && getOwnPropertyDescriptor(v, k)?.enumerable);
      if (getOwnPropertyDescriptor(v, "cause") && !extra.includes("cause")) text += ` {\n  [cause]: ${show(v.cause, depth, seen.concat([v]), indent + 2)}\n}`;
      else if (extra.length) text += " " + braces("{", "}", extra.map((k) => `${showKey(k)}: ${show(v[k], depth, seen.concat([v]), indent + 2)}`), indent);
      return text;
    }
    if (tag === "[object Date]" && typeof v.getTime === "function") return Number.isNaN(v.getTime()) ? "Invalid Date" : v.toISOString();
    if (tag === "[object RegExp]") return String(v);
    if (v instanceof PromiseC) return "Promise { <pending> }";
    if (v instanceof WeakMap) return "WeakMap { <items unknown> }";
    if (v instanceof WeakSet) return "WeakSet { <items unknown> }";
    if (v instanceof Number || v instanceof String || v instanceof Boolean) return `[${name}: ${show(v.valueOf(), depth, seen, indent)}]`;
    if (typeof G.URL === "function" && v instanceof URLC) return `URL ${quote(v.href)}`;
    const list = isArray(v) || ArrayBuffer.isView(v) && !(v instanceof DataView);
    const proto = getPrototypeOf(v);
    let prefix = proto === null ? "[Object: null prototype] " : name && name !== "Object" ? name + " " : "";
    if (isArray(v)) prefix = name === "Array" ? "" : `${name}(${v.length}) `;
    else if (list) prefix = `${name}(${v.length}) `;
    else if (v instanceof MapC || v instanceof SetC) prefix = `${name}(${v.size}) `;
    else if (tag !== "[object Object]" && tag.slice(8, -1) !== name) prefix = `${name || "Object"} [${tag.slice(8, -1)}] `;
    if (depth < 0) return isArray(v) ? "[Array]" : `[${(prefix.trim() || "Object")}]`;
    const inner = seen.concat([v]);
    const sub = (x) => show(x, depth - 1, inner, indent + 2);
    const items = [];
    let skip = new SetC();
    if (list) {
      const n = Math.min(v.length, 100);
      let holes = 0;
      const gap = () => { if (holes) items.push(`<${holes} empty item${holes > 1 ? "s" : ""}>`); holes = 0; };
      for (let i = 0; i < n; i++) {
        if (!(i in v)) { holes++; continue; }
        gap();
        items.push(sub(v[i]));
      }
      gap();
      if (v.length > n) items.push(`... ${v.length - n} more item${v.length - n > 1 ? "s" : ""}`);
    } else if (v instanceof MapC) {
      for (const [k, x] of MapC.prototype.entries.call(v)) items.push(`${sub(k)} => ${sub(x)}`);
    } else if (v instanceof SetC) {
      for (const x of SetC.prototype.values.call(v)) items.push(sub(x));
    } else if (v instanceof ArrayBuffer) {
      items.push(`byteLength: ${v.byteLength}`);
    }
    for (const k of ownKeys(v)) {
      if (list && typeof k === "string" && /^(0|[1-9][0-9]*)$/.test(k)) continue;
      const d = getOwnPropertyDescriptor(v, k);
      if (!d || !d.enumerable || skip.has(k)) continue;
      const value = d.get ? (d.set ? "[Getter/Setter]" : "[Getter]") : d.set ? "[Setter]" : sub(d.value);
      items.push(`${showKey(k)}: ${value}`);
    }
    return prefix + braces(list ? "[" : "{", list ? "]" : "}", items, indent, prefix.length);
  }
  // As Node breaks lines: 80 columns, less what it keeps in reserve.
  function braces(open, close, items, indent, prefix = 0) {
    if (items.length === 0) return open + close;
    const length = items.reduce((n, s) => n + s.length, 2 * items.length) + indent + prefix + open.length + 10;
    if (length <= 80 && items.every((s) => !s.includes("\n"))) return `${open} ${items.join(", ")} ${close}`;
    const pad = " ".repeat(indent + 2);
    return `${open}\n${pad}${items.join(`,\n${pad}`)}\n${" ".repeat(indent)}${close}`;
  }
  const inspect = (v, o) => show(v, o && typeof o === "object" && "depth" in o ? (o.depth === null ? 1000 : o.depth) : 2, [], 0);

  const format = (args) => {
    if (args.length === 0) return "";
    let out = "", i = 0;
    if (typeof args[0] === "string") {
      i = 1;
      out = args.length === 1 ? args[0] : args[0].replace(/%[sdifjoOc%]/g, (m) => {
        if (m === "%%") return "%";
        if (i >= args.length) return m;
        const v = args[i++];
        switch (m) {
          case "%s": return typeof v === "string" ? v : typeof v === "object" && v !== null ? inspect(v, { depth: 0 }) : typeof v === "bigint" ? v + "n" : Object.is(v, -0) ? "-0" : String(v);
          case "%d": return typeof v === "bigint" ? v + "n" : typeof v === "symbol" ? "NaN" : number(Number(v));
          case "%i": return typeof v === "bigint" ? v + "n" : typeof v === "symbol" ? "NaN" : number(parseInt(v, 10));
          case "%f": return typeof v === "symbol" ? "NaN" : number(parseFloat(v));
          case "%j": return jsonText(v) ?? "undefined";
          case "%c": return "";
          default: return inspect(v, { depth: 4 });
        }
      });
    }
    for (let first = i === 0; i < args.length; i++, first = false) {
      const v = args[i];
      out += (first ? "" : " ") + (typeof v === "string" ? v : inspect(v));
    }
    return out;
  };

  // --- console ----------------------------------------------------------------

  let groups = "";
  const line = (fd, text) => host.write(fd, (groups ? text.split("\n").map((l) => groups + l).join("\n") : text) + "\n");
  const counts = new MapC(), timers = new MapC();
  const table = (rows) => {
    if (typeof rows !== "object" || rows === null) return format([rows]);
    const columns = [], lines = [];
    let plain = false;
    const entries = rows instanceof MapC ? [...rows] : Object.entries(rows);
    for (const [k, row] of entries) {
      const cells = new MapC();
      if (typeof row === "object" && row !== null) {
        for (const [c, v] of Object.entries(row)) { if (!columns.includes(c)) columns.push(c); cells.set(c, inspect(v, { depth: 0 })); }
      } else { plain = true; cells.set(host, inspect(row)); }
      lines.push([String(k), cells]);
    }
    const heads = ["(index)", ...columns, ...(plain ? ["Values"] : [])];
    const body = lines.map(([k, cells]) => [k, ...columns.map((c) => cells.get(c) ?? ""), ...(plain ? [cells.get(host) ?? ""] : [])]);
    const widths = heads.map((h, i) => Math.max(h.length, ...body.map((r) => r[i].length)) + 2);
    const draw = (l, m, r) => l + widths.map((w) => "─".repeat(w)).join(m) + r;
    const row = (cells) => "│" + cells.map((c, i) => " " + c.padEnd(widths[i] - 1)).join("│") + "│";
    return [draw("┌", "┬", "┐"), row(heads), draw("├", "┼", "┤"), ...body.map(row), draw("└", "┴", "┘")].join("\n");
  };
  const took = (label) => `${label}: ${(host.now() - timers.get(label)).toFixed(3)}ms`;
  const console = {
    log: (...a) => line(1, format(a)), info: (...a) => line(1, format(a)), debug: (...a) => line(1, format(a)),
    error: (...a) => line(2, format(a)), warn: (...a) => line(2, format(a)),
    trace: (...a) => line(2, errorText(Object.assign(new ErrorC(format(a)), { name: "Trace" }))),
    assert: (ok, ...a) => { if (!ok) line(2, a.length ? "Assertion failed: " + format(a) : "Assertion failed"); },
    dir: (v, o) => line(1, inspect(v, o)), dirxml: (...a) => line(1, format(a)), table: (v) => line(1, table(v)),
    group: (...a) => { if (a.length) line(1, format(a)); groups += "  "; },
    groupCollapsed: (...a) => { if (a.length) line(1, format(a)); groups += "  "; },
    groupEnd: () => { groups = groups.slice(2); },
    count: (label = "default") => { const n = (counts.get(String(label)) ?? 0) + 1; counts.set(String(label), n); line(1, `${label}: ${n}`); },
    countReset: (label = "default") => { counts.delete(String(label)); },
    time: (label = "default") => { timers.set(String(label), host.now()); },
    timeLog: (label = "default", ...a) => { if (timers.has(String(label))) line(1, format([took(String(label)), ...a])); },
    timeEnd: (label = "default") => { if (timers.has(String(label))) { line(1, took(String(label))); timers.delete(String(label)); } },
    clear: () => {},
  };
  hide("console", console);

  // --- timers -------------------------------------------------------------------

  const due = []; // a heap by time, then by number
  const live = new MapC();
  let nextTimer = 1;
  const before = (a, b) => a.at < b.at || a.at === b.at && a.order < b.order;
  let order = 0;
  const push = (t) => {
    t.order = order++;
    let i = due.length;
    due[i] = t;
    while (i > 0) {
      const up = (i - 1) >> 1;
      if (!before(due[i], due[up])) break;
      [due[i], due[up]] = [due[up], due[i]];
      i = up;
    }
  };
  const pop = () => {
    const top = due[0], last = due.pop();
    if (due.length > 0) {
      due[0] = last;
      for (let i = 0; ;) {
        let least = i;
        for (const child of [2 * i + 1, 2 * i + 2]) if (child < due.length && before(due[child], due[least])) least = child;
        if (least === i) break;
        [due[i], due[least]] = [due[least], due[i]];
        i = least;
      }
    }
    return top;
  };
  class Timeout {
    #id;
    constructor(id) { this.#id = id; }
    ref() { return this; }
    unref() { const t = live.get(this.#id); if (t && !t.loose) { t.loose = true; held--; } return this; }
    hasRef() { const t = live.get(this.#id); return !!t && !t.loose; }
    refresh() { return this; }
    close() { stop(this.#id); return this; }
    [Symbol.toPrimitive]() { return this.#id; }
  }
  let held = 0;
  const start = (fn, ms, repeat, args) => {
    if (typeof fn !== "function") throw new TypeErrorC("The callback of a timer must be a function");
    ms = Number(ms);
    if (!(ms >= 1)) ms = repeat ? 1 : ms >= 0 || Number.isNaN(ms) ? 0 : 0;
    if (ms > 2147483647) ms = 1;
    const t = { id: nextTimer++, fn, args, at: host.now() + ms, every: repeat ? ms : -1, loose: false };
    live.set(t.id, t);
    held++;
    push(t);
    return new Timeout(t.id);
  };
  const stop = (id) => {
    const t = live.get(Number(id));
    if (!t) return;
    live.delete(t.id);
    if (!t.loose) held--;
  };
  const setTimeout = (fn, ms, ...args) => start(fn, ms, false, args);
  const clear = (id) => { if (id !== undefined && id !== null) stop(id); };
  hide("setTimeout", setTimeout);
  hide("setInterval", (fn, ms, ...args) => start(fn, ms, true, args));
  hide("setImmediate", (fn, ...args) => start(fn, 0, false, args));
  hide("clearTimeout", clear);
  hide("clearInterval", clear);
  hide("clearImmediate", clear);
  const resolved = PromiseC.resolve();
  const then = uncurry(PromiseC.prototype.then);
  if (typeof G.queueMicrotask !== "function") hide("queueMicrotask", (fn) => { if (typeof fn !== "function") throw new TypeErrorC("queueMicrotask needs a function"); then(resolved, () => fn()); });

  // turn runs the timer that is due, if one is, and tells how many
  // milliseconds there are until the next; -1 if nothing is waited for.
  const turn = () => {
    for (;;) {
      while (due.length > 0 && live.get(due[0].id) !== due[0]) pop();
      if (due.length === 0 || held === 0) return -1;
      const wait = due[0].at - host.now();
      if (wait > 0) return wait;
      const t = pop();
      if (t.every >= 0) { t.at = Math.max(t.at + t.every, host.now()); push(t); } else stop(t.id);
      try { t.fn(...t.args); } catch (e) { broke(e); }
      return 0;
    }
  };

  // --- texts and bytes -----------------------------------------------------------

  const bytesOf = (v) => v instanceof ArrayBuffer ? new U8(v) : ArrayBuffer.isView(v) ? new U8(v.buffer, v.byteOffset, v.byteLength) : null;
  const encode = (s) => {
    const out = [];
    for (let i = 0; i < s.length; i++) {
      let c = s.charCodeAt(i);
      if (c >= 0xd800 && c < 0xdc00 && i + 1 < s.length) {
        const d = s.charCodeAt(i + 1);
        if (d >= 0xdc00 && d < 0xe000) { c = 0x10000 + ((c - 0xd800) << 10) + (d - 0xdc00); i++; }
      }
      if (c >= 0xd800 && c < 0xe000) c = 0xfffd;
      if (c < 0x80) out.push(c);
      else if (c < 0x800) out.push(0xc0 | c >> 6, 0x80 | c & 63);
      else if (c < 0x10000) out.push(0xe0 | c >> 12, 0x80 | c >> 6 & 63, 0x80 | c & 63);
      else out.push(0xf0 | c >> 18, 0x80 | c >> 12 & 63, 0x80 | c >> 6 & 63, 0x80 | c & 63);
    }
    return new U8(out);
  };
  const decode = (b, fatal) => {
    let out = "", part = [];
    const bad = () => { if (fatal) throw new TypeErrorC("The encoded data was not valid for encoding utf-8"); part.push(0xfffd); };
    for (let i = 0; i < b.length;) {
      const c = b[i];
      let need = 0, low = 0x80, high = 0xbf, v = c;
      if (c >= 0x80) {
        if (c >= 0xc2 && c <= 0xdf) { need = 1; v = c & 31; }
        else if (c >= 0xe0 && c <= 0xef) { need = 2; v = c & 15; if (c === 0xe0) low = 0xa0; if (c === 0xed) high = 0x9f; }
        else if (c >= 0xf0 && c <= 0xf4) { need = 3; v = c & 7; if (c === 0xf0) low = 0x90; if (c === 0xf4) high = 0x8f; }
        else { bad(); i++; continue; }
      }
      i++;
      let good = true;
      for (; need > 0; need--) {
        if (i >= b.length || b[i] < low || b[i] > high) { good = false; break; }
        v = v << 6 | b[i++] & 63;
        low = 0x80; high = 0xbf;
      }
      if (good) part.push(v); else bad();
      if (part.length > 4096) { out += String.fromCodePoint(...part); part = []; }
    }
    return out + String.fromCodePoint(...part);
  };
  class TextEncoder {
    get encoding() { return "utf-8"; }
    encode(s = "") { return encode(String(s)); }
    encodeInto(s, into) {
      let read = 0, written = 0;
      for (const c of String(s)) {
        const b = encode(c);
        if (written + b.length > into.length) break;
        into.set(b, written);
        written += b.length;
        read += c.length;
      }
      return { read, written };
    }
  }
  class TextDecoder {
    #fatal; #keep; #rest = new U8(0);
    constructor(label = "utf-8", o = {}) {
      if (!/^\s*(utf-?8|unicode-1-1-utf-8)\s*$/i.test(label)) throw new RangeError(`The encoding label provided ('${label}') is invalid.`);
      this.#fatal = !!o.fatal;
      this.#keep = !!o.ignoreBOM;
    }
    get encoding() { return "utf-8"; }
    get fatal() { return this.#fatal; }
    get ignoreBOM() { return this.#keep; }
    decode(data = new U8(0), o = {}) {
      let b = bytesOf(data);
      if (!b) throw new TypeErrorC("decode needs a buffer");
      if (this.#rest.length) { const all = new U8(this.#rest.length + b.length); all.set(this.#rest); all.set(b, this.#rest.length); b = all; }
      this.#rest = new U8(0);
      if (o.stream) {
        let end = b.length;
        for (let back = 1; back <= 3 && back <= b.length; back++) {
          const c = b[b.length - back];
          if (c >= 0xc0) { const n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2; if (n > back) end = b.length - back; break; }
          if (c < 0x80) break;
        }
        this.#rest = b.slice(end);
        b = b.subarray(0, end);
      }
      if (!this.#keep && b.length >= 3 && b[0] === 0xef && b[1] === 0xbb && b[2] === 0xbf) b = b.subarray(3);
      return decode(b, this.#fatal);
    }
  }
  hide("TextEncoder", TextEncoder);
  hide("TextDecoder", TextDecoder);

  const b64 = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  class DOMException extends ErrorC {
    #name;
    constructor(message = "", name = "Error") { super(message); this.#name = typeof name === "string" ? name : "Error"; }
    get name() { return this.#name; }
    get code() { return { DataCloneError: 25, AbortError: 20, TimeoutError: 23, InvalidCharacterError: 5 }[this.#name] ?? 0; }
  }
  hide("DOMException", DOMException);
  hide("btoa", (v) => {
    const s = String(v);
    let out = "";
    for (let i = 0; i < s.length; i += 3) {
      const [a, b, c] = [s.charCodeAt(i), s.charCodeAt(i + 1), s.charCodeAt(i + 2)];
      if (a > 255 || b > 255 || c > 255) throw new DOMException("The string contains characters outside of Latin1", "InvalidCharacterError");
      const n = a << 16 | (b || 0) << 8 | (c || 0);
      out += b64[n >> 18] + b64[n >> 12 & 63] + (i + 1 < s.length ? b64[n >> 6 & 63] : "=") + (i + 2 < s.length ? b64[n & 63] : "=");
    }
    return out;
  });
  hide("atob", (v) => {
    let s = String(v).replace(/[\t\n\f\r ]/g, "");
    if (s.length % 4 === 0) s = s.replace(/==?$/, "");
    if (s.length % 4 === 1 || /[^A-Za-z0-9+/]/.test(s)) throw new DOMException("The string to be decoded is not correctly encoded.", "InvalidCharacterError");
    let out = "", acc = 0, bits = 0;
    for (const c of s) {
      acc = (acc << 6 | b64.indexOf(c)) & 0xffffff;
      bits += 6;
      if (bits >= 8) { bits -= 8; out += String.fromCharCode(acc >> bits & 255); }
    }
    return out;
  });

  const clone = (v, seen) => {
    if (typeof v === "symbol" || typeof v === "function") throw new DOMException(`${typeof v === "symbol" ? String(v) : v.name || "function"} could not be cloned.`, "DataCloneError");
    if (typeof v !== "object" || v === null) return v;
    if (seen.has(v)) return seen.get(v);
    const keep = (c) => { seen.set(v, c); return c; };
    if (v instanceof Date) return keep(new Date(v.getTime()));
    if (v instanceof RegExp) return keep(new RegExp(v.source, v.flags));
    if (v instanceof Number || v instanceof String || v instanceof Boolean) return keep(Object(v.valueOf()));
    if (v instanceof ArrayBuffer) return keep(v.slice(0));
    if (v instanceof DataView) return keep(new DataView(clone(v.buffer, seen), v.byteOffset, v.byteLength));
    if (ArrayBuffer.isView(v)) return keep(new v.constructor(clone(v.buffer, seen), v.byteOffset, v.length));
    if (v instanceof MapC) { const c = keep(new MapC()); for (const [k, x] of [...v]) c.set(clone(k, seen), clone(x, seen)); return c; }
    if (v instanceof SetC) { const c = keep(new SetC()); for (const x of [...v]) c.add(clone(x, seen)); return c; }
    if (v instanceof ErrorC) {
      const C = { EvalError, RangeError, ReferenceError, SyntaxError, TypeError, URIError }[v.name] ?? ErrorC;
      const c = keep(new C(v.message));
      for (const k of ["stack", "cause"]) if (Object.hasOwn(v, k)) defineProperty(c, k, { value: clone(v[k], seen), writable: true, configurable: true, enumerable: false });
      return c;
    }
    if (v instanceof PromiseC || v instanceof WeakMap || v instanceof WeakSet || v instanceof WeakRef) throw new DOMException(`${toStr(v)} could not be cloned.`, "DataCloneError");
    const c = keep(isArray(v) ? new Array(v.length) : {});
    for (const k of Object.keys(v)) c[k] = clone(v[k], seen);
    return c;
  };
  hide("structuredClone", function structuredClone(v) {
    if (arguments.length === 0) throw new TypeErrorC("structuredClone needs a value");
    return clone(v, new MapC());
  });

  // --- events, random numbers, time ---------------------------------------------

  class Event {
    constructor(type, o = {}) { this.type = String(type); this.cancelable = !!o.cancelable; this.defaultPrevented = false; this.target = null; this.timeStamp = host.now(); }
    preventDefault() { if (this.cancelable) this.defaultPrevented = true; }
    stopImmediatePropagation() { this.stopped = true; }
    stopPropagation() {}
  }
  class CustomEvent extends Event { constructor(type, o = {}) { super(type, o); this.detail = o.detail ?? null; } }
  class EventTarget {
    #on = new MapC();
    addEventListener(type, fn, o) {
      const list = this.#on.get(type) ?? [];
      if (fn && !list.some((l) => l.fn === fn)) list.push({ fn, once: typeof o === "object" && !!o?.once });
      this.#on.set(type, list);
    }
    removeEventListener(type, fn) { this.#on.set(type, (this.#on.get(type) ?? []).filter((l) => l.fn !== fn)); }
    dispatchEvent(e) {
      e.target = this;
      for (const l of [...(this.#on.get(e.type) ?? [])]) {
        if (l.once) this.removeEventListener(e.type, l.fn);
        typeof l.fn === "function" ? l.fn.call(this, e) : l.fn.handleEvent(e);
        if (e.stopped) break;
      }
      return !e.defaultPrevented;
    }
  }
  class AbortSignal extends EventTarget {
    aborted = false; reason = undefined; onabort = null;
    throwIfAborted() { if (this.aborted) throw this.reason; }
    static abort(reason) { const c = new AbortController(); c.abort(reason); return c.signal; }
    static timeout(ms) { const c = new AbortController(); setTimeout(() => c.abort(new DOMException("Signal timed out.", "TimeoutError")), ms).unref(); return c.signal; }
    static any(list) { const c = new AbortController(); for (const s of list) { if (s.aborted) { c.abort(s.reason); break; } s.addEventListener("abort", () => c.abort(s.reason)); } return c.signal; }
  }
  class AbortController {
    signal = new AbortSignal();
    abort(reason = new DOMException("The signal has been aborted", "AbortError")) {
      if (this.signal.aborted) return;
      this.signal.aborted = true;
      this.signal.reason = reason;
      const e = new Event("abort");
      if (typeof this.signal.onabort === "function") this.signal.onabort(e);
      this.signal.dispatchEvent(e);
    }
  }
  for (const [name, C] of Object.entries({ Event, CustomEvent, EventTarget, AbortSignal, AbortController })) hide(name, C);
  const began = host.now(), origin = Date.now();
  hide("performance", { now: () => host.now() - began, timeOrigin: origin, mark() {}, measure() {}, toJSON() { return { timeOrigin: origin }; } });
  const randomBytes = (n) => { const s = host.random(n), b = new U8(n); for (let i = 0; i < n; i++) b[i] = s.charCodeAt(i); return b; };
  hide("crypto", {
    getRandomValues(view) {
      const b = bytesOf(view);
      if (!b || b.length > 65536) throw new DOMException("getRandomValues takes an integer array of at most 65536 bytes", "QuotaExceededError");
      b.set(randomBytes(b.length));
      return view;
    },
    randomUUID() {
      const b = randomBytes(16);
      b[6] = b[6] & 15 | 64;
      b[8] = b[8] & 63 | 128;
      const h = [...b].map((x) => x.toString(16).padStart(2, "0")).join("");
      return `${h.slice(0, 8)}-${h.slice(8, 12)}-${h.slice(12, 16)}-${h.slice(16, 20)}-${h.slice(20)}`;
    },
  });
//URL//
  // --- files, Deno, process ---------------------------------------------------------

  class NotFound extends ErrorC { get name() { return "NotFound"; } }
  class PermissionDenied extends ErrorC { get name() { return "PermissionDenied"; } }
  class NotCapable extends ErrorC { get name() { return "NotCapable"; } }
  const pathOf = (p) => {
    if (p instanceof URLC) p = p.protocol === "file:" ? decodeURIComponent(p.pathname) : "/" + p.href;
    if (typeof p !== "string") throw new TypeErrorC("A path must be a string or a file: URL");
    return p;
  };
  // read gives a file's bytes as a binary string; its failures are told in the
  // words of who asks.
  const read = (p, refused) => {
    const name = pathOf(p);
    const got = host.read(name);
    if (got[0] !== "") throw refused(got[0], name);
    return got[1];
  };
  const latin = (s) => { const b = new U8(s.length); for (let i = 0; i < s.length; i++) b[i] = s.charCodeAt(i); return b; };
  const denoError = (code, name) => code === "ENOENT" ? new NotFound(`No such file or directory (os error 2): readfile '${name}'`)
    : code === "EISDIR" ? new ErrorC(`Is a directory (os error 21): readfile '${name}'`)
    : new NotCapable(`Requires read access to "${name}"`);
  const nodeError = (code, name) => Object.assign(new ErrorC(`${code}: ${{ ENOENT: "no such file or directory", EISDIR: "illegal operation on a directory", EACCES: "permission denied" }[code] ?? "it failed"}, open '${name}'`),
    { code, syscall: "open", path: name, errno: { ENOENT: -2, EISDIR: -21, EACCES: -13 }[code] ?? -5 });
  const later = (fn) => new PromiseC((ok) => ok(fn()));
  const denied = (what) => () => { throw new NotCapable(`Requires ${what} access, which programs here do not have`); };

  let state = "running", fault;
  const broke = (e) => { if (state !== "broken") { state = "broken"; fault = e; } };
  let job = { env: {}, args: [], file: false, name: "" };
  const text = (s) => decode(latin(s));
  const Deno = {
    args: [], version: { deno: "2.0.0", v8: "0.0.0", typescript: "5.9.0" }, build: { os: "linux", arch: "x86_64", target: "x86_64-unknown-linux-gnu" }, pid: 1, noColor: true,
    errors: { NotFound, PermissionDenied, NotCapable },
    env: {
      get: (k) => Object.hasOwn(job.env, k) ? job.env[k] : undefined,
      has: (k) => Object.hasOwn(job.env, k),
      toObject: () => ({ ...job.env }),
      set: (k, v) => { job.env[String(k)] = String(v); },
      delete: (k) => { delete job.env[k]; },
    },
    exit: (code) => host.exit(code === undefined ? exitCode() : code | 0),
    cwd: () => "/workspace",
    readTextFile: (p) => later(() => text(read(p, denoError))), readTextFileSync: (p) => text(read(p, denoError)),
    readFile: (p) => later(() => latin(read(p, denoError))), readFileSync: (p) => latin(read(p, denoError)),
    inspect,
    writeTextFile: async () => denied("write")(), writeTextFileSync: denied("write"), writeFile: async () => denied("write")(), writeFileSync: denied("write"),
    remove: async () => denied("write")(), removeSync: denied("write"), mkdir: async () => denied("write")(), mkdirSync: denied("write"),
    connect: async () => denied("net")(), listen: denied("net"), serve: denied("net"), resolveDns: async () => denied("net")(),
    Command: class { constructor() { denied("run")(); } }, run: denied("run"),
    stdout: { writeSync: (b) => (host.write(1, decode(b)), b.length), write: async (b) => (host.write(1, decode(b)), b.length), isTerminal: () => false },
    stderr: { writeSync: (b) => (host.write(2, decode(b)), b.length), write: async (b) => (host.write(2, decode(b)), b.length), isTerminal: () => false },
  };
  hide("Deno", Deno);

  const exitCode = () => process.exitCode === undefined ? 0 : Number(process.exitCode) | 0;
  const stream = (fd) => ({ write: (s, ...rest) => { host.write(fd, typeof s === "string" ? s : decode(s)); const cb = rest.at(-1); if (typeof cb === "function") then(resolved, () => cb()); return true; }, isTTY: false, fd });
  const process = {
    env: {}, argv: [], argv0: "umbra", execPath: "umbra", execArgv: [], exitCode: undefined, pid: 1, ppid: 0, platform: "linux", arch: "x64", title: "umbra",
    version: "v20.0.0", versions: { node: "20.0.0" },
    exit: (code) => host.exit(code === undefined ? exitCode() : code | 0),
    cwd: () => "/workspace", nextTick: (fn, ...a) => { then(resolved, () => fn(...a)); },
    uptime: () => (host.now() - began) / 1000, memoryUsage: () => ({ rss: 0, heapTotal: 0, heapUsed: 0, external: 0, arrayBuffers: 0 }),
    hrtime: Object.assign((since) => { const t = host.now(); let s = Math.floor(t / 1000), n = Math.floor(t % 1000 * 1e6); if (since) { s -= since[0]; n -= since[1]; if (n < 0) { s--; n += 1e9; } } return [s, n]; }, { bigint: () => BigInt(Math.floor(host.now() * 1e6)) }),
    stdout: stream(1), stderr: stream(2), emitWarning: (w) => { line(2, `Warning: ${w?.message ?? w}`); },
    on() { return process; }, once() { return process; }, off() { return process; }, removeListener() { return process; }, emit() { return false; }, listenerCount() { return 0; },
  };
  hide("process", process);
  hide("global", G);
  const withEncoding = (s, o) => { const e = typeof o === "string" ? o : o?.encoding; return e && e !== "buffer" ? text(s) : latin(s); };
  const promises = {
    readFile: (p, o) => later(() => withEncoding(read(p, nodeError), o)),
    access: (p) => later(() => { read(p, nodeError); }),
  };
  for (const name of ["writeFile", "appendFile", "unlink", "rm", "rmdir", "mkdir", "rename", "copyFile", "symlink", "link", "chmod", "truncate"])
    promises[name] = (p) => later(() => { throw nodeError("EACCES", String(p)); });
  const fs = { promises, readFileSync: (p, o) => withEncoding(read(p, nodeError), o), existsSync: (p) => { try { read(p, nodeError); return true; } catch (e) { return e.code === "EISDIR"; } } };
  for (const name of Object.keys(promises)) if (!(name + "Sync" in fs) && name !== "readFile" && name !== "access") fs[name + "Sync"] = (p) => { throw nodeError("EACCES", String(p)); };
  const builtins = { "fs/promises": promises, fs, process, "timers/promises": { setTimeout: (ms, v) => new PromiseC((ok) => setTimeout(() => ok(v), ms)), setImmediate: (v) => new PromiseC((ok) => setTimeout(() => ok(v), 0)) },
    util: { inspect, format: (...a) => format(a), promisify: (f) => (...a) => new PromiseC((ok, no) => f(...a, (e, v) => e ? no(e) : ok(v))), TextEncoder, TextDecoder, isDeepStrictEqual: (a, b) => inspect(a, { depth: null }) === inspect(b, { depth: null }) },
    url: { URL: G.URL, URLSearchParams: G.URLSearchParams, fileURLToPath: (u) => pathOf(new URLC(u)), pathToFileURL: (p) => new URLC("file://" + p) } };
  const normal = (p, abs) => { const out = []; for (const s of p.split("/")) { if (s === "" || s === ".") continue; if (s === ".." && out.length && out.at(-1) !== "..") out.pop(); else if (s !== ".." || !abs) out.push(s); } return out.join("/"); };
  const path = {
    sep: "/", delimiter: ":", isAbsolute: (p) => p.startsWith("/"),
    normalize: (p) => { const abs = p.startsWith("/"), tail = p.endsWith("/"); const n = normal(p, abs); return (abs ? "/" : "") + (n || (abs ? "" : ".")) + (tail && n ? "/" : ""); },
    join: (...parts) => { const s = parts.filter((x) => x !== "").join("/"); return s ? path.normalize(s) : "."; },
    resolve: (...parts) => { let s = ""; for (const p of ["/workspace", ...parts]) s = p.startsWith("/") ? p : p === "" ? s : s + "/" + p; return "/" + normal(s, true); },
    basename: (p, ext = "") => { const b = p.replace(/\/+$/, "").split("/").at(-1); return ext && b !== ext && b.endsWith(ext) ? b.slice(0, -ext.length) : b; },
    dirname: (p) => { const d = p.replace(/\/+$/, ""); const i = d.lastIndexOf("/"); return i < 0 ? "." : i === 0 ? "/" : d.slice(0, i); },
    extname: (p) => { const b = path.basename(p); const i = b.lastIndexOf("."); return i <= 0 ? "" : b.slice(i); },
    relative: (a, b) => { const x = path.resolve(a).split("/"), y = path.resolve(b).split("/"); let i = 0; while (i < x.length && i < y.length && x[i] === y[i]) i++; return [...x.slice(i).map(() => ".."), ...y.slice(i)].filter(Boolean).join("/"); },
    parse: (p) => { const base = path.basename(p), ext = path.extname(p), dir = path.dirname(p); return { root: p.startsWith("/") ? "/" : "", dir: dir === "." && !p.startsWith("./") ? "" : dir, base, ext, name: ext ? base.slice(0, -ext.length) : base }; },
    format: (o) => (o.dir ? o.dir + "/" : o.root ?? "") + (o.base ?? (o.name ?? "") + (o.ext ?? "")),
  };
  path.posix = path;
  builtins.path = path;

  // --- what the host calls ------------------------------------------------------------

  process.getBuiltinModule = (name) => builtins[String(name).replace(/^node:/, "")];
  return {
    turn,
    modules: () => jsonText(Object.fromEntries(Object.keys(builtins).map((k) => [k, Object.keys(builtins[k])]))),
    // run starts the program; state tells how it stands.
    run(specifier) { then(import(specifier), () => { if (state === "running") state = "done"; }, broke); },
    state: () => state,
    // rejected takes the reason of a promise that nobody caught, which the
    // engine left on the global object.
    rejected(key) { const e = G[key]; delete G[key]; broke(e); },
    begin(raw) {
      job = JSON.parse(raw);
      Deno.args = job.args;
      Deno.mainModule = "file:///workspace/" + job.name;
      process.env = job.env;
      process.argv = ["umbra", "/workspace/" + job.name, ...job.args];
      if (job.file) {
        hide("file", Object.freeze({
          save(name, content) {
            if (typeof name !== "string") throw new ErrorC("filename must be a string");
            let data;
            if (typeof content === "string") data = content;
            else if (bytesOf(content)) { const b = bytesOf(content); data = null; content = b; }
            else throw new ErrorC("content must be a string");
            const binary = data === null;
            if (binary) { let s = ""; for (let i = 0; i < content.length; i += 4096) s += String.fromCharCode(...content.subarray(i, i + 4096)); data = s; }
            const [fault, at] = host.save(name, data, binary);
            if (fault !== "") throw new ErrorC(fault);
            return at;
          },
        }));
      }
    },
    exitCode,
    // failure tells the uncaught value in words.
    failure() {
      const e = fault;
      let kind = "";
      try { if (e instanceof ErrorC && e.name === "InternalError" && e.message === "out of memory") kind = "memory"; } catch { /* hostile */ }
      let told;
      try { told = e instanceof ErrorC || e !== null && typeof e === "object" && toStr(e) === "[object Error]" ? show(e, 2, [], 0) : inspect(e); } catch { told = "a value that cannot be shown"; }
      return [kind, told];
    },
  };
})()
