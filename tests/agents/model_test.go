package agents

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// A step is what the scripted model answers at one point of a conversation: calls
// of tools, or, if it has none, the text that ends the turn.
type step struct {
	calls []toolCall
	// shell says that a call is a shell, which may change any file, and common
	// that a call edits the file that all share. meet is a shell in which both
	// agents are at the same time.
	shell, common, meet bool
}

// toolCall is one call of a tool. input is the text of a free-form tool
// (OpenAI Responses only), args the arguments of any other.
type toolCall struct {
	namespace string
	name      string
	args      map[string]any
	input     string
}

// model is a model on loopback that follows scripts, in the wire forms that
// coding agents use: OpenAI Responses (Codex), OpenAI Chat Completions (opencode,
// Qwen Code) and Gemini generateContent (Gemini CLI).
//
// It keeps no state of a conversation: the first part of the request's path is
// the agent, the last "[script:NAME]" in the user's messages chooses the script
// ("main" otherwise), and the number of tool results after it is the position.
// So sub-agents that run at once and retries do not disturb each other.
type model struct {
	url     string
	scripts map[string]map[string][]step // by agent and name
	// next is called before a step of a script "main" is answered; all earlier
	// calls of that agent have ended then. It may wait. s is nil at the end.
	next func(agent string, at int, s *step)
}

// newModel starts a model that ends with the test.
func newModel(t *testing.T, scripts map[string]map[string][]step, next func(agent string, at int, s *step)) *model {
	t.Helper()
	m := &model{scripts: scripts, next: next}
	s := httptest.NewServer(m)
	t.Cleanup(s.Close)
	m.url = s.URL
	return m
}

// said is one thing that was said in a conversation: a user's text or a result.
type said struct {
	user   string
	result bool
}

// message has the fields of a message in all wire forms.
type message struct {
	Type    string          `json:"type"`
	Role    string          `json:"role"`
	Content json.RawMessage `json:"content"`
	Parts   []struct {
		Text             string          `json:"text"`
		FunctionResponse json.RawMessage `json:"functionResponse"`
	} `json:"parts"`
}

// text returns a message's content as one text.
func (m *message) text() string {
	var s string
	if json.Unmarshal(m.Content, &s) == nil {
		return s
	}
	var parts []struct{ Text string }
	_ = json.Unmarshal(m.Content, &parts)
	for _, p := range parts {
		s += p.Text + "\n"
	}
	return s
}

type request struct {
	Input    []message         `json:"input"`
	Messages []message         `json:"messages"`
	Contents []message         `json:"contents"`
	Tools    []json.RawMessage `json:"tools"`
	Stream   bool              `json:"stream"`
}

func (r *request) conversation() []said {
	var out []said
	for _, list := range [][]message{r.Input, r.Messages, r.Contents} {
		for _, m := range list {
			switch {
			case strings.HasSuffix(m.Type, "_call_output") || m.Role == "tool":
				out = append(out, said{result: true})
			case m.Role == "user" && m.Parts == nil || m.Type == "agent_message":
				out = append(out, said{user: m.text()})
			}
			for _, p := range m.Parts {
				if p.FunctionResponse != nil {
					out = append(out, said{result: true})
				} else if m.Role == "user" {
					out = append(out, said{user: p.Text})
				}
			}
		}
	}
	return out
}

var marker = regexp.MustCompile(`\[script:(\w+)\]`)

// find returns where the conversation is; s is nil at the script's end.
func (m *model) find(agent string, r *request) (name string, at int, s *step) {
	name, results := "main", 0
	for _, x := range r.conversation() {
		if all := marker.FindAllStringSubmatch(x.user, -1); all != nil {
			name, results = all[len(all)-1][1], 0
		} else if x.result {
			results++
		}
	}
	script := m.scripts[agent][name]
	for i := range script {
		if results < len(script[i].calls) {
			return name, i, &script[i]
		}
		results -= len(script[i].calls)
	}
	return name, len(script), nil
}

