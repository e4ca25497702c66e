package diff

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strconv"

	"github.com/klauspost/compress/zlib"
)

// binary writes the header and a `GIT binary patch`: how to make new of old,
// then how to make old of new.
func (w *writer) binary() error {
	old, new := &w.old, &w.new
	limit := w.opts.MaxBinary
	if limit == 0 {
		limit = DefaultMaxBinary
	}
	w.header(similarity(commonBytes(old.Data, new.Data), old.Data, new.Data))
	if int64(len(old.Data))+int64(len(new.Data)) > limit {
		w.patch.Truncated = true
		w.linef("Binary files %s and %s differ", label("a/", old), label("b/", new))
		return nil
	}
	w.linef("GIT binary patch")
	if err := w.binaryTo(old.Data, new.Data); err != nil {
		return err
	}
	return w.binaryTo(new.Data, old.Data)
}

// commonBytes gives how many bytes both have in common at their ends.
func commonBytes(a, b []byte) int {
	n := min(len(a), len(b))
	head := commonPrefix(a, b)
	return head + min(commonSuffix(a, b), n-head)
}

// binaryTo writes one direction: the bytes themselves or, where it is shorter,
// a delta against the other side, deflated and in base 85.
func (w *writer) binaryTo(from, to []byte) error {
	method, size, body := "delta ", 0, []byte(nil)
	var err error
	if d := delta(from, to, len(to)/2); d != nil {
		size = len(d)
		if body, err = deflate(d); err != nil {
			return err
		}
	}
	// A delta so much smaller is taken unseen; deflating the whole costs most.
	if body == nil || 16*len(body) > len(to) {
		whole, err := deflate(to)
		if err != nil {
			return err
		}
		if body == nil || len(whole) <= len(body) {
			method, size, body = "literal ", len(to), whole
		}
	}
	// Five digits for four bytes, and two more bytes a line.
	text := slices.Grow(w.patch.Text, len(body)/4*5+len(body)/base85Line*2+64)
	text = append(text, method...)
	text = strconv.AppendInt(text, int64(size), 10)
	text = append(text, '\n')
	text = appendBase85(text, body)
	w.patch.Text = append(text, '\n')
	return nil
}

// fastDeflate is the size above which time counts more than the last percent.
const fastDeflate = 1 << 20

func deflate(data []byte) ([]byte, error) {
	level := zlib.DefaultCompression
	if len(data) > fastDeflate {
		level = zlib.BestSpeed
	}
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, level)
	if err != nil {
		return nil, err
	}
	if _, err := z.Write(data); err != nil {
		return nil, err
	}
	if err := z.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// base85 is the alphabet of git's binary patches.
const base85 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"

// base85Line is the number of bytes on one line.
const base85Line = 52

// appendBase85 writes lines of up to 52 bytes: their number as a letter (A is
// 1, a is 27), then five digits for each four bytes, big-endian, the last four
// filled up with zeros.
func appendBase85(text, data []byte) []byte {
	for len(data) > 0 {
		n := min(len(data), base85Line)
		if n <= 26 {
			text = append(text, byte('A'+n-1))
		} else {
			text = append(text, byte('a'+n-27))
		}
		for line := data[:n]; len(line) > 0; line = line[min(4, len(line)):] {
			var four [4]byte
			copy(four[:], line)
			v := binary.BigEndian.Uint32(four[:])
			var five [5]byte
			for i := 4; i >= 0; i-- {
				five[i] = base85[v%85]
				v /= 85
			}
			text = append(text, five[:]...)
		}
		text = append(text, '\n')
		data = data[n:]
	}
	return text
}
