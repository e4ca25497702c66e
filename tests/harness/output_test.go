package harness

import (
	"fmt"
	"strings"
	"testing"
)

func TestTail(t *testing.T) {
	numbered := func(from, to int) string {
		var b strings.Builder
		for i := from; i <= to; i++ {
			fmt.Fprintf(&b, "line %d\n", i)
		}
		return b.String()
	}
	stacks := "SIGQUIT: quit\n" + numbered(1, 50)
	for _, x := range []struct{ text, want string }{
		{"", ""},
		{"one", "one\n"},
		{numbered(1, 2), numbered(1, 2)},
		{numbered(1, 3), numbered(1, 3)},
		{numbered(1, 4), "(1 lines before)\n" + numbered(2, 4)},
		{numbered(1, 9) + "open", "(7 lines before)\nline 8\nline 9\nopen\n"},
		{stacks, stacks},
		{numbered(1, 9) + stacks, "(9 lines before)\n" + stacks},
		{numbered(1, 9) + stacks + "panic: ", "(9 lines before)\n" + stacks + "panic: \n"},
	} {
		o := NewOutput()
		if _, err := o.Write([]byte(x.text)); err != nil {
			t.Fatal(err)
		}
		if got := o.Tail(3); got != x.want {
			t.Errorf("of %q: %q, want %q", x.text, got, x.want)
		}
	}
}
