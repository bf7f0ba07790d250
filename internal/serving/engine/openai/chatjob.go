package openai

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/toolparser"
)

// chatJob returns the job of a chat. It also sets c.Request.ShownTokens, and c.OneCall if the chat template shows only
// one call of a message. The parameter limit applies to the prompt.
func (s *Server) chatJob(c *Chat, limit limit) (*job, error) {
	c.OneCall = c.OneCall || s.config.Template != nil && s.config.Template.OneCall()
	j := &job{n: c.Request.N, promptField: c.MessagesField, oneCall: c.OneCall, omitReasoning: c.OmitReasoning, keeps: c.ReplyBytes}
	var err error
	if j.source, err = s.chatSource(c, limit); err != nil {
		return nil, err
	}
	switch {
	case c.choice.mode != auto:
	case s.config.Format.Tools == nil:
		return nil, invalid("tools", "This server does not look for tool calls (--tool-call-parser none); use tool_choice none or required.")
	case !s.config.Template.Mentions("tools"):
		return nil, invalid("tools", "The chat template of the model %q does not show tools to the model; start the server "+
			"with a --chat-template that does, or use tool_choice required.", s.config.Name)
	}
	j.shape = shape{content: c.Form, field: c.FormField, format: s.config.Format, tools: c.callable(), mode: c.choice.mode,
		oneCall: c.OneCall, compactJSON: c.compactJSON}
	j.shape.format.AddTools()
	c.setParser(j)
	j.special = s.config.Engine.Config().Tokenizer.Special
	c.Request.ShownTokens = s.shown
	return j, nil
}

// setParser sets the parser of the job's answers. The parser lives until the last answer, so it keeps only what it needs
// of the tools: their names, and their schemas if the parser reads the text of parameters.
func (c *Chat) setParser(j *job) {
	format := j.shape.format
	needed := &Chat{choice: toolChoice{mode: auto}, tools: slices.Clone(c.callable())}
	for i := range needed.tools {
		t := &needed.tools[i]
		t.definition = nil
		if format.Tools.Tagged == nil {
			t.parameters = nil
		}
		j.keeps += len(t.name) + len(t.parameters)
	}
	known, kinds := needed.known(), newParameterKinds(needed.tools)
	j.parser = func(p *prompt) *toolparser.Parser {
		return format.Parser(toolparser.Options{Known: known, Prompt: p.end, ParameterKind: kinds.kind})
	}
}

// checkCalls returns an error if a message is the result of a call, but no earlier message has a call with this id. As
// in vLLM, ids may be missing, because some messages are written for chat templates, which need no ids. If an earlier
// call has no id, any result is accepted. If there is no earlier call, a result without an id is accepted.
func (c *Chat) checkCalls() error {
	var ids []string
	known := map[string]bool{}
	for _, m := range c.Messages {
		for _, call := range m.ToolCalls {
			ids = append(ids, chat.CallID(call))
			known[ids[len(ids)-1]] = true
		}
		switch id := m.ToolCallID; {
		case m.Role != "tool", known[id], known[""], id == "" && len(ids) == 0:
		case id == "":
			return invalid(c.MessagesField, "A result has no tool_call_id, but the calls before it are %s.", fmt.Sprintf("%q", ids))
		case len(ids) == 0:
			return invalid(c.MessagesField, "A result is of the call %q, but there is no call before it.", id)
		default:
			return invalid(c.MessagesField, "A result is of the call %q, but the calls before it are %s.", id, fmt.Sprintf("%q", ids))
		}
	}
	return nil
}

// shownTokens returns the special tokens whose names the format's parsers look for.
func shownTokens(c *Config) (ids []int32) {
	markers, engine := c.Format.Markers(), c.Engine.Config()
	for i := range engine.Model.VocabSize {
		id := int32(i)
		if !engine.Tokenizer.Special(id) {
			continue
		}
		name := string(engine.Tokenizer.Piece(id))
		if name != "" && slices.ContainsFunc(markers, func(text string) bool { return strings.Contains(text, name) }) {
			ids = append(ids, id)
		}
	}
	return ids
}

// chatSource returns the source of the prompt of a chat.
func (s *Server) chatSource(c *Chat, limit limit) (source, error) {
	template := s.config.Template
	switch {
	case template == nil && s.config.TemplateError != nil:
		return source{}, invalid("", "The chat template of the model %q cannot be used: %v. Use /v1/completions.", s.config.Name,
			s.config.TemplateError)
	case template == nil:
		return source{}, invalid("", "The model %q has no chat template; use /v1/completions.", s.config.Name)
	}
	if c.Image != "" && !s.config.OmitImages {
		return source{}, invalid(c.MessagesField, "%s is an image, and this model reads text; leave it out, or start the server with "+
			"--omit-images, so that the model sees %q instead.", c.Image, ImageLeftOut)
	}
	if err := c.addVariables(template, s.config.DefaultKwargs); err != nil {
		return source{}, err
	}
	return source{1, func(ctx context.Context) ([]prompt, error) {
		p, err := s.chatPrompt(ctx, c, limit)
		return []prompt{p}, err
	}}, nil
}
