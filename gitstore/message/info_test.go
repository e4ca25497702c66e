package message

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func testInfo(text string) *Info {
	value, _ := json.Marshal(map[string]string{"v": text})
	return &Info{TaskID: "t1", Goal: text, Status: "executing", Kind: "virtual", Actor: text,
		Created: time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC), Updated: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		Pinned: true, Metadata: value, RequestID: "r", IdempotencyKey: "sha256:1", Extra: []Trailer{{"Namespace", text}}}
}

func TestInfoRoundTrip(t *testing.T) {
	for _, h := range hostile() {
		in := testInfo(h)
		s := EncodeInfo(in)
		got, err := ParseInfo(s)
		if err != nil {
			t.Fatalf("%v:\n%.2000s", err, s)
		}
		var a, b any
		if json.Unmarshal(in.Metadata, &a) != nil || json.Unmarshal(got.Metadata, &b) != nil || !reflect.DeepEqual(a, b) {
			t.Errorf("metadata %s came back as %s", in.Metadata, got.Metadata)
		}
		want := *in
		want.Goal, want.Metadata = strings.ToValidUTF8(h, "\uFFFD"), got.Metadata
		if !reflect.DeepEqual(*got, want) {
			t.Errorf("got  %+v\nwant %+v", *got, want)
		}
	}
}

func TestInfoText(t *testing.T) {
	s := EncodeInfo(&Info{TaskID: "t1", Goal: "Make it work\n\nPlease.", Status: "paused",
		Metadata: json.RawMessage("{ \"n\": 1.0,\n \"b\":[ ] }"), Created: time.Unix(0, 0)})
	want := "Make it work\n\nPlease.\n\nTask-Id: t1\nStatus: paused\nCreated: 1970-01-01T00:00:00Z\nMetadata: {\"n\":1.0,\"b\":[]}\n"
	if s != want {
		t.Errorf("got\n%s", s)
	}
}

func TestInfoMalformed(t *testing.T) {
	if in, err := ParseInfo(EncodeInfo(&Info{TaskID: "t", Metadata: json.RawMessage("{\n")})); err != nil || string(in.Metadata) != `"{"` {
		t.Errorf("bad JSON: %v, %v", in, err)
	}
	for _, s := range []string{"", "a", "a\n\nStatus: x\n", "a\n\nTask-Id: t\nMetadata: {\n", "a\n\nTask-Id: t\nCreated: now\n",
		"a\n\nTask-Id: t\nStatus: a\nStatus: b\n", "a\n\nTask-Id: t\nGoal: \"\n", "a\n\nTask-Id: t\nPinned: maybe\n"} {
		if _, err := ParseInfo(s); !errors.Is(err, ErrMalformed) {
			t.Errorf("%q: %v", s, err)
		}
	}
}
