package server

import (
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"umbra/config"
)

func TestALogThatNobodyReadsHoldsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink, log := newLogger(config.Log{Level: "info", Format: config.FormatJSON}, w)
		long := strings.Repeat("x", 1000)
		const lines = 3 * maxLogBacklog / 1000
		for i := range lines {
			log.Info("line", "n", i, "text", long)
		}
		got := make(chan string)
		go func() {
			all, err := io.ReadAll(r)
			if err != nil {
				t.Error(err)
			}
			got <- string(all)
		}()
		synctest.Wait()
		log.Info("last")
		sink.Close(logPatience)
		w.Close()
		all := <-got
		dropped := 0
		if i := strings.Index(all, `"lines_dropped":`); i < 0 {
			t.Fatal("nobody tells what was dropped")
		} else if _, err := fmt.Sscanf(all[i:], `"lines_dropped":%d`, &dropped); err != nil {
			t.Fatal(err)
		}
		if kept := strings.Count(all, `"msg":"line"`); kept+dropped != lines || kept < maxLogBacklog/1200 {
			t.Errorf("%d kept, %d dropped of %d", kept, dropped, lines)
		}
		if !strings.HasSuffix(all, "}\n") || !strings.Contains(all, `"msg":"last"`) {
			t.Error("the end is lost")
		}
	})
}

func TestAFlushIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe()
		sink, log := newLogger(config.Log{Level: "warn", Format: config.FormatText}, w)
		log.Info("below the level")
		log.Warn("never read")
		start := time.Now()
		sink.Close(logPatience)
		if took := time.Since(start); took != logPatience {
			t.Error(took)
		}
		r.Close()
		synctest.Wait()
	})
}
