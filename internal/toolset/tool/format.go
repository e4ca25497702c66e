package tool

import "encoding/json"

// Format is a form in which an API takes tools.
type Format string

// The formats.
const (
	MCP       Format = "mcp"
	OpenAI    Format = "openai"
	Anthropic Format = "anthropic"
	LangChain Format = "langchain"
)

type mcpTool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Annotations annotations     `json:"annotations"`
}

type annotations struct {
	Title string `json:"title"`
	Hints
}

type openAITool struct {
	Type     string         `json:"type"`
	Function openAIFunction `json:"function"`
}

type openAIFunction struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Parameters  json.RawMessage `json:"parameters"`
}

type anthropicTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"input_schema"`
}

type langChainTool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	Schema      json.RawMessage `json:"schema"`
}

// In gives tools in a format; false for a format that there is not.
func In(f Format, tools []Tool) ([]any, bool) {
	out := make([]any, 0, len(tools))
	for i := range tools {
		t := &tools[i]
		switch f {
		case MCP:
			out = append(out, mcpTool{t.Name, t.Title, t.Description, t.Schema(), annotations{t.Title, t.Hints}})
		case OpenAI:
			out = append(out, openAITool{"function", openAIFunction{t.Name, t.Description, t.Schema()}})
		case Anthropic:
			out = append(out, anthropicTool{t.Name, t.Description, t.Schema()})
		case LangChain:
			out = append(out, langChainTool{t.Name, t.Description, t.Schema()})
		}
	}
	return out, f == MCP || f == OpenAI || f == Anthropic || f == LangChain
}
