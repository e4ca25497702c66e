package sessions

import (
	"bytes"
	"encoding/json"
	"testing"
	"unicode/utf8"
)

func FuzzJSONText(f *testing.F) {
	f.Add("a \"b\" \\ \n\t\r\x00\x1f </x> \u2028 \U0001f600")
	f.Fuzz(func(t *testing.T, text string) {
		if !utf8.ValidString(text) {
			return
		}
		var b bytes.Buffer
		b.WriteByte('"')
		w := jsonText{&b}
		for i := range len(text) { // bytewise: runes come apart
			if n, err := w.Write([]byte(text[i : i+1])); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		b.WriteByte('"')
		var got string
		if err := json.Unmarshal(b.Bytes(), &got); err != nil || got != text {
			t.Errorf("%q came back as %q, %v", text, got, err)
		}
	})
}
