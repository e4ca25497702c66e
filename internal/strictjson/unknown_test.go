package strictjson

import (
	"errors"
	"testing"
)

func TestStrict(t *testing.T) {
	type inner struct {
		Path string `json:"path"`
	}
	type common struct {
		DryRun bool `json:"dry_run"`
	}
	type body struct {
		common
		Goal  string         `json:"goal"`
		List  []inner        `json:"list"`
		Any   map[string]any `json:"any"`
		Inner *inner         `json:"inner"`
	}
	for text, want := range map[string]UnknownError{
		`{"dryRun":true}`:                     {Field: "dryRun", Near: "dry_run"},
		`{"list":[{"path":"a"},{"pth":"b"}]}`: {Field: "list[1].pth", Near: "path"},
		`{"inner":{"x":1}}`:                   {Field: "inner.x"},
		`{"goal":7,"goall":"x"}`:              {Field: "goall", Near: "goal"},
		`{"wholly_different":1}`:              {Field: "wholly_different"},
	} {
		var b body
		err := Strict([]byte(text), &b)
		e, ok := errors.AsType[*UnknownError](err)
		if !ok || e.Field != want.Field || e.Near != want.Near {
			t.Errorf("%s: %v, want field %q near %q", text, err, want.Field, want.Near)
		}
		if Unmarshal([]byte(text), &b) != nil && text[2:8] != "goal\":" {
			t.Errorf("%s: Unmarshal fails", text)
		}
	}
	var b body
	if err := Strict([]byte(`{"dry_run":true,"any":{"what":{"ever":1}},"inner":null}`), &b); err != nil || !b.DryRun {
		t.Errorf("%v, %+v", err, b)
	}
	if _, ok := errors.AsType[*SyntaxError](Strict([]byte(`{"x":1,}`), &b)); !ok {
		t.Error("a syntax error does not come first")
	}
}

func TestNearest(t *testing.T) {
	names := []string{"dry_run", "include_external", "include_shared", "on_conflict", "path", "plan"}
	for name, want := range map[string]string{"dryRun": "dry_run", "DRY-RUN": "dry_run", "dryrum": "dry_run", "rdy_run": "dry_run",
		"includeExternal": "include_external", "external": "include_external", "conflict": "on_conflict", "paht": "path", "paln": "plan",
		"subtask": "", "x": "", "": "", "zzzzzzzz": ""} {
		if got := Nearest(name, names); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}

// A name of one edit is nearer than one that is a part of it.
func TestNearestOfParts(t *testing.T) {
	for name, want := range map[string]string{"subtask_idx": "subtask_id", "task_idx": "task_id", "maxx": "max", "max_per_filex": "max_per_file", "on_force": "force"} {
		if got := Nearest(name, []string{"task_id", "subtask_id", "max", "max_per_file", "force"}); got != want {
			t.Errorf("%s: %s, not %s", name, got, want)
		}
	}
}
