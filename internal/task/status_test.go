package task

import (
	"strings"
	"testing"

	"umbra/internal/errs"
)

func TestValidID(t *testing.T) {
	good := []string{"a", "0", "a1b2c3d4", "A.b_c-d", "x.", strings.Repeat("a", 128), newID()}
	bad := []string{"", ".a", "-a", "_a", "a..b", "a.lock", "a b", "a/b", "a\nb", "a\x00", "é", strings.Repeat("a", 129), "a:b", "a~1", "..", "a\r\nTask-Id: b"}
	for _, s := range good {
		if !ValidID(s) {
			t.Errorf("%q is refused", s)
		}
	}
	for _, s := range bad {
		if ValidID(s) {
			t.Errorf("%q is taken", s)
		}
	}
}

func TestStatusMachine(t *testing.T) {
	all := []Status{Executing, Paused, Completed, Failed, Cancelled}
	for _, from := range all {
		for _, to := range all {
			err := from.next(to)
			if want := from == to || !from.Ended(); (err == nil) != want {
				t.Errorf("%s -> %s: %v", from, to, err)
			}
			if err != nil && errs.CodeOf(err) != "task_ended" {
				t.Errorf("%s -> %s: %v", from, to, err)
			}
		}
		switch err := from.Writable(); {
		case from == Executing && err != nil,
			from == Paused && errs.CodeOf(err) != "task_paused",
			from.Ended() && errs.CodeOf(err) != "task_ended":
			t.Errorf("writes while %s: %v", from, err)
		}
		if got, ok := ParseStatus(string(from)); !ok || got != from {
			t.Errorf("%s is not read back", from)
		}
	}
	if _, ok := ParseStatus("Executing"); ok {
		t.Error("another spelling is taken")
	}
}
