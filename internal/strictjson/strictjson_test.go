package strictjson

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"umbra/internal/need"
)

type operation struct {
	Op   string  `json:"op"`
	Path string  `json:"path"`
	Mode *string `json:"mode"`
	N    int32   `json:"n"`
}

type body struct {
	Goal       string            `json:"goal"`
	Force      bool              `json:"force"`
	Size       uint8             `json:"size"`
	Ratio      float64           `json:"ratio"`
	Operations []operation       `json:"operations"`
	Metadata   json.RawMessage   `json:"metadata"`
	Labels     map[string]string `json:"labels"`
	Any        any               `json:"any"`
	When       time.Time         `json:"when"`
	Hidden     string            `json:"-"`
}

func TestUnmarshalFills(t *testing.T) {
	var b body
	text := ` {"goal":"a\u00e9\ud83d\ude00\/\n","force":true,"size":255,"ratio":-1.5e3,"operations":[{"op":"x","path":"p","mode":"m","n":5.0},{}],
		"metadata":{"k":[1,2,{"z":null}]},"labels":{"a":"b"},"any":{"x":[1,"y",false,null]},"when":"2026-01-02T03:04:05Z","unknown":{"deep":[[]]},"GOAL":"no"} `
	need.NoError(t, Unmarshal([]byte(text), &b))
	mode := "m"
	want := body{Goal: "aé😀/\n", Force: true, Size: 255, Ratio: -1500, Operations: []operation{{"x", "p", &mode, 5}, {}},
		Metadata: json.RawMessage(`{"k":[1,2,{"z":null}]}`), Labels: map[string]string{"a": "b"},
		Any: map[string]any{"x": []any{json.Number("1"), "y", false, nil}}, When: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	if !reflect.DeepEqual(b, want) {
		t.Fatalf("got  %+v\nwant %+v", b, want)
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	deep := strings.Repeat("[", MaxDepth+1) + strings.Repeat("]", MaxDepth+1)
	for _, text := range []string{
		``, ` `, `{`, `}`, `{"a":1,}`, `[1,]`, `{"a" 1}`, `{a:1}`, `{"a":1} x`, `{"a":1}{}`, `nul`, `nulll`, `truex`, `01`, `-`, `1.`, `1e`, `+1`, `.5`,
		`{"a":1,"a":2}`, `{"x":{"a":1,"b":2,"a":3}}`, `{"x":[{"\u0061":1,"a":3}]}`, `{"metadata":{"q":1,"q":1}}`, `{"unknown":{"q":1,"q":1}}`,
		"{\"goal\":\"\xff\"}", "{\"goal\":\"\\n\xc3\"}", "{\"\xff\":1}", `{"goal":"\ud800"}`, `{"goal":"\ud800\u0041"}`, `{"goal":"\udc00"}`, `{"goal":"\u12g4"}`,
		"{\"goal\":\"\n\"}", `{"goal":"\x"}`, `{"goal":"`, `{"goal":"\`, `{"goal":"\"`, deep, "\ufeff{}", `'a'`, `[1 2]`, `{"goal":NaN}`,
	} {
		var b body
		err := Unmarshal([]byte(text), &b)
		if _, ok := errors.AsType[*SyntaxError](err); !ok && !strings.HasPrefix(text, `[[`) {
			t.Errorf("%q: %v, want a syntax error", text, err)
		} else if err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}

func TestUnmarshalNamesTheField(t *testing.T) {
	for text, want := range map[string]string{
		`{"goal":1}`:                          "goal must be a string",
		`{"force":"true"}`:                    "force must be true or false",
		`{"size":256}`:                        "size must be an integer",
		`{"size":-1}`:                         "size must be an integer",
		`{"operations":{}}`:                   "operations must be an array",
		`{"operations":[{},{"path":[]}]}`:     "operations[1].path must be a string",
		`{"operations":[{"mode":{}}]}`:        "operations[0].mode must be a string",
		`{"operations":[{"n":1.5}]}`:          "operations[0].n must be an integer",
		`{"operations":[{"n":99999999999}]}`:  "operations[0].n must be an integer",
		`{"labels":{"a":1}}`:                  "labels.a must be a string",
		`{"ratio":"x"}`:                       "ratio must be a number",
		`{"ratio":1e999}`:                     "ratio must be a number",
		`{"when":"yesterday"}`:                "when must be a valid time",
		`{"when":5}`:                          "when must be a string",
		`[]`:                                  "the body must be an object",
		`{"goal":[{"x":"y"}],"operations":1}`: "goal must be a string",
	} {
		var b body
		err := Unmarshal([]byte(text), &b)
		if _, ok := errors.AsType[*TypeError](err); !ok || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func TestNullLeavesTheTarget(t *testing.T) {
	mode := "m"
	o := operation{Op: "kept", Mode: &mode}
	if err := Unmarshal([]byte(`{"op":null,"mode":null}`), &o); err != nil || o.Op != "kept" || o.Mode != nil {
		t.Fatalf("%+v, %v", o, err)
	}
}

func TestNullIsRefused(t *testing.T) {
	var o struct {
		Path  *string  `json:"path" null:"refused"`
		Paths []string `json:"paths" null:"refused"`
	}
	for text, want := range map[string]TypeError{
		`{"path":null}`:  {Field: "path", Want: "a string"},
		`{"paths":null}`: {Field: "paths", Want: "an array"},
	} {
		wrong := &TypeError{}
		if err := Strict([]byte(text), &o); !errors.As(err, &wrong) || *wrong != want {
			t.Errorf("%s: %v, want %v", text, err, want)
		}
	}
}

// FuzzUnmarshal holds that whatever we take, encoding/json takes too and reads
// as the same value.
func FuzzUnmarshal(f *testing.F) {
	for _, s := range []string{`{"a":[1,2.5e-3,"x\u00e9",null,true,{"b":{}}]}`, `[[[]]]`, `"\ud83d\ude00"`, `{"a":1,"a":2}`, `-0`, "\"\xff\"", `1 2`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var ours any
		if err := Unmarshal(data, &ours); err != nil {
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is taken, and is not JSON", data)
		}
		var theirs any
		d := json.NewDecoder(strings.NewReader(string(data)))
		d.UseNumber()
		if err := d.Decode(&theirs); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if !reflect.DeepEqual(ours, theirs) {
			t.Fatalf("%q: %v against %v", data, ours, theirs)
		}
	})
}
