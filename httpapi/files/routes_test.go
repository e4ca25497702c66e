package files_test

import (
	"testing"

	"umbra/internal/server/servertest"
)

func TestRoutes(t *testing.T) {
	s := servertest.New(t)
	s.Check([]servertest.Case{
		{Request: "GET /tasks/{task}/list", Status: 200, Has: `"path":"a.txt"`},
		{Request: "GET /tasks/{task}/list?limit=0", Status: 400, Code: "invalid_parameter"},
		{Request: "GET /tasks/none/list", Status: 404, Code: "task_not_found"},
		{Request: "GET /tasks/{task}/stat?path=a.txt", Status: 200, Has: `"size":8`},
		{Request: "GET /tasks/{task}/stat", Status: 400, Code: "invalid_parameter"},
		{Request: "GET /tasks/{task}/stat?path=none", Status: 404, Code: "file_not_found"},
		{Request: "GET /tasks/{task}/search?pattern=two", Status: 200, Has: `"line":2`},
		{Request: "GET /tasks/{task}/search", Status: 400},
		{Request: "GET /tasks/{task}/glob?pattern=*.txt", Status: 200, Has: `"a.txt"`},
		{Request: "POST /tasks/{task}/edit", Body: `{"path":"a.txt","old_string":"two","new_string":"three"}`, Status: 200, Has: `"occurrences":1`},
		{Request: "POST /tasks/{task}/edit", Body: `{"path":"a.txt","old_string":"two"}`, Status: 422, Code: "validation_failed"},
		{Request: "POST /tasks/{task}/edit", Body: `{"path":"a.txt","old_string":"two","new_string":"three"}`, Status: 422, Code: "no_match"},
		{Request: "POST /tasks/{task}/edit", Body: `{"path":"a.txt","old_string":"three","new_string":"four"}`, Headers: []string{`If-Match: "0000000000000000000000000000000000000001"`}, Status: 412, Code: "precondition_failed"},
		{Request: "POST /tasks/{task}/append?path=a.txt", Body: "more", Status: 200, Has: `"operation":"modify"`},
		{Request: "POST /tasks/{task}/mkdir", Body: `{"path":"d"}`, Status: 201, Has: `"created":true`},
		{Request: "POST /tasks/{task}/mkdir", Body: `{"path":"d"}`, Status: 409, Code: "target_exists"},
		{Request: "POST /tasks/{task}/mkdir", Body: `{"path":"x/y"}`, Status: 404, Code: "parent_not_found"},
		{Request: "POST /tasks/{task}/copy", Body: `{"from":"a.txt","to":"b.txt"}`, Status: 200, Has: `"commit":"`},
		{Request: "POST /tasks/{task}/copy", Body: `{"from":"a.txt","to":"scratch://b.txt"}`, Status: 422, Code: "not_in_workspace"},
		{Request: "POST /tasks/{task}/symlink", Body: `{"path":"l","target":"a.txt"}`, Status: 201, Has: `"target":"a.txt"`},
		{Request: "POST /tasks/{task}/symlink", Body: `{"path":"l2"}`, Status: 422, Code: "validation_failed"},
		// The task's own directories take the same changes, without a commit.
		{Request: "POST /tasks/{task}/append?path=scratch://n", Body: "one", Status: 201, Has: `"operation":"create","change_id":null,"commit":null`},
		{Request: "POST /tasks/{task}/append?path=scratch://n", Body: "two", Status: 200, Has: `"bytes":6`},
		{Request: "POST /tasks/{task}/append?path=scratch://none", Body: "two", Headers: []string{"If-Match: *"}, Status: 412, Code: "precondition_failed"},
		{Request: "POST /tasks/{task}/edit", Body: `{"path":"scratch://n","old_string":"two","new_string":"2"}`, Status: 200, Has: `"occurrences":1`},
		{Request: "POST /tasks/{task}/edit", Body: `{"path":"scratch://none","old_string":"two","new_string":"2"}`, Status: 404, Code: "file_not_found"},
		{Request: "POST /tasks/{task}/mkdir", Body: `{"path":"scratch://d/e","recursive":true}`, Status: 201, Has: `"path":"scratch://d/e"`},
		{Request: "POST /tasks/{task}/mkdir", Body: `{"path":"scratch://d/e"}`, Status: 409, Code: "target_exists"},
		{Request: "GET /tasks/{task}/list?path=scratch://&recursive=true", Status: 200, Has: `"path":"scratch://d/e"`},
		{Request: "GET /tasks/{task}/stat?path=scratch://n", Status: 200, Has: `"size":4`},
	})
}
