package code

import (
	"strings"
	"testing"
)

func TestExtract(t *testing.T) {
	for _, x := range []struct{ in, want string }{
		{"let a = 1", "let a = 1"},
		{"```ts\nlet a = 1\n```", "let a = 1"},
		{"```typescript\nlet a = 1\n```\n", "let a = 1"},
		{"```TypeScript\nlet a = 1\n\n```", "let a = 1\n"},
		{"\n\n  ```TS title=x\n  let a\n    b\n  ```  \n\n", "let a\n  b"},
		{"Here it is:\n\n~~~ts\nlet a\n~~~\nBye.", "let a"},
		{"````ts\n```\nx\n```\n````", "```\nx\n```"},
		{"```ts\r\nlet a\r\n```\r\n", "let a"},
		{"```ts\n```", ""},
		// Left alone: another tag, none, two fences, an open one.
		{"```js\nlet a\n```", "```js\nlet a\n```"},
		{"```\nlet a\n```", "```\nlet a\n```"},
		{"```ts\na\n```\n```ts\nb\n```", "```ts\na\n```\n```ts\nb\n```"},
		{"```ts\na\n```\n```\nb\n```", "```ts\na\n```\n```\nb\n```"},
		{"```ts\na\n```\n~~~", "```ts\na\n```\n~~~"},
		{"```ts\na", "```ts\na"},
		{"text ```ts\na\n```", "text ```ts\na\n```"},
		{"    ```ts\na\n    ```", "    ```ts\na\n    ```"},
		{"```ts\na\n``` x\n```", "a\n``` x"},
		{"const s = `\n```ts\nx\n```\n`", "x"}, // ambiguous; by the words of the contract it is a block
		{"```tsx\na\n```", "```tsx\na\n```"},
		{"```ts a`b\nx\n```", "```ts a`b\nx\n```"},
	} {
		if got := Extract(x.in); got != x.want {
			t.Errorf("%q: %q, want %q", x.in, got, x.want)
		}
	}
}

// The result is the text itself or a part of it, line for line, and a text without
// a fence is unchanged.
func FuzzExtract(f *testing.F) {
	for _, s := range []string{"", "```ts\nx\n```", "a\n~~~ts\r\nb\r\n~~~\nc", " ```ts\n  x\n ```", "```ts\n```\n```", "````ts\n```\n````"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Extract(s)
		if got == s {
			return
		}
		if !strings.Contains(s, "```") && !strings.Contains(s, "~~~") {
			t.Fatalf("%q became %q", s, got)
		}
		if len(got) >= len(s) {
			t.Fatalf("%q grew: %q", s, got)
		}
		rest := s
		for line := range strings.FieldsFuncSeq(got, func(r rune) bool { return r == '\n' || r == '\r' }) {
			i := strings.Index(rest, line)
			if i < 0 {
				t.Fatalf("%q has a line that is not in %q: %q", got, s, line)
			}
			rest = rest[i+len(line):]
		}
		// Tagged so that nothing in it can end it, the text comes back whole.
		fence := strings.Repeat("`", 3+longest(s, '`'))
		if !strings.ContainsAny(s, "\r\n") && s != "" {
			if back := Extract(fence + "ts\n" + s + "\n" + fence); back != s {
				t.Fatalf("%q came back as %q", s, back)
			}
		}
	})
}

func longest(s string, c byte) int {
	best, n := 0, 0
	for i := range len(s) {
		if s[i] == c {
			n++
			best = max(best, n)
		} else {
			n = 0
		}
	}
	return best
}
