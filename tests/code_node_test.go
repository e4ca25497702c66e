package tests

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evanw/esbuild/pkg/api"

	"umbra/internal/need"
	"umbra/tests/harness"
)

// common are programs that mean the same to us and to Node. Each line is one.
const common = `
const a: number = 1 + 2; console.log(a)
let s: string = 'a' + 'b'; console.log(s.length, s.at(-1))
console.log([3, 1, 2].toSorted().join('-'), [1, 2, 3].toReversed())
console.log([1, [2, [3]]].flat(Infinity))
console.log(Object.entries({ a: 1, b: 2 }).map(([k, v]) => k + v))
console.log(Object.groupBy ? 'x' : 'x')
console.log(JSON.stringify({ a: [1, { b: null }], c: undefined, d: new Date(0) }))
console.log(JSON.parse('{"a":[1,2,{"b":"c"}]}').a[2].b)
interface P { x: number; y?: string } const p: P = { x: 1 }; console.log(p.y ?? 'none', p?.x)
type F = (n: number) => number; const f: F = (n) => n * 2; console.log(f(21))
function id<T>(v: T): T { return v } console.log(id<string>('t'))
class A { #p = 1; get p() { return this.#p } set p(v: number) { this.#p = v } static s = 'S' } const o = new A(); o.p = 5; console.log(o.p, A.s)
class B { constructor(readonly_: number) { console.log(readonly_) } } new B(4)
abstract class S { abstract n(): number; twice() { return this.n() * 2 } } class T extends S { n() { return 4 } } console.log(new T().twice())
console.log([..."h\u00e9\u{1F600}"].length, "\u{1F600}".length)
console.log(new Map<string, number>([['a', 1]]), new Set([1, 2]))
console.log(new Map([[{ a: 1 }, ['x']]]))
console.log({ a: 1, 'b-c': [1, 2], d: { e: { f: { g: 1 } } } })
console.log([undefined, null, true, -0, NaN, 10n, 'x'])
console.log(Symbol('q'), Symbol.iterator.toString())
console.log([1, , 3])
console.log(() => 1, function named() {}, class K {}, async () => 1)
console.log('%s is %d and %i %f %j %%', 'a', 1.5, 1.5, '2.5', { a: 1 })
console.log('a', 'b', { c: 'd' }, ['e'])
console.log(new Date(86400000))
console.log(/a+b/gi, 'xaab'.replace(/a+(?<n>b)/, '[$<n>]'))
console.log('2024-01-02'.match(/(?<y>\d+)-(?<m>\d+)/)?.groups?.y)
console.log('a1b2'.replaceAll(/\d/g, (d) => String(Number(d) * 2)))
console.log([...'abcabc'.matchAll(/b/g)].map((m) => m.index))
console.log(Number('0x1f'), parseInt('12px'), parseFloat('1.5e3'), (255).toString(16), (0.1 + 0.2).toFixed(2))
console.log(2 ** 53 + 1, 2n ** 70n, 7 % -3, -7 % 3, 5 / 0)
console.log(1e21, 1e-7, 123456789012345680000, 0.000001, 1 / 3)
console.log(Math.max(...[1, 5, 3]), Math.hypot(3, 4), Math.sign(-2), Math.trunc(-1.5))
const { x, ...rest } = { x: 1, y: 2, z: 3 }; console.log(x, rest)
const [h, ...tail] = [1, 2, 3]; console.log(h, tail)
let n = 0; n ||= 5; n &&= n + 1; let u: any = null; u ??= 'd'; console.log(n, u)
label: for (let i = 0; i < 3; i++) { for (;;) { if (i === 1) break label; continue label } } console.log('done')
switch (3 as number) { case 1: console.log(1); break; default: console.log('d') }
try { null!.x } catch (e: any) { console.log(e instanceof TypeError) }
try { throw new Error('m', { cause: 'c' }) } catch (e: any) { console.log(e.message, e.cause, e.name) } finally { console.log('f') }
class E2 extends Error { code = 3; override name = 'E2' } try { throw new E2('z') } catch (e: any) { console.log(e.name, e.code, e instanceof E2, String(e)) }
function* g() { yield 1; const r: number = yield 2; console.log(r); return 3 } const it = g(); console.log(it.next(), it.next(), it.next(9))
async function* ag() { yield 1; yield 2 } for await (const v of ag()) console.log(v)
console.log(await Promise.all([1, Promise.resolve(2)]), await Promise.race([3]))
console.log(await Promise.allSettled([Promise.reject(1), 2]))
console.log(await Promise.any([Promise.reject(1), 2]))
setTimeout(() => console.log(3), 5); Promise.resolve().then(() => console.log(2)); console.log(1)
setTimeout(() => console.log('b'), 60); setTimeout(() => console.log('a'), 1); queueMicrotask(() => console.log('m'))
const t = setInterval(() => { console.log('i'); clearInterval(t) }, 1)
const w = new WeakMap(); const key = {}; w.set(key, 1); console.log(w.get(key), w.has({}))
const px = new Proxy({} as any, { get: (_, k) => String(k) + '!' }); console.log(px.hello)
console.log(Reflect.ownKeys({ a: 1, [Symbol.for('s')]: 2 }).length)
console.log(structuredClone({ a: [new Date(5), new Map([[1, { b: 2 }]])] }))
console.log(new TextEncoder().encode('\u00e9'), new TextDecoder().decode(new Uint8Array([104, 195, 169])))
console.log(new URL('https://u:p@h.example:8443/a/../b/./c?x=1&y=2#z').href)
console.log(new URL('../q?z#w', 'http://h/a/b/c').href, new URL('//x.y/z', 'https://a').origin)
console.log(new URL('HTTP://EXAMPLE.com:80/%7Efoo/ b').href, new URL('file:///a/b').pathname)
const usp = new URLSearchParams('a=1&b=2&a=3'); usp.append('c', 'd e&'); console.log(usp.getAll('a'), usp.toString())
const ur = new URL('http://h/p'); ur.searchParams.set('q', 'a b'); ur.hash = 'x'; ur.port = '81'; console.log(ur.href, ur.host)
console.log(new URL('http://[::1]:3000/').hostname, new URL('http://0x7f.1/').hostname)
console.log(URL.canParse('nope'), URL.canParse('a:b'))
console.log(atob('aGk='), btoa('hi!'))
console.log(encodeURIComponent('a b&\u00e9'), decodeURIComponent('%C3%A9'), escape('\u00e9'))
console.log([1, 2, 3, 4].findLast((v) => v % 2 === 1), [1, 2, 3].with(1, 9), [1, 2, 3].at(-1))
console.log([5, 1, 10].sort(), [5, 1, 10].sort((a, b) => a - b))
console.log(Array.from({ length: 3 }, (_, i) => i ** 2), Array.of(7), new Array(2).fill('x'))
console.log('abc'.padStart(5, '*'), 'abc'.padEnd(5), ' x '.trim() + '|', 'a-b'.split('-'))
console.log('\u0130'.toLowerCase().length, '\u00df'.toUpperCase(), 'a'.localeCompare('b'))
console.log(typeof null, typeof undefined, typeof (() => 1), typeof 1n, typeof Symbol())
console.log([] + '', {} + '', [1, 2] + '', null + 1, '5' * '2')
console.log(isNaN(NaN), Number.isInteger(5.0), Number.MAX_SAFE_INTEGER, Number.EPSILON > 0)
var hoisted = typeof later; function later() {} console.log(hoisted)
console.log(((a: number, b = 2, ...c: number[]) => a + b + c.length)(1, undefined, 5, 6))
const obj2 = { get v() { return 1 }, ['comp' + 1]: 2, m() { return this.v } }; console.log(obj2.comp1, obj2.m())
console.log(Object.freeze({ a: 1 }), Object.isFrozen(Object.freeze([])))
console.log(Object.fromEntries(new Map([['a', 1]])), Object.assign({}, { b: 2 }))
class Chain { v = 0; add(n: number): this { this.v += n; return this } } console.log(new Chain().add(1).add(2).v)
class St { static #c = 0; static inc() { return ++St.#c } static { St.inc() } } console.log(St.inc())
class HasP { #x = 1; static is(o: object) { return #x in o } } console.log(HasP.is(new HasP()), HasP.is({}))
const tag = (s: TemplateStringsArray, ...v: unknown[]) => s.raw.join('|') + v.join(); console.log(tag` + "`a${1}b\\n${2}`" + `)
console.log(` + "`multi ${1 + 1} ${`nested ${'x'}`}`" + `)
let v1 = <T,>(q: T) => q; console.log(v1(3))
const sat = { a: 1 } satisfies Record<string, number>; console.log(sat.a)
const as1 = 'x' as const; const nn: string | undefined = as1; console.log(nn!.length)
function over(a: string): string; function over(a: number): number; function over(a: any) { return a } console.log(over(1))
type M = { [K in 'a' | 'b']?: K }; const mm: M = { a: 'a' }; console.log(mm)
declare const ghost: number; console.log(typeof ghost)
import type { Nothing } from './nothing.ts'; console.log('types go')
export const exported = 1; console.log(exported)
export default function main() {} console.log(main.name)
import { basename, join } from 'node:path'; console.log(basename('/a/b.txt', '.txt'), join('a', '..', 'b'))
const buf = new ArrayBuffer(4); new DataView(buf).setUint16(0, 258); console.log(new Uint8Array(buf))
console.log(new Float32Array([1.5, 2]), Uint8Array.from([1, 2]).map((b) => b * 2))
console.log(Uint8Array.of(1, 2, 3).subarray(1), new BigInt64Array(1))
console.log([1, 2, 3].includes(2), [NaN].includes(NaN), [1, 2, 3].indexOf(4))
console.log([..."ab"].entries().next(), [...new Set('aab')].join(''))
const date = new Date(Date.UTC(2024, 1, 29, 12)); console.log(date.toISOString(), date.getUTCDay(), date.toJSON())
console.log(new Date('2024-02-30T00:00:00Z').getTime(), Date.parse('2024-01-01'))
console.log([1, 2, 3, 4, 5].reduce((a, b) => a + b), [[1, 2], [3]].flatMap((q) => q))
let fib = (k: number): number => k < 2 ? k : fib(k - 1) + fib(k - 2); console.log(fib(15))
const memo: Record<string, number> = {}; for (const c of 'hello') memo[c] = (memo[c] ?? 0) + 1; console.log(memo)
console.log([10, 9, 8].keys().next().value, Object.is(-0, 0), [0, -0].map((z) => 1 / z))
console.log('x'.repeat(3), 'abc'.substring(2, 0), 'abc'.slice(-2, -1), 'abc'.codePointAt(1))
const bound = function (this: any) { return this.q }.bind({ q: 8 }); console.log(bound())
console.log(String(Symbol('d').description), [1, [2]].toString(), String(null))
console.log(Number.parseFloat('1.7976931348623157e308') * 10, -Infinity, (25).toString(2))
const nested = { l1: { l2: { l3: { l4: 1 } } }, arr: [[[[1]]]] }; console.log(nested)
console.log({ f() {}, g: () => 1, h: class Q {}, s: Symbol('z'), n: null, u: undefined })
console.log([['a', 1], ['b', 2]], [{ a: 1 }, { b: 2 }])
console.log(new (class Foo { a = 1 })(), new (class extends Map {})(), Object.create(null))
console.log(process.argv.length, typeof process.env)
console.error('to stderr'); console.log('to stdout')
`

