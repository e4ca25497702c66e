package filestamp

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func TestStamp(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	found := 0
	const n = 200_000
	for range n {
		at := time.Now().UnixNano() + r.Int64N(1<<40)
		ino := r.Uint64()
		var blob, other [20]byte
		for i := range blob {
			blob[i], other[i] = byte(r.Uint32()), byte(r.Uint32())
		}
		m := Mtime(at, ino, blob)
		if m > at || at-m > int64(3*time.Millisecond) || !Is(m, ino, blob) {
			t.Fatalf("%d is stamped %d", at, m)
		}
		// A later write, another file, another version.
		for _, is := range []bool{Is(at, ino, blob), Is(m, ino+1, blob), Is(m, ino, other), Is(m+int64(time.Second), ino, blob), m%1000 != 0 && Is(m/1000*1000, ino, blob)} {
			if is {
				found++
			}
		}
	}
	if found > 20 { // 1 of 1,048,576 each
		t.Errorf("%d of %d are taken for stamped", found, 5*n)
	}
}

func TestTorn(t *testing.T) {
	blob := strings.Repeat("0123456789abcde\n", 200)
	hole := blob[:512] + strings.Repeat("\x00", 512) + blob[1024:]
	for is, want := range map[string]bool{
		"": true, blob: true, blob[:1024]: true, blob[:1000]: true, hole: true, hole[:700]: true,
		"another": false, blob[:511] + "\x00" + blob[512:]: false, blob[:1024] + "X": false,
	} {
		got, err := Torn(strings.NewReader(is), int64(len(is)), bytes.NewReader([]byte(blob)))
		if err != nil || got != want {
			t.Errorf("%d bytes: %v, %v", len(is), got, err)
		}
	}
}
