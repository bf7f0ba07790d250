package openai

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"

	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/model/chat/jinja"
	"llmmemory/internal/serving/model/marks"
)

// ImageLeftOut is the text of an image for a model that reads only text.
const ImageLeftOut = "[image left out]"

// kwargs are variables of the chat template.
type kwargs map[string]any

// UnmarshalJSON decodes the variables. It keeps the order of fields in objects, which a template may print.
func (k *kwargs) UnmarshalJSON(data []byte) error {
	const field = "chat_template_kwargs"
	var values map[string]json.RawMessage
	if json.Unmarshal(data, &values) != nil {
		return invalid(field, "chat_template_kwargs is not a JSON object; an object is expected.")
	}
	var known struct { // in all templates that have them; a template would take the text "false" for true
		EnableThinking bool `json:"enable_thinking"`
		Thinking       bool `json:"thinking"`
	}
	if err := Read(field, field, data, &known); err != nil {
		return err
	}
	*k = kwargs{}
	for name, text := range values {
		value, err := jinja.FromJSON(text)
		if err != nil {
			return invalid(field, "%v.", err)
		}
		(*k)[name] = value
	}
	return nil
}

// CheckKwargs checks a value for Config.DefaultKwargs. It refuses tools and, unless template is nil, the other variables
// that the server sets itself.
func CheckKwargs(text json.RawMessage, template *chat.Template) error {
	var k kwargs
	if err := k.UnmarshalJSON(text); err != nil {
		return err
	}
	if _, set := k["tools"]; set {
		return invalid("", `chat_template_kwargs: "tools" is set by the server; leave it out.`)
	}
	if template == nil {
		return nil
	}
	discard := func(string, *marks.Marks) error { return nil }
	_, err := template.RenderTo(context.Background(), discard, []chat.Message{{Role: "user"}}, chat.Options{Kwargs: k})
	if errors.Is(err, chat.ErrKwargs) {
		return err
	}
	return nil // other errors depend on the messages
}

// addVariables adds what the fields of the request and the defaults say to the variables of the chat template. The
// variables that the request itself has win over the defaults, and Think and Effort over both. Tools both in the request
// and in the variables are an error.
func (c *Chat) addVariables(template *chat.Template, defaults json.RawMessage) error {
	if c.variables == nil {
		c.variables = map[string]any{}
	}
	if err := c.addThinking(template); err != nil {
		return err
	}
	if len(defaults) > 0 {
		var k kwargs // decoded for each request, because a template may change the values
		if err := k.UnmarshalJSON(defaults); err != nil {
			return err
		}
		for name, value := range k {
			if _, set := c.variables[name]; !set {
				c.variables[name] = value
			}
		}
	}
	if len(c.tools) == 0 {
		return nil
	}
	if _, set := c.variables["tools"]; set {
		return invalid("chat_template_kwargs", "chat_template_kwargs has tools, and so has the body; give them once.")
	}
	tools := make([]any, len(c.tools))
	for i, t := range c.tools {
		tools[i] = t.definition
	}
	c.variables["tools"] = tools
	_, xml := c.variables["xml_tools"]
	if _, python := c.variables["python_tools"]; !xml && !python && template.Mentions("xml_tools") { // SmolLM3
		c.variables["xml_tools"] = tools
	}
	return nil
}

// readThinking sets Think, Effort and OmitReasoning from the fields that other servers have for them. The fields
// enable_thinking and reasoning_effort win over these.
func (body *chatFields) readThinking(c *Chat) error {
	if err := c.ReadThinking(body.Thinking); err != nil {
		return err
	}
	var r struct {
		Enabled   *bool  `json:"enabled"`
		Effort    string `json:"effort"`
		Exclude   bool   `json:"exclude"`
		MaxTokens int    `json:"max_tokens"` // no limit, like budget_tokens
		Summary   string `json:"summary"`    // of OpenAI; the answer has the whole reasoning
	}
	if !IsNull(body.Reasoning) {
		if err := ReadObject("reasoning", "reasoning", body.Reasoning, &r); err != nil {
			return err
		}
	}
	c.Think = cmp.Or(body.EnableThinking, r.Enabled, c.Think)
	c.OmitReasoning = c.OmitReasoning || r.Exclude
	for _, other := range []struct{ field, effort string }{{"reasoning.effort", r.Effort}, {"effort", body.ShortEffort}} {
		if c.Effort == "" {
			c.Effort, c.EffortField = other.effort, other.field
		}
	}
	return nil
}

// ReadThinking sets Think and OmitReasoning from thinking, a field of Anthropic's Messages. The budget is no limit: the
// model decides how long it thinks. If the type is adaptive, or if the chat template has no variable for thinking, the template and the
// model decide whether the model thinks.
func (c *Chat) ReadThinking(thinking json.RawMessage) error {
	if IsNull(thinking) {
		return nil
	}
	var t struct {
		Type    string `json:"type"`
		Budget  int    `json:"budget_tokens"`
		Display string `json:"display"`
	}
	if err := ReadObject("thinking", "thinking", thinking, &t); err != nil {
		return err
	}
	c.OmitReasoning = t.Display == "omitted"
	switch {
	case t.Type == "":
		return invalid("thinking", "thinking has no type; enabled, disabled and adaptive are known.")
	case t.Display != "" && t.Display != "summarized" && t.Display != "omitted":
		return invalid("thinking", "The display of thinking is %q; summarized and omitted are known.", t.Display)
	case t.Budget != 0 && t.Type != "enabled":
		return invalid("thinking", "thinking has budget_tokens, which only the type enabled may have.")
	case t.Type == "enabled", t.Type == "disabled":
		think := t.Type == "enabled"
		c.Think = &think
	case t.Type != "adaptive":
		return invalid("thinking", "The type of thinking is %q; enabled, disabled and adaptive are known.", t.Type)
	}
	return nil
}

// addThinking adds Think and Effort to the variables, if the template has variables for them.
func (c *Chat) addThinking(template *chat.Template) error {
	effort, think, err := c.thinking()
	if err != nil {
		return err
	}
	for _, name := range []string{"enable_thinking", "thinking"} { // of Qwen3 and SmolLM3; of DeepSeek and Granite
		if think != nil && template.Mentions(name) {
			c.variables[name] = *think
			break
		}
	}
	if effort != "" && template.Mentions("reasoning_effort") {
		c.variables["reasoning_effort"] = effort
	}
	return nil
}

// thinking returns Effort as templates expect it, and Think. An Effort of none means that the model shall not think.
func (c *Chat) thinking() (effort string, think *bool, err error) {
	switch c.Effort {
	case "", "low", "medium", "high":
		return c.Effort, c.Think, nil
	case "none":
		return "", new(bool), nil
	case "minimal":
		return "low", c.Think, nil
	case "xhigh", "max":
		return "high", c.Think, nil
	}
	return "", nil, invalid(c.EffortField, "%s is %q; none, minimal, low, medium, high, xhigh and max are known.", c.EffortField, c.Effort)
}
