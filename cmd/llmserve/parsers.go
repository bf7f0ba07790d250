package main

import (
	"fmt"

	"github.com/spf13/pflag"

	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
)

// parserOptions are the flags that say how a model writes tool calls and reasoning.
type parserOptions struct{ tools, reasoning string }

func (o *parserOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.tools, "tool-call-parser", "auto",
		"how the model writes tool calls: "+toolparser.ToolNames()+", none, or auto: by its chat template")
	f.StringVar(&o.reasoning, "reasoning-parser", "auto",
		"how the model writes its reasoning: "+toolparser.ReasoningNames()+", none, or auto: by its chat template")
}

// format returns how a model with a chat template writes tool calls and reasoning. The template may be nil.
func (o *parserOptions) format(t *chat.Template) (f toolparser.Format, err error) {
	source := ""
	if t != nil {
		source = t.Source()
		f = toolparser.Choose(source)
	}
	switch o.tools {
	case "auto":
	case "none":
		f.Tools = nil
	default:
		if f.Tools, err = toolparser.Tools(o.tools, source); err != nil {
			return f, fmt.Errorf("--tool-call-parser: %w", err)
		}
	}
	switch o.reasoning {
	case "auto":
	case "none":
		f.Reasoning = nil
	default:
		if f.Reasoning, err = toolparser.Thinking(o.reasoning); err != nil {
			return f, fmt.Errorf("--reasoning-parser: %w", err)
		}
	}
	return f, f.Check()
}

func (o *parserOptions) describe(f toolparser.Format, t *chat.Template) string {
	source := func(flag string) string {
		if flag == "auto" {
			return ", by the chat template"
		}
		return ""
	}
	tools, reasoning := "none", "none"
	if f.Tools != nil {
		tools = f.Tools.Name
	}
	if f.Reasoning != nil {
		reasoning = f.Reasoning.Name
	}
	text := fmt.Sprintf("tool calls: %s%s; reasoning: %s%s", tools, source(o.tools), reasoning, source(o.reasoning))
	if !t.Mentions("tools") {
		text += "; the chat template does not show tools to the model"
	}
	return text
}
