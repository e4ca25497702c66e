package message

import "testing"

func BenchmarkEncode(b *testing.B) {
	m := Message{TaskID: "a1b2c3d4", SubtaskID: "add-types", Actor: "claude", Source: API, RequestID: "r-1", Change: 4, Seq: 42,
		Entries: []Entry{{Operation: Modify, Path: "src/app.ts", AfterHash: hash}}}
	b.ReportAllocs()
	for b.Loop() {
		m.Encode()
	}
}

func BenchmarkParse(b *testing.B) {
	m := Message{TaskID: "a1b2c3d4", SubtaskID: "add-types", Actor: "claude", Source: API, RequestID: "r-1", Change: 4, Seq: 42,
		Entries: []Entry{{Operation: Modify, Path: "src/app.ts", AfterHash: hash}}}
	s := m.Encode()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Parse(s); err != nil {
			b.Fatal(err)
		}
	}
}
