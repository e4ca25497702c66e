package server

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

func TestWarnOfVariables(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	warnOfVariables(log, []string{"UMBRA_LISTN=x", "UMBRA_DATADIR=x", "UMBRA_LISTEN=x", "UMBRA_TOKEN=x", "UMBRA_CALL=x", "UMBRA_TASK=x", "LISTEN=x", "UMBRA_BIN=x", "UMBRA_SEED=1"})
	var warned []string
	for line := range strings.Lines(out.String()) {
		warned = append(warned, line[strings.Index(line, "variable="):len(line)-1])
	}
	want := []string{"variable=UMBRA_LISTN did_you_mean=UMBRA_LISTEN", "variable=UMBRA_DATADIR did_you_mean=UMBRA_DATA_DIR"}
	if !slices.Equal(warned, want) {
		t.Errorf("%q", warned)
	}
}
