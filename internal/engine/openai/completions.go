package openai

import (
	"cmp"
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"time"
	"unicode/utf8"

	"llmmemory/internal/engine"
)

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	common
	Prompt   prompts `json:"prompt"`
	Echo     bool    `json:"echo"`
	Logprobs *int    `json:"logprobs"`
	BestOf   *int    `json:"best_of"`
}

// prompts is a text, a list of tokens, or a list of either.
type prompts struct {
	texts  []string
	tokens [][]int32
}

func (p *prompts) UnmarshalJSON(data []byte) error {
	var text string
	var tokens []int32
	switch {
	case string(data) == "null":
	case json.Unmarshal(data, &text) == nil:
		p.texts = []string{text}
	case json.Unmarshal(data, &tokens) == nil:
		p.tokens = [][]int32{tokens}
	case json.Unmarshal(data, &p.texts) == nil:
	case json.Unmarshal(data, &p.tokens) == nil:
		p.texts = nil
	default:
		return invalid("prompt", "prompt must be a string, a list of strings, a list of tokens, or a list of "+
			"lists of tokens.")
	}
	return nil
}

// completions answers /v1/completions.
func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	var raw json.RawMessage
	if err := decode(w, r, s.config.MaxBody, &raw); err != nil {
		return err
	}
	body := completionRequest{}
	if err := s.parse(raw, &body, &body.common); err != nil {
		return err
	}
	request, err := body.request()
	if err != nil {
		return err
	}
	if body.MaxTokens == nil {
		request.MaxTokens = 16
	}
	if body.Logprobs != nil {
		if request.Logprobs, err = logprobs("logprobs", *body.Logprobs); err != nil {
			return err
		}
	}
	wanted := request.N
	if body.BestOf != nil {
		if *body.BestOf < wanted || body.Stream && *body.BestOf != wanted {
			return invalid("best_of", "best_of is %d and n is %d; best_of must be at least n, and equal to it when "+
				"stream is true.", *body.BestOf, wanted)
		}
		if *body.BestOf > engine.MaxN {
			return invalid("best_of", "best_of is %d; it must be from 1 to %d.", *body.BestOf, engine.MaxN)
		}
		request.N = *body.BestOf
	}
	a := &completionAnswer{server: s, body: &body, id: newID("cmpl-"), created: time.Now().Unix(),
		logprobs: request.Logprobs >= 0}
	if body.UseBeamSearch {
		return s.beams(w, r, &body.common, body.prompts(s), request, wanted, a)
	}
	if request.N > wanted && request.Logprobs < 0 {
		request.Logprobs = 0 // to choose by
	}
	request.PromptLogprobs = body.Echo && a.logprobs
	j := &job{prompts: body.prompts(s), n: wanted, promptOnly: body.Echo && request.MaxTokens == 0}
	if j.promptOnly && request.MinTokens > 0 {
		return invalid("min_tokens", "min_tokens is %d; it must be 0 when max_tokens is.", request.MinTokens)
	}
	if err = s.submit(w, r, request, j); err != nil {
		return err
	}
	defer j.cancel()
	if body.Stream {
		return s.stream(w, r, j, a, body.StreamOptions)
	}
	return s.whole(w, r, j, a)
}

// parse reads a body that is JSON, and checks what has nothing to do with the
// prompt.
func (s *Server) parse(raw json.RawMessage, body any, c *common) error {
	if !utf8.Valid(raw) {
		return invalid("", "The body is not UTF-8, as JSON must be.")
	}
	var fields map[string]json.RawMessage
	if err := reread(raw, &fields); err != nil {
		return err
	}
	if err := unsupported(fields); err != nil {
		return err
	}
	if err := reread(exact(raw, reflect.TypeOf(body)), body); err != nil {
		return err
	}
	if c.Model == "" {
		return invalid("model", "model is missing; this server has %q.", s.config.Name)
	}
	return s.checkModel(c.Model)
}

// prompts are the prompts of a request with their tokens.
func (b *completionRequest) prompts(s *Server) (list []prompt) {
	for _, tokens := range b.Prompt.tokens {
		list = append(list, prompt{tokens: tokens})
	}
	for _, text := range b.Prompt.texts {
		list = append(list, prompt{s.config.Engine.Config().Tokenizer.Encode(text, true), text})
	}
	return list
}

// A completionAnswer writes an answer in the form of /v1/completions.
type completionAnswer struct {
	server   *Server
	body     *completionRequest
	id       string
	created  int64
	logprobs bool
}

type completionChoice struct {
	Index    int                 `json:"index"`
	Text     string              `json:"text"`
	Logprobs *completionLogprobs `json:"logprobs"`
	Finish   *engine.Finish      `json:"finish_reason"`
}

type completionBody struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}

func (a *completionAnswer) envelope(choices []completionChoice, u *usage) completionBody {
	return completionBody{a.id, "text_completion", a.created, a.server.config.Name, choices, u}
}

func (a *completionAnswer) choice(p *part) completionChoice {
	c := completionChoice{Index: p.index, Text: p.text}
	if a.body.Echo && p.first {
		c.Text = a.server.echo(p.prompt) + c.Text
	}
	if a.logprobs {
		c.Logprobs = a.server.completionLogprobs(p)
	}
	if p.finish != "" {
		c.Finish = &p.finish
	}
	return c
}

// echo is a prompt as it was given. Its tokens may decode to another text: with a space before it,
// normalized, or without the names of special tokens.
func (s *Server) echo(p prompt) string {
	if p.text != "" {
		return p.text
	}
	return s.config.Engine.Config().Tokenizer.Decode(p.tokens)
}

func (a *completionAnswer) whole(parts []part, u *usage) any {
	choices := []completionChoice{}
	for i := range parts {
		choices = append(choices, a.choice(&parts[i]))
	}
	return a.envelope(choices, u)
}

func (a *completionAnswer) chunk(p *part, u *usage) any {
	if p == nil {
		return a.envelope([]completionChoice{}, u)
	}
	return a.envelope([]completionChoice{a.choice(p)}, nil)
}

func (a *completionAnswer) opening(int) any { return nil }

// best orders answers by the sum of the logarithms of their probabilities.
func best(parts []part, n int) []part {
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(y.score(), x.score()) })
	return parts[:n]
}
