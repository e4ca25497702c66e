  // --- URL (https://url.spec.whatwg.org), without IDNA -----------------------------

  const ports = { "http:": "80", "https:": "443", "ws:": "80", "wss:": "443", "ftp:": "21", "file:": "" };
  const special = (scheme) => Object.hasOwn(ports, scheme);
  const percent = (s, set) => {
    let out = "";
    for (const c of s) {
      if (c > "~" || c < " " || set.includes(c)) { for (const b of encode(c)) out += "%" + b.toString(16).toUpperCase().padStart(2, "0"); } else out += c;
    }
    return out;
  };
  const inPath = " \"#<>?`{}^", inQuery = " \"#<>", inFragment = " \"<>`", inUser = inPath + "/:;=@[\\]|";
  const unpercent = (s) => {
    if (!s.includes("%")) return s;
    const raw = encode(s), out = [];
    for (let i = 0; i < raw.length; i++) {
      const h = raw[i] === 37 ? String.fromCharCode(raw[i + 1] ?? 0, raw[i + 2] ?? 0) : "";
      if (/^[0-9a-fA-F]{2}$/.test(h)) { out.push(parseInt(h, 16)); i += 2; } else out.push(raw[i]);
    }
    return decode(new U8(out));
  };
  const ipv4 = (host) => {
    const parts = host.split(".");
    if (parts.at(-1) === "" && parts.length > 1) parts.pop();
    if (!/^(0[xX][0-9a-fA-F]*|[0-9]+)$/.test(parts.at(-1))) return host;
    if (parts.length > 4) return null;
    const nums = [];
    for (const p of parts) {
      const n = /^0[xX][0-9a-fA-F]*$/.test(p) ? (p.length === 2 ? 0 : parseInt(p.slice(2), 16)) : /^0[0-7]*$/.test(p) ? parseInt(p, 8) : /^[0-9]+$/.test(p) ? Number(p) : NaN;
      if (Number.isNaN(n)) return null;
      nums.push(n);
    }
    const last = nums.pop();
    if (nums.some((n) => n > 255) || last >= 256 ** (4 - nums.length)) return null;
    let v = last;
    nums.forEach((n, i) => { v += n * 256 ** (3 - i); });
    return [v >>> 24, Math.floor(v / 65536) & 255, Math.floor(v / 256) & 255, v & 255].map((x) => x % 256).join(".");
  };
  const ipv6 = (text) => {
    let head = text, tail = null;
    const at = text.indexOf("::");
    if (at >= 0) { head = text.slice(0, at); tail = text.slice(at + 2); if (tail.includes("::")) return null; }
    const words = (s) => {
      if (s === "") return [];
      const out = [];
      const list = s.split(":");
      for (let i = 0; i < list.length; i++) {
        if (i === list.length - 1 && list[i].includes(".")) {
          const m = /^(\d{1,3})\.(\d{1,3})\.(\d{1,3})\.(\d{1,3})$/.exec(list[i]);
          if (!m || m.slice(1).some((x) => x > 255)) return null;
          out.push(m[1] * 256 + +m[2], m[3] * 256 + +m[4]);
        } else if (/^[0-9a-fA-F]{1,4}$/.test(list[i])) out.push(parseInt(list[i], 16));
        else return null;
      }
      return out;
    };
    const a = words(head), b = tail === null ? [] : words(tail);
    if (!a || !b || (tail === null ? a.length !== 8 : a.length + b.length > 7)) return null;
    const all = tail === null ? a : [...a, ...new Array(8 - a.length - b.length).fill(0), ...b];
    let best = -1, len = 1;
    for (let i = 0; i < 8; i++) { let j = i; while (j < 8 && all[j] === 0) j++; if (j - i > len) { best = i; len = j - i; } }
    const hex = all.map((n) => n.toString(16));
    return best < 0 ? `[${hex.join(":")}]` : `[${hex.slice(0, best).join(":")}::${hex.slice(best + len).join(":")}]`;
  };
  const parseHost = (text, isSpecial) => {
    if (text.startsWith("[")) return text.endsWith("]") ? ipv6(text.slice(1, -1)) : null;
    if (!isSpecial) return /[\0\t\n\r #\/:<>?@[\\\]^|]/.test(text) ? null : percent(text, "");
    const h = unpercent(text).toLowerCase();
    if (h === "" || /[\0-\x20#%\/:<>?@[\\\]^|\x7f]/.test(h)) return null;
    return ipv4(h);
  };
  const segments = (text, base, isSpecial, scheme) => {
    const out = [...base];
    const parts = (isSpecial ? text.replace(/\\/g, "/") : text).split("/");
    parts.forEach((raw, i) => {
      const last = i === parts.length - 1, s = percent(raw, inPath), low = s.toLowerCase().replace(/%2e/g, ".");
      if (low === "..") { if (!(scheme === "file:" && out.length === 1 && /^[A-Za-z]:$/.test(out[0]))) out.pop(); if (last) out.push(""); }
      else if (low === ".") { if (last) out.push(""); }
      else out.push(s);
    });
    return out;
  };
  const parseURL = (input, base) => {
    let s = input.replace(/^[\0-\x20]+|[\0-\x20]+$/g, "").replace(/[\t\n\r]/g, "");
    const u = { protocol: "", username: "", password: "", host: null, port: "", path: [], opaque: null, query: null, fragment: null };
    const hash = s.indexOf("#");
    if (hash >= 0) { u.fragment = percent(s.slice(hash + 1), inFragment); s = s.slice(0, hash); }
    const m = /^([A-Za-z][A-Za-z0-9+.-]*):/.exec(s);
    let rest = s, relative = false;
    if (m) {
      u.protocol = m[1].toLowerCase() + ":";
      rest = s.slice(m[0].length);
      if (base && special(u.protocol) && base.protocol === u.protocol && u.protocol !== "file:" && !/^[\/\\]/.test(rest)) relative = true;
      if (base && u.protocol === "file:" && base.protocol === "file:" && !/^[\/\\]/.test(rest)) relative = true;
    } else {
      if (!base) return null;
      if (base.opaque !== null && s !== "") return null;
      u.protocol = base.protocol;
      relative = true;
    }
    const isSpecial = special(u.protocol);
    const q = rest.indexOf("?");
    if (q >= 0) { u.query = percent(rest.slice(q + 1), isSpecial ? inQuery + "'" : inQuery); rest = rest.slice(0, q); }
    if (isSpecial) rest = rest.replace(/\\/g, "/");
    if (relative && !rest.startsWith("//")) {
      Object.assign(u, { username: base.username, password: base.password, host: base.host, port: base.port, opaque: base.opaque });
      if (rest === "") { u.path = [...base.path]; if (u.query === null) u.query = base.query; }
      else if (rest.startsWith("/")) u.path = segments(rest.slice(1), [], isSpecial, u.protocol);
      else u.path = segments(rest, base.path.slice(0, -1), isSpecial, u.protocol);
      return u;
    }
    let authority = null;
    if (isSpecial && u.protocol !== "file:") { rest = rest.replace(/^\/*/, ""); authority = rest.split("/", 1)[0]; rest = rest.slice(authority.length); }
    else if (rest.startsWith("//")) { rest = rest.slice(2); authority = rest.split("/", 1)[0]; rest = rest.slice(authority.length); }
    else if (u.protocol === "file:") { authority = ""; }
    if (authority === null) {
      if (!rest.startsWith("/")) { u.opaque = percent(rest, "").replace(/ +$/, (x) => x.slice(0, -1) + "%20"); return u; }
      u.path = segments(rest.slice(1), [], false, u.protocol);
      return u;
    }
    const at = authority.lastIndexOf("@");
    if (at >= 0) {
      const user = authority.slice(0, at), colon = user.indexOf(":");
      u.username = percent(colon < 0 ? user : user.slice(0, colon), inUser);
      u.password = colon < 0 ? "" : percent(user.slice(colon + 1), inUser);
      authority = authority.slice(at + 1);
      if (authority === "") return null;
    }
    const p = /:([^:\]]*)$/.exec(authority);
    if (p && u.protocol !== "file:") {
      if (!/^[0-9]*$/.test(p[1]) || Number(p[1]) > 65535) return null;
      u.port = p[1] === "" ? "" : String(Number(p[1]));
      if (u.port === ports[u.protocol]) u.port = "";
      authority = authority.slice(0, p.index);
    }
    if (authority === "") { if (isSpecial && u.protocol !== "file:") return null; u.host = ""; }
    else if ((u.host = parseHost(authority, isSpecial)) === null) return null;
    if (u.protocol === "file:" && u.host === "localhost") u.host = "";
    u.path = rest === "" ? (isSpecial ? [""] : []) : segments(rest.slice(1), [], isSpecial, u.protocol);
    if (isSpecial && u.path.length === 0) u.path = [""];
    return u;
  };
  const formCodes = (s) => { let out = ""; for (const b of encode(s)) out += b === 32 ? "+" : /[A-Za-z0-9*._-]/.test(String.fromCharCode(b)) ? String.fromCharCode(b) : "%" + b.toString(16).toUpperCase().padStart(2, "0"); return out; };
  const usv = (v) => String(v).toWellFormed?.() ?? String(v);
  let told = null; // tells a URL that its parameters have changed
  class URLSearchParams {
    #list = []; #changed = null;
    constructor(init = "") {
      if (told) { this.#changed = told; told = null; }
      if (typeof init === "object" && init !== null) {
        if (typeof init[Symbol.iterator] === "function") for (const pair of init) { const [k, v, ...more] = [...pair]; if (v === undefined || more.length) throw new TypeErrorC("Each query pair must be an iterable [name, value] tuple"); this.#list.push([usv(k), usv(v)]); }
        else for (const k of ownKeys(init)) this.#list.push([usv(k), usv(init[k])]);
      } else {
        for (const part of usv(init).replace(/^\?/, "").split("&")) {
          if (part === "") continue;
          const i = part.indexOf("=");
          const word = (s) => unpercent(s.replace(/\+/g, " "));
          this.#list.push(i < 0 ? [word(part), ""] : [word(part.slice(0, i)), word(part.slice(i + 1))]);
        }
      }
    }
    #touch() { if (this.#changed) this.#changed(this.toString()); }
    get size() { return this.#list.length; }
    append(k, v) { this.#list.push([usv(k), usv(v)]); this.#touch(); }
    delete(k, v) { this.#list = this.#list.filter((p) => !(p[0] === String(k) && (v === undefined || p[1] === String(v)))); this.#touch(); }
    get(k) { return this.#list.find((p) => p[0] === String(k))?.[1] ?? null; }
    getAll(k) { return this.#list.filter((p) => p[0] === String(k)).map((p) => p[1]); }
    has(k, v) { return this.#list.some((p) => p[0] === String(k) && (v === undefined || p[1] === String(v))); }
    set(k, v) {
      const i = this.#list.findIndex((p) => p[0] === String(k));
      if (i < 0) this.#list.push([usv(k), usv(v)]);
      else { this.#list[i][1] = usv(v); this.#list = this.#list.filter((p, j) => j <= i || p[0] !== String(k)); }
      this.#touch();
    }
    sort() { this.#list.sort((a, b) => a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : 0); this.#touch(); }
    forEach(fn, self) { for (const [k, v] of this.#list) fn.call(self, v, k, this); }
    *entries() { for (const p of this.#list) yield [...p]; }
    *keys() { for (const p of this.#list) yield p[0]; }
    *values() { for (const p of this.#list) yield p[1]; }
    [Symbol.iterator]() { return this.entries(); }
    toString() { return this.#list.map(([k, v]) => formCodes(k) + "=" + formCodes(v)).join("&"); }
    get [Symbol.toStringTag]() { return "URLSearchParams"; }
    [custom]() { const items = this.#list.map(([k, v]) => `${quote(k)} => ${quote(v)}`); return `URLSearchParams ${braces("{", "}", items, 0)}`; }
  }
  class URLC {
    #u; #params;
    constructor(input, base) {
      const b = base === undefined ? null : parseURL(usv(base), null);
      const u = base !== undefined && !b ? null : parseURL(usv(input), b);
      if (!u) throw Object.assign(new TypeErrorC("Invalid URL"), { code: "ERR_INVALID_URL", input: String(input) });
      this.#u = u;
      this.#fresh();
    }
    #fresh() { told = (s) => { this.#u.query = s === "" ? null : s; }; this.#params = new URLSearchParams(this.#u.query ?? ""); }
    static canParse(input, base) { try { new URLC(input, base); return true; } catch { return false; } }
    static parse(input, base) { try { return new URLC(input, base); } catch { return null; } }
    get href() {
      const u = this.#u;
      let s = u.protocol;
      if (u.host !== null) { s += "//"; if (u.username || u.password) s += u.username + (u.password ? ":" + u.password : "") + "@"; s += this.host; }
      else if (u.opaque === null && u.path.length > 1 && u.path[0] === "") s += "/.";
      return s + this.pathname + (u.query !== null ? "?" + u.query : "") + (u.fragment !== null ? "#" + u.fragment : "");
    }
    set href(v) { const u = parseURL(usv(v), null); if (!u) throw new TypeErrorC("Invalid URL"); this.#u = u; this.#fresh(); }
    get origin() { const p = this.#u.protocol; return special(p) && p !== "file:" ? p + "//" + this.host : "null"; }
    get protocol() { return this.#u.protocol; }
    set protocol(v) { const m = /^([A-Za-z][A-Za-z0-9+.-]*):?/.exec(String(v)); if (m) { const p = m[1].toLowerCase() + ":"; if (special(p) === special(this.#u.protocol)) { this.#u.protocol = p; if (this.#u.port === ports[p]) this.#u.port = ""; } } }
    get username() { return this.#u.username; }
    set username(v) { if (this.#u.host) this.#u.username = percent(usv(v), inUser); }
    get password() { return this.#u.password; }
    set password(v) { if (this.#u.host) this.#u.password = percent(usv(v), inUser); }
    get host() { return (this.#u.host ?? "") + (this.#u.port !== "" ? ":" + this.#u.port : ""); }
    set host(v) { const [h, p] = String(v).split(/:(?=[0-9]*$)/); this.hostname = h; if (p) this.port = p; }
    get hostname() { return this.#u.host ?? ""; }
    set hostname(v) { if (this.#u.opaque === null) { const h = parseHost(usv(v), special(this.#u.protocol)); if (h !== null) this.#u.host = h; } }
    get port() { return this.#u.port; }
    set port(v) { const m = /^[0-9]*/.exec(String(v))[0]; if (String(v) === "") this.#u.port = ""; else if (m !== "" && Number(m) <= 65535) { const n = String(Number(m)); this.#u.port = n === ports[this.#u.protocol] ? "" : n; } }
    get pathname() { return this.#u.opaque !== null ? this.#u.opaque : this.#u.path.map((s) => "/" + s).join(""); }
    set pathname(v) { if (this.#u.opaque === null) this.#u.path = segments(percent(usv(v), "?#").replace(/^[\/\\]/, ""), [], special(this.#u.protocol), this.#u.protocol); }
    get search() { return this.#u.query ? "?" + this.#u.query : ""; }
    set search(v) { const s = usv(v).replace(/^\?/, ""); this.#u.query = s === "" ? null : percent(s, special(this.#u.protocol) ? inQuery + "'" : inQuery); this.#fresh(); }
    get searchParams() { return this.#params; }
    get hash() { return this.#u.fragment ? "#" + this.#u.fragment : ""; }
    set hash(v) { const s = usv(v).replace(/^#/, ""); this.#u.fragment = s === "" ? null : percent(s, inFragment); }
    toString() { return this.href; }
    toJSON() { return this.href; }
    get [Symbol.toStringTag]() { return "URL"; }
  }
  defineProperty(URLC, "name", { value: "URL", configurable: true });
  hide("URL", URLC);
  hide("URLSearchParams", URLSearchParams);
