package tests

import (
	"net/url"
	"slices"
	"testing"
)

// Content is searched as it is now, and in history.
func TestWorkspaceSearch(t *testing.T) {
	p := newProject(t, map[string]string{"a.txt": "alpha\nneedle one\n", "sub/b.txt": "beta\n", "bin": "needle\x00"})
	k := p.task(t)
	ws := "/workspaces/" + k.str("workspace_id")
	k.put(t, "sub/b.txt", "beta\nneedle two\nneedle two\n").want(t, 200)
	k.put(t, "sub/b.txt", "beta\nneedle two\n").want(t, 200)
	k.put(t, "other", "nothing\n").want(t, 201)
	k.put(t, "sub/b.txt", "beta\nNEEDLE\n").want(t, 200)

	type line struct {
		Added bool
		Line  int
		Text  string
	}
	var found struct {
		Matches []struct {
			Path, Text string
			Line       int
			Before     []string
		}
		Truncated bool
	}
	p.Do("GET", ws+"/search?pattern=needle&literal=true&context=1", nil).Expect(200).JSON(&found)
	if len(found.Matches) != 1 || found.Matches[0].Path != "a.txt" || found.Matches[0].Line != 2 || !slices.Equal(found.Matches[0].Before, []string{"alpha"}) {
		t.Errorf("%+v", found)
	}
	p.Do("GET", ws+"/search?pattern=needle&literal=true&ignore_case=true&path=sub", nil).Expect(200).JSON(&found)
	if len(found.Matches) != 1 || found.Matches[0].Path != "sub/b.txt" || found.Matches[0].Text != "NEEDLE" {
		t.Errorf("%+v", found)
	}

	type page struct {
		Hits []struct {
			ID    int
			Path  string
			Lines []line
			More  int
		}
		Next     *string
		Searched int
	}
	var all page
	p.Do("GET", ws+"/log/search?pattern=needle&literal=true", nil).Expect(200).JSON(&all)
	if len(all.Hits) != 3 || all.Next != nil || all.Searched != 4 {
		t.Fatalf("%+v", all)
	}
	want := [][]line{{{false, 2, "needle two"}}, {{false, 3, "needle two"}}, {{true, 2, "needle two"}, {true, 3, "needle two"}}}
	for i, h := range all.Hits {
		if h.Path != "sub/b.txt" || !slices.Equal(h.Lines, want[i]) {
			t.Errorf("hit %d is %+v, want %+v", i, h, want[i])
		}
	}
	// Page by page it is the same.
	var ids []int
	for next := ""; ; {
		var one page
		p.Do("GET", ws+"/log/search?pattern=needle&literal=true&max=1&after="+url.QueryEscape(next), nil).Expect(200).JSON(&one)
		for _, h := range one.Hits {
			ids = append(ids, h.ID)
		}
		if one.Next == nil {
			break
		}
		next = *one.Next
	}
	if len(ids) != 3 || ids[0] != all.Hits[0].ID || ids[2] != all.Hits[2].ID {
		t.Errorf("%v", ids)
	}
	p.Do("GET", ws+"/log/search?pattern=needle.(two&path=sub", nil).Expect(400)
	p.Do("GET", ws+"/log/search", nil).Expect(400)
	p.Do("GET", ws+"/search", nil).Expect(400)
	p.Do("GET", ws+"/search?pattern=x&path=../y", nil).Expect(400)
}
