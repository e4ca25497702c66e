package gitstore

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"umbra/gitstore/message"
	"umbra/gitstore/object"
	"umbra/internal/need"
	"umbra/internal/wspath"
)

// What a baseline that was cut off has made durable is not written again, nor
// lost when the store is opened anew.
func TestBaselineGoesOn(t *testing.T) {
	dir := testDir(t)
	opts := Options{BaselinePart: 1000, Foreground: true}
	text := func(i int) string { return fmt.Sprintf("file %d\n%s", i, strings.Repeat(fmt.Sprint(i*7919), 30)) }
	name := func(i int) wspath.Path { return wspath.Path(fmt.Sprintf("d%d/f%d", i%5, i)) }
	const files, cut = 300, 200
	errCut := errors.New("cut off")
	s := openAt(t, dir, opts)
	parts, ids := 0, make(map[int]ID)
	durable := 0 // files of which is known that they are in a part
	_, err := s.BaselineOf(t.Context(), message.Message{Source: message.Baseline}, func(f Fill) error {
		f.OnPart(func() { parts++; durable = len(ids) })
		for i := range cut {
			id, err := f.Add()(name(i), object.Regular, strings.NewReader(text(i)), int64(len(text(i))))
			if err != nil {
				return err
			}
			ids[i] = id
		}
		return errCut
	})
	if !errors.Is(err, errCut) || parts < 3 || s.Tip().Seq != 0 {
		t.Fatalf("%v, %d parts, seq %d", err, parts, s.Tip().Seq)
	}
	need.NoError(t, s.Close(t.Context()))

	s = openAt(t, dir, opts)
	taken := 0
	c, err := s.BaselineOf(t.Context(), message.Message{Source: message.Baseline}, func(f Fill) error {
		for i := range files {
			if id, ok := ids[i]; ok {
				known, err := f.Known(name(i), object.Regular, id)
				if err != nil {
					return err
				}
				if known {
					taken++
					continue
				}
			}
			if _, err := f.Add()(name(i), object.Regular, strings.NewReader(text(i)), int64(len(text(i)))); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil || c.Seq != 1 {
		t.Fatal(err, c.Seq)
	}
	if taken < durable || taken == cut {
		t.Errorf("%d files were known, %d were durable", taken, durable)
	}
	for i := range files {
		if got := content(t, s, string(name(i))); got != text(i) {
			t.Fatalf("%s: %q", name(i), got)
		}
	}
	need.NoError(t, s.Publish(t.Context()))
	fsck(t, dir)
	if n := strings.Count(git(t, dir, "ls-tree", "-r", "refs/heads/shadow"), "\n"); n != files {
		t.Errorf("git sees %d files", n)
	}
}

// With parts closed beside those who add.
func TestBaselineInPartsByMany(t *testing.T) {
	dir := testDir(t)
	s := openAt(t, dir, Options{BaselinePart: 1000})
	const files, workers = 400, 8
	_, err := s.BaselineOf(t.Context(), message.Message{Source: message.Baseline}, func(f Fill) error {
		failed := make(chan error, workers)
		for w := range workers {
			go func() {
				var err error
				for i := w; i < files && err == nil; i += workers {
					text := strings.Repeat(fmt.Sprint(i*7919), 20)
					_, err = f.Add()(wspath.Path(fmt.Sprintf("f%d", i)), object.Regular, strings.NewReader(text), int64(len(text)))
				}
				failed <- err
			}()
		}
		var all error
		for range workers {
			all = errors.Join(all, <-failed)
		}
		return all
	})
	need.NoError(t, err)
	for i := range files {
		if got := content(t, s, fmt.Sprintf("f%d", i)); got != strings.Repeat(fmt.Sprint(i*7919), 20) {
			t.Fatalf("f%d: %q", i, got)
		}
	}
	need.NoError(t, s.Publish(t.Context()))
	fsck(t, dir)
}
