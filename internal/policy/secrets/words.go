package secrets

import (
	"fmt"
	"strings"
)

// words finds keywords in a text, whatever the case of their letters.
type words struct {
	list []word
	// starts is by the first two bytes: the first word of those that begin so, from
	// 1; 0 for none.
	starts [1 << 16]uint16
}

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
func (w *words) done() {
	for i := range w.list {
		k := pair(w.list[i].text[0], w.list[i].text[1])
		w.list[i].next, w.starts[k] = w.starts[k], uint16(i+1)
	}
}

func pair(a, b byte) uint16 { return uint16(a)<<8 | uint16(b) }

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
	a := lower(text[0])
	for i := 1; i < len(text); i++ {
		b := lower(text[i])
		n := w.starts[pair(a, b)]
		for a = b; n != 0; n = w.list[n-1].next {
			x := &w.list[n-1]
			if len(text)-i+1 < len(x.text) || !strings.EqualFold(text[i-1:i-1+len(x.text)], x.text) {
				continue
			}
			for _, r := range x.rules {
				fn(r, i-1)
			}
		}
	}
}
