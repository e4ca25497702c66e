package object

import (
	"bytes"
	"encoding/base64"
	"errors"
	"math/rand"
	"testing"
)

// shattered are the first 320 bytes of the two files of https://shattered.io,
// which have one SHA-1.
var shattered = [2]string{
	"JVBERi0xLjMKJeLjz9MKCgoxIDAgb2JqCjw8L1dpZHRoIDIgMCBSL0hlaWdodCAzIDAgUi9UeXBlIDQgMCBSL1N1YnR5cGUgNSAwIFIvRmlsdGVyIDYgMCBSL0NvbG9yU3BhY2UgNyAwIFIvTGVuZ3RoIDggMCBSL0JpdHNQZXJDb21wb25lbnQgOD4+CnN0cmVhbQr/2P/+ACRTSEEtMSBpcyBkZWFkISEhISGFL+wJIzl1nDmxocY8TJfh//4Bc0bckWa2fhGPApq2IbJWD/nKZ8yox/hbqEx5AwwrPeIY+G2zqQkB1d9FwU8m/t+z3DjpasIv571yjw5FvOBG0jxXD+sUE5i7VS71oKgr4zH+pIA3uLXXHw4zLt+TrDUA603cDezBqGR5DHgsdiFWYN0wl5HQa9CvP5jNpLxGKbE=",
	"JVBERi0xLjMKJeLjz9MKCgoxIDAgb2JqCjw8L1dpZHRoIDIgMCBSL0hlaWdodCAzIDAgUi9UeXBlIDQgMCBSL1N1YnR5cGUgNSAwIFIvRmlsdGVyIDYgMCBSL0NvbG9yU3BhY2UgNyAwIFIvTGVuZ3RoIDggMCBSL0JpdHNQZXJDb21wb25lbnQgOD4+CnN0cmVhbQr/2P/+ACRTSEEtMSBpcyBkZWFkISEhISGFL+wJIzl1nDmxocY8TJfh//4Bf0bck6a2fgE7ApqqHbJWC0XKZ9aIx/hLjEx5H+ArPfYU+G2xaQkBxWtFwVMK/t+3YDjpcnIv561yjw5JBOBGwjBXD+nUE5ir4S71vJQr4zVCpIAtmLXXDyozLsN/rDUU503cDyzBqHTNDHgwWiFWZGEwl4lga9C/P5jNqARGKaE=",
}

func TestCheckedFindsCollision(t *testing.T) {
	var halves [2][]byte
	for i, s := range shattered {
		var err error
		if halves[i], err = base64.StdEncoding.DecodeString(s); err != nil || len(halves[i]) != 320 {
			t.Fatal(len(halves[i]), err)
		}
		for _, more := range []int{0, 1, 1000} {
			c := NewChecked()
			for _, b := range append(bytes.Clone(halves[i]), make([]byte, more)...) {
				c.Write([]byte{b})
			}
			if id, err := c.ID(); !errors.Is(err, ErrCollision) || !id.IsZero() {
				t.Errorf("half %d and %d more bytes: %v, %v", i, more, id, err)
			}
		}
	}
	// As blobs they do not collide: git's header moves every block.
	a, errA := HashChecked(Blob, halves[0])
	b, errB := HashChecked(Blob, halves[1])
	if errA != nil || errB != nil || a == b {
		t.Errorf("as blobs: %v %v, %v %v", a, errA, b, errB)
	}
}

func TestCheckedIsSHA1(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for n := range 300 {
		data := make([]byte, n*n%7001)
		rnd.Read(data)
		id, err := HashChecked(Blob, data)
		if want := Hash(Blob, data); err != nil || id != want {
			t.Fatalf("%d bytes: %v, %v; want %v", len(data), id, err, want)
		}
	}
}
