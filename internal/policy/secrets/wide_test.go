package secrets

import (
	"bytes"
	"strings"
	"testing"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/unicode"
	"golang.org/x/text/encoding/unicode/utf32"

	"umbra/internal/need"
)

// TestWide finds secrets in UTF-16 and UTF-32, with and without a byte order mark, also
// beyond the first chunk and across its end.
func TestWide(t *testing.T) {
	d, err := Default()
	need.NoError(t, err)
	const secret = "key = \"AKIAY3T2ZQ7WJMH5RKPD\"\n"
	for name, of := range map[string]encoding.Encoding{
		"16 le": unicode.UTF16(unicode.LittleEndian, unicode.UseBOM), "16 be": unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
		"16 le bare": unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM), "16 be bare": unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
		"32 le": utf32.UTF32(utf32.LittleEndian, utf32.UseBOM), "32 be": utf32.UTF32(utf32.BigEndian, utf32.UseBOM),
	} {
		for _, before := range []int{0, 40, chunk/12 - 2, chunk / 6} {
			text := strings.Repeat("some text\n", before) + secret + strings.Repeat("more\n", 100)
			data, err := of.NewEncoder().Bytes([]byte(text))
			need.NoError(t, err)
			found, err := d.ScanReader("a.txt", bytes.NewReader(data))
			if err != nil || len(found) != 1 || found[0].Rule != "aws-access-token" || found[0].Line != before+1 {
				t.Errorf("%s, %d lines before: %v %v", name, before, found, err)
			}
		}
		half, err := of.NewEncoder().Bytes([]byte("x"))
		need.NoError(t, err)
		for n := range half {
			if _, err := d.ScanReader("a.txt", bytes.NewReader(half[:n])); err != nil {
				t.Errorf("%s, %d bytes: %v", name, n, err)
			}
		}
	}
}

// TestChunks finds a secret wherever the ends of the chunks are in it.
func TestChunks(t *testing.T) {
	d, err := Default()
	need.NoError(t, err)
	const secret = "\nkey = \"AKIAY3T2ZQ7WJMH5RKPD\"\n"
	for _, at := range []int{chunk, 2 * chunk, chunk + overlap, 2*chunk - overlap} {
		for off := -len(secret) - 1; off <= 1; off += 3 {
			text := []byte(strings.Repeat("x", at+off) + secret + strings.Repeat("y", overlap))
			found, err := d.ScanReader("a.txt", bytes.NewReader(text))
			if err != nil || len(found) != 1 || found[0].Line != 2 {
				t.Fatalf("%d%+d: %v %v", at, off, found, err)
			}
		}
	}
}
