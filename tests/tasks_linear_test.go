package tests

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A register of one file: what eight clients saw of reads and conditional
// writes over HTTP must be what one order of them gives.

type registerInput struct {
	write   bool
	ifMatch string // content that the file must have; "-" for a file that must not exist
	value   string
}

type registerOutput struct {
	ok    bool   // of a write: not refused by its condition
	value string // of a read
}

func registerModel() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return "-" },
		Step: func(state, input, output any) (bool, any) {
			in, out := input.(registerInput), output.(registerOutput)
			if !in.write {
				return out.value == state.(string), state
			}
			if in.ifMatch != state.(string) {
				return !out.ok, state
			}
			return out.ok, in.value
		},
		Equal: func(a, b any) bool { return a == b },
		DescribeOperation: func(input, output any) string {
			return fmt.Sprintf("%+v -> %+v", input, output)
		},
	}
}

func TestConditionalWritesAreLinearizable(t *testing.T) {
	p := newProject(t, nil)
	k := p.task(t)
	const clients, each, files = 8, 40, 2
	// The tag of each content that was ever written, so that a client can ask
	// for a content it has read of.
	start := time.Now()
	histories := make([][]porcupine.Operation, files)
	var mu sync.Mutex
	record := func(file, client int, in registerInput, out registerOutput, call, ret time.Duration) {
		mu.Lock()
		defer mu.Unlock()
		histories[file] = append(histories[file], porcupine.Operation{ClientId: client, Input: in, Output: out, Call: int64(call), Return: int64(ret)})
	}
	var all sync.WaitGroup
	won := make([]int, clients)
	for c := range clients {
		all.Go(func() {
			for i := range each {
				file := (c + i) % files
				name := fmt.Sprintf("register-%d", file)
				call := time.Since(start)
				r := p.call(t, "GET", k.url("/content?path="+url.QueryEscape(name)), nil)
				seen := "-"
				if r.Status == 200 {
					seen = string(r.Body)
				} else if r.Status != 404 {
					t.Errorf("read: %d %.200s", r.Status, r.Body)
					return
				}
				record(file, c, registerInput{}, registerOutput{value: seen}, call, time.Since(start))

				in := registerInput{write: true, ifMatch: seen, value: fmt.Sprintf("client %d, write %d", c, i)}
				header := []string{"If-None-Match", "*"}
				if seen != "-" {
					header = []string{"If-Match", r.head("Etag")}
				}
				call = time.Since(start)
				w := k.put(t, name, in.value, header...)
				ret := time.Since(start)
				switch w.Status {
				case 200, 201:
					won[c]++
				case 412:
				default:
					t.Errorf("write: %d %.200s", w.Status, w.Body)
					return
				}
				record(file, c, in, registerOutput{ok: w.Status != 412}, call, ret)
			}
		})
	}
	all.Wait()
	total := 0
	for _, n := range won {
		total += n
	}
	for file, history := range histories {
		if got := porcupine.CheckOperationsTimeout(registerModel(), history, 30*time.Second); got != porcupine.Ok {
			t.Errorf("file %d: the history of %d operations is %v", file, len(history), got)
		}
	}
	// Each that won is one commit, and no other is.
	if n := strings.TrimSpace(k.git(t, "rev-list", "--count", "refs/umbra/head", "--not", k.str("base"))); n != fmt.Sprint(total) {
		t.Errorf("%d writes won and %s commits were made", total, n)
	}
	k.fsck(t)
}
