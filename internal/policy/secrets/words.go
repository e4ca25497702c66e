package secrets

import "fmt"

// words finds keywords in a text, whatever the case of their letters.
type words struct {
	list []word
	// class numbers the bytes that the first two of a keyword may be, in both cases, from
	// 1; 0 is any other byte.
	class [256]byte
	// starts is by the classes of two bytes: the first word of those that begin so, from
	// 1; 0 for none. It is small, so that it stays in the processor's nearest cache.
	starts [classes * classes]uint16
}

// classes bounds how many bytes keywords begin with: letters, digits and some signs.
const classes = 64

type word struct {
	text  string
	rules []int
	next  uint16 // of those that begin with the same two bytes
}

func (w *words) add(text string, rule int) error {
	if len(text) < 2 {
		return fmt.Errorf("the keyword %q is too short", text)
	}
	for i := range w.list {
		if w.list[i].text == text {
			w.list[i].rules = append(w.list[i].rules, rule)
			return nil
		}
	}
	w.list = append(w.list, word{text: text, rules: []int{rule}})
	return nil
}

// done is called when all are added.
func (w *words) done() error {
	n := byte(0)
	for i := range w.list {
		for _, c := range []byte(w.list[i].text[:2]) {
			if w.class[c] != 0 {
				continue
			}
			if n++; n == classes {
				return fmt.Errorf("keywords begin with more than %d bytes", classes-1)
			}
			w.class[c] = n
			if 'a' <= c && c <= 'z' {
				w.class[c-'a'+'A'] = n
			}
		}
	}
	for i := range w.list {
		k := w.pair(w.list[i].text[0], w.list[i].text[1])
		w.list[i].next, w.starts[k] = w.starts[k], uint16(i+1)
	}
	return nil
}

func (w *words) pair(a, b byte) int { return int(w.class[a])*classes + int(w.class[b]) }

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// each calls fn with the rules of each keyword and its place, in the order of the
// places.
func (w *words) each(text string, fn func(rule, at int)) {
	if text == "" {
		return
	}
	a := w.class[text[0]]
	for i := 1; i < len(text); i++ {
		b := w.class[text[i]]
		n := w.starts[(int(a)*classes+int(b))%len(w.starts)] // the remainder spares a check of bounds
		if a = b; n == 0 {
			continue
		}
		for ; n != 0; n = w.list[n-1].next {
			x := &w.list[n-1]
			if !opens(text[i+1:], x.text[2:]) {
				continue
			}
			for _, r := range x.rules {
				fn(r, i-1)
			}
		}
	}
}

// opens reports whether a text begins with a word of lower-case ASCII, whatever the
// case of its letters.
func opens(text, word string) bool {
	if len(text) < len(word) {
		return false
	}
	for i := range len(word) {
		if lower(text[i]) != word[i] {
			return false
		}
	}
	return true
}
