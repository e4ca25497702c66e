package tests

import (
	"strings"
	"testing"
)

// TestReviewLineEnds holds that a task's change of a file's line ends is taken back next
// to lines that others changed or added since, by a review and by a revert; and that a
// change of some ends, which cannot be separated from others' lines, changes nothing.
func TestReviewLineEnds(t *testing.T) {
	long := strings.ReplaceAll(numbered(20), "\n", "\r\n")
	for name, x := range map[string]struct{ base, made, other, want string }{
		"to CR LF": {numbered(20), long, strings.Replace(long, "line 9\r", "nine\r", 1) + "below\r\n", strings.Replace(numbered(20), "line 9\n", "nine\n", 1) + "below\n"},
		"to LF":    {long, numbered(20), strings.Replace(numbered(20), "line 9\n", "nine\n", 1), strings.Replace(long, "line 9\r", "nine\r", 1)},
		"with an edit": {numbered(20), strings.Replace(long, "line 2\r", "two\r", 1), strings.NewReplacer("line 2\r", "two\r", "line 9\r", "nine\r").Replace(long),
			strings.Replace(numbered(20), "line 9\n", "nine\n", 1)},
	} {
		for _, way := range []string{"reject", "reject_rest", "revert"} {
			t.Run(name+", "+way, func(t *testing.T) {
				p := newProject(t, map[string]string{"a": x.base})
				k, other := p.task(t), p.task(t)
				k.put(t, "a", x.made).want(t, 200)
				other.put(t, "a", x.other).want(t, 200)
				switch list, _ := k.hunks(t, ""); way {
				case "revert":
					p.post(t, k.url("/revert"), map[string]any{}).want(t, 200)
				case "reject_rest":
					p.post(t, k.url("/review"), map[string]any{"reject_rest": true}).want(t, 200)
				default:
					var ids []string
					for _, h := range list {
						ids = append(ids, h.ID)
					}
					p.post(t, k.url("/review"), map[string]any{"reject": ids}).want(t, 200)
				}
				if got := p.read(t, "a"); got != x.want {
					t.Errorf("%q", got)
				}
				if list, _ := k.hunks(t, ""); len(list) != 0 {
					t.Errorf("left: %+v", list)
				}
				if list, _ := other.hunks(t, ""); len(list) == 0 || strings.Contains(list[0].Text, "line 1\n") && strings.Contains(list[0].Text, "-line 1") {
					t.Errorf("the other's: %+v", list)
				}
			})
		}
	}
	t.Run("some ends", func(t *testing.T) {
		p := newProject(t, map[string]string{"a": numbered(20)})
		k, other := p.task(t), p.task(t)
		some := strings.ReplaceAll(numbered(10), "\n", "\r\n") + strings.TrimPrefix(numbered(20), numbered(10))
		text := strings.Replace(some, "line 9\r", "nine\r", 1)
		k.put(t, "a", some).want(t, 200)
		other.put(t, "a", text).want(t, 200)
		list, _ := k.hunks(t, "")
		if len(list) != 1 || !list[0].Mixed {
			t.Fatalf("%+v", list)
		}
		p.post(t, k.url("/review"), map[string]any{"reject": []string{list[0].ID}}).fails(t, 409, "revert_conflict")
		if p.read(t, "a") != text {
			t.Error("something was done")
		}
	})
}
