package records

import (
	"context"
	"encoding/binary"
	"slices"

	"umbra/internal/errs"
)

// Touching reads fewTouching records first, as the one that it looks for is often near, then
// twice as many each time, up to manyTouching.
const fewTouching, manyTouching = 8, 1024

// Touching returns the newest record of from..to whose commit may have changed one of some
// paths; ok is false where there is none. Of others it reads the filter alone.
func (r *Index) Touching(ctx context.Context, from, to uint64, paths ...string) (rec Record, ok bool, err error) {
	if err := r.Filled(ctx); err != nil {
		return rec, false, err
	}
	want := make([]touched, len(paths))
	for i, p := range paths {
		want[i] = touchedBy(p)
	}
	var buf []byte
	first := r.opt.First // which no drop moves in a fork
	if r.opt.Base == nil {
		first = r.Begin()
	}
	to = min(to, r.Count())
	for n := fewTouching; to >= max(from, first, 1); n = min(2*n, manyTouching) {
		if err := ctx.Err(); err != nil {
			return rec, false, errs.Wrap(err, "")
		}
		if len(buf) < n*recordSize {
			buf = make([]byte, n*recordSize)
		}
		rec, low, ok, err := r.touching(from, to, want, buf)
		if ok || err != nil {
			return rec, ok, err
		}
		if low > to {
			break // dropped meanwhile
		}
		to = low - 1
	}
	if r.opt.Base != nil && from < first {
		return r.opt.Base.Touching(ctx, from, min(to, first-1), paths...)
	}
	return rec, false, nil
}

// touching is Touching for the newest records up to a number that one read has, those from low
// on.
func (r *Index) touching(from, to uint64, want []touched, buf []byte) (rec Record, low uint64, ok bool, err error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	may := func(filter uint16) bool {
		return slices.ContainsFunc(want, func(t touched) bool { return t.in(filter) })
	}
	low = max(from, r.first)
	if to > r.n {
		for low = max(low, r.n+1); to >= low; to-- {
			if rec := r.tail[to-r.n-1]; may(rec.paths) {
				return rec, low, true, nil
			}
		}
		return rec, low, false, nil
	}
	if n := uint64(len(buf) / recordSize); low+n <= to {
		low = to - n + 1
	}
	if low > to {
		return rec, low, false, nil
	}
	if _, err := r.f.ReadAt(buf[:(to-low+1)*recordSize], int64(low-1)*recordSize); err != nil {
		return rec, low, false, err
	}
	for ; to >= low; to-- {
		b := buf[(to-low)*recordSize:][:recordSize]
		if !may(binary.BigEndian.Uint16(b[pathsAt:])) {
			continue
		}
		rec, ok := r.decode(to, b)
		if !ok {
			return rec, low, false, errDamaged(to)
		}
		return rec, low, true, nil
	}
	return rec, low, false, nil
}

// IsFilled reports whether Filled has nothing to do.
func (r *Index) IsFilled() bool {
	return r.unfilled.Load() == nil && (r.opt.Base == nil || r.opt.Base.IsFilled())
}
