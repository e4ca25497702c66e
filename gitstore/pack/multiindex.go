package pack

import "bytes"

// MultiIndexNames reports whether a multi-pack-index, whose bytes are data, names a
// pack for which is holds; base is "pack-<40 hex digits>". The names are in it as text
// (gitformat-pack(5), chunk PNAM).
func MultiIndexNames(data []byte, is func(base string) bool) bool {
	const begin, length, suffix = "pack-", len("pack-") + 40, ".idx"
	for {
		i := bytes.Index(data, []byte(begin))
		if i < 0 || len(data) < i+length+len(suffix) {
			return false
		}
		data = data[i:]
		if string(data[length:length+len(suffix)]) == suffix && is(string(data[:length])) {
			return true
		}
		data = data[len(begin):]
	}
}