func (m *model) ServeHTTP(w http.ResponseWriter, hr *http.Request) {
	agent, path, _ := strings.Cut(strings.TrimPrefix(hr.URL.Path, "/"), "/")
	responses, chat := strings.HasSuffix(path, "/responses"), strings.HasSuffix(path, "/chat/completions")
	gemini, stream := strings.HasSuffix(path, ":generateContent"), strings.HasSuffix(path, ":streamGenerateContent")
	if !responses && !chat && !gemini && !stream {
		http.Error(w, "{}", http.StatusNotFound)
		return
	}
	raw, err := io.ReadAll(hr.Body)
	var r request
	if err != nil || json.Unmarshal(raw, &r) != nil {
		http.Error(w, "{}", http.StatusBadRequest)
		return
	}
	reply := func(kind, text string) {
		w.Header().Set("Content-Type", kind)
		_, _ = io.WriteString(w, text)
	}
	// Side questions (a title, a summary, a route) are no steps of a script.
	switch {
	case gemini:
		reply("application/json", geminiAnswer(nil, "{}"))
		return
	case chat && !r.Stream:
		reply("application/json", encode(map[string]any{"id": "a", "object": "chat.completion", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "finish_reason": "stop", "message": map[string]any{"role": "assistant", "content": "ok"}}}}))
		return
	case chat && len(r.Tools) == 0:
		reply("text/event-stream", chatAnswer("title", nil))
		return
	}
	name, at, s := m.find(agent, &r)
	if m.next != nil && name == "main" {
		m.next(agent, at, s)
	}
	var calls []toolCall
	if s != nil {
		calls = s.calls
	}
	id := fmt.Sprintf("%s_%d", name, at)
	switch {
	case responses:
		reply("text/event-stream", responsesAnswer(id, calls))
	case chat:
		reply("text/event-stream", chatAnswer(id, calls))
	default:
		reply("text/event-stream", "data: "+geminiAnswer(calls, "finished")+"\r\n\r\n")
	}
}

// encode is json.Marshal for what surely is JSON.
func encode(v any) string {
	raw, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(raw)
}

func responsesAnswer(id string, calls []toolCall) string {
	var b strings.Builder
	event := func(kind string, v map[string]any) {
		v["type"] = kind
		fmt.Fprintf(&b, "event: %s\ndata: %s\n\n", kind, encode(v))
	}
	item := func(i int, v map[string]any) {
		v["id"], v["status"] = fmt.Sprintf("item_%s_%d", id, i), "completed"
		event("response.output_item.done", map[string]any{"output_index": i, "item": v})
	}
	event("response.created", map[string]any{"response": map[string]any{"id": id}})
	for i, c := range calls {
		call := fmt.Sprintf("call_%s_%d", id, i)
		if c.input != "" {
			item(i, map[string]any{"type": "custom_tool_call", "name": c.name, "call_id": call, "input": c.input})
			continue
		}
		v := map[string]any{"type": "function_call", "name": c.name, "call_id": call, "arguments": encode(c.args)}
		if c.namespace != "" {
			v["namespace"] = c.namespace
		}
		item(i, v)
	}
	if len(calls) == 0 {
		item(0, map[string]any{"type": "message", "role": "assistant", "content": []any{map[string]any{"type": "output_text", "text": "finished"}}})
	}
	event("response.completed", map[string]any{"response": map[string]any{"id": id, "usage": map[string]any{
		"input_tokens": 1, "input_tokens_details": nil, "output_tokens": 1, "output_tokens_details": nil, "total_tokens": 2}}})
	return b.String()
}

func chatAnswer(id string, calls []toolCall) string {
	var b strings.Builder
	chunk := func(delta map[string]any, finish any) {
		fmt.Fprintf(&b, "data: %s\n\n", encode(map[string]any{"id": id, "object": "chat.completion.chunk", "created": 1, "model": "m",
			"choices": []any{map[string]any{"index": 0, "delta": delta, "finish_reason": finish}}}))
	}
	if len(calls) == 0 {
		chunk(map[string]any{"role": "assistant", "content": "finished"}, nil)
		chunk(map[string]any{}, "stop")
	} else {
		var list []any
		for i, c := range calls {
			list = append(list, map[string]any{"index": i, "id": fmt.Sprintf("call_%s_%d", id, i), "type": "function",
				"function": map[string]any{"name": c.name, "arguments": encode(c.args)}})
		}
		chunk(map[string]any{"role": "assistant", "tool_calls": list}, nil)
		chunk(map[string]any{}, "tool_calls")
	}
	b.WriteString("data: [DONE]\n\n")
	return b.String()
}

func geminiAnswer(calls []toolCall, text string) string {
	parts := []any{}
	for _, c := range calls {
		parts = append(parts, map[string]any{"functionCall": map[string]any{"name": c.name, "args": c.args}})
	}
	if len(calls) == 0 {
		parts = append(parts, map[string]any{"text": text})
	}
	return encode(map[string]any{"candidates": []any{map[string]any{"index": 0, "finishReason": "STOP", "content": map[string]any{"role": "model", "parts": parts}}},
		"usageMetadata": map[string]any{"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}})
}
