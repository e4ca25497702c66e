package sessions

import "io"

// jsonText writes UTF-8 as the inside of a JSON string.
type jsonText struct{ w io.Writer }

func (j jsonText) Write(p []byte) (int, error) {
	const hex = "0123456789abcdef"
	from := 0
	for i, c := range p {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		esc := []byte{'\\', c}
		switch {
		case c == '\n':
			esc[1] = 'n'
		case c == '\t':
			esc[1] = 't'
		case c == '\r':
			esc[1] = 'r'
		case c < 0x20:
			esc = []byte{'\\', 'u', '0', '0', hex[c>>4], hex[c&15]}
		}
		if _, err := j.w.Write(p[from:i]); err != nil {
			return from, err
		}
		if _, err := j.w.Write(esc); err != nil {
			return i, err
		}
		from = i + 1
	}
	_, err := j.w.Write(p[from:])
	return len(p), err
}