// The programs mean the same here as with Node. One that strips types itself
// gets the text as it is; an older one what an independent compiler leaves.
func TestExecuteLikeNode(t *testing.T) {
	node := need.Tool(t, "node")
	dir := t.TempDir()
	strips := canStrip(node, dir)
	c := startCoder(t, harness.Options{})
	programs := strings.Split(strings.TrimSpace(common), "\n")
	if len(programs) < 100 {
		t.Errorf("%d programs", len(programs))
	}
	for i, code := range programs {
		file, text := filepath.Join(dir, fmt.Sprintf("p%d.mts", i)), code
		if !strips {
			res := api.Transform(code, api.TransformOptions{Loader: api.LoaderTS, Target: api.ESNext})
			if len(res.Errors) > 0 {
				t.Fatalf("%s: %v", code, res.Errors)
			}
			file, text = filepath.Join(dir, fmt.Sprintf("p%d.mjs", i)), string(res.Code)
		}
		need.NoError(t, os.WriteFile(file, []byte(text), 0o666))
		cmd := exec.Command(node, nodeArgs(strips, file)...)
		cmd.Env = []string{"TZ=UTC", "NO_COLOR=1"}
		var out, errOut bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errOut
		if err := cmd.Run(); err != nil {
			t.Errorf("node: %s\n%v %s", code, err, &errOut)
			continue
		}
		if r := c.run(t, code, nil); r.status != 200 || r.Stdout != out.String() {
			t.Errorf("%s\n%q %q %q\nnode says\n%q", code, r.Stdout, r.Stderr, fmt.Sprint(r.Error.Details), out.String())
		}
	}
}

func nodeArgs(strips bool, file string) []string {
	if strips {
		return []string{"--experimental-strip-types", "--no-warnings", file}
	}
	return []string{"--no-warnings", file}
}

func canStrip(node, dir string) bool {
	file := filepath.Join(dir, "probe.mts")
	return os.WriteFile(file, []byte("const a: number = 1"), 0o666) == nil && exec.Command(node, nodeArgs(true, file)...).Run() == nil
}
