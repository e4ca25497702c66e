package tests

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"umbra/internal/need"
	"umbra/tests/harness"
)

const transactionsDocument = `{"openapi":"3.0.3","info":{"title":"bank","version":"1"},"servers":[{"url":"%s"}],"paths":{
"/transactions":{"get":{"operationId":"listTransactions","summary":"All transactions","parameters":[{"name":"limit","in":"query","schema":{"type":"integer"}}],"responses":{"200":{"description":"ok"}}}},
"/transactions/{id}":{"get":{"operationId":"getTransaction","parameters":[{"name":"id","in":"path","required":true,"schema":{"type":"string"}}],"responses":{"200":{"description":"ok"}}}}}}`

// seedExample is the example of the seed document.
const seedExample = `
local data = sdk.list_transactions({ limit = 10000 })

local csv = "id,date,amount,category\n"
for _, tx in ipairs(data.items) do
    csv = csv .. string.format("%s,%s,%.2f,%s\n", tx.id, tx.date, tx.amount, tx.category)
end

file.save("transactions.csv", csv)

local summary = {
    total = #data.items,
    sum = 0,
}
for _, tx in ipairs(data.items) do
    summary.sum = summary.sum + tx.amount
end
file.save("summary.json", json.encode(summary))

return summary`

// bank is a local API of n transactions; it wants a token.
func bank(t *testing.T, n int) *httptest.Server {
	t.Helper()
	items := make([]obj, n)
	for i := range items {
		items[i] = obj{"id": fmt.Sprint("tx", i), "date": "2026-01-02", "amount": float64(i) + 0.5, "category": "food"}
	}
	all, err := json.Marshal(obj{"items": items})
	need.NoError(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer hidden-token" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/transactions" {
			_, _ = w.Write(all)
			return
		}
		w.WriteHeader(http.StatusNotFound)
		_, _ = fmt.Fprintf(w, "no %s for %s", r.URL.EscapedPath(), r.Header.Get("Authorization"))
	}))
	t.Cleanup(s.Close)
	return s
}

func TestScriptsSDK(t *testing.T) {
	api := bank(t, 10000)
	spec := filepath.Join(t.TempDir(), "bank.json")
	need.NoError(t, os.WriteFile(spec, fmt.Appendf(nil, transactionsDocument, api.URL), 0o600))
	s := startScripter(t, harness.Options{
		Config: "scripts:\n  max_api_calls: 3\n  apis:\n    - name: bank\n      spec: " + spec + "\n      headers: {Authorization: \"Bearer ${BANK_TOKEN}\"}\n",
		Env:    []string{"BANK_TOKEN=hidden-token", "HTTP_PROXY=http://127.0.0.1:1"},
	})
	out := s.value(t, seedExample, `{"sum":50000000,"total":10000}`)
	if out.Stats.Calls != 1 || len(out.Files) != 2 || !strings.HasPrefix(s.content(t, "transactions.csv"), "id,date,amount,category\ntx0,2026-01-02,0.50,food\n") ||
		s.content(t, "summary.json") != `{"sum":50000000,"total":10000}` {
		t.Errorf("%+v", out)
	}
	bad := s.exec(t, 422, `return sdk.get_transaction({id = "a/../b"})`)
	if want := "HTTP 404 from get_transaction: no /transactions/a%2F..%2Fb for ***"; bad.Error.Message != want || bad.Stats.Calls != 1 {
		t.Errorf("%+v", bad)
	}
	out = s.value(t, `local n = 0 for i = 1, 5 do if pcall(sdk.list_transactions) then n += 1 end end print(sdk, json.encode(sdk)) return n`, `3`)
	if out.Stats.Calls != 3 || strings.Contains(strings.Join(out.Logs, ""), "hidden") {
		t.Errorf("%+v", out)
	}
	r := s.Do("GET", "/scripts/sdk", nil).Expect(200)
	if text := string(r.Body); !strings.Contains(text, "list_transactions: (args: { limit: number? }?) -> any") || strings.Contains(text, "hidden") {
		t.Error(text)
	}
	if strings.Contains(s.Log.String(), "hidden-token") {
		t.Error("the log tells the token")
	}
}

func TestScriptsBrokenDocument(t *testing.T) {
	dir := t.TempDir()
	spec, config := filepath.Join(dir, "broken.json"), filepath.Join(dir, "config.yaml")
	need.NoError(t, os.WriteFile(spec, []byte("{"), 0o600))
	need.NoError(t, os.WriteFile(config, []byte("scripts:\n  apis: [{name: a, spec: "+spec+"}]\n"), 0o600))
	status, stdout, stderr := harness.Run(t, nil, "serve", "--config", config, "--listen", "127.0.0.1:0", "--data-dir", filepath.Join(dir, "data"))
	if status != 2 || stdout != "" || !strings.Contains(stderr, "broken.json") {
		t.Errorf("status %d, %q, %q", status, stdout, stderr)
	}
}
