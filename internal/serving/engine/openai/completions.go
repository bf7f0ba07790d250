package openai

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"llmmemory/internal/serving/engine"
)

// completionRequest is the body of /v1/completions.
type completionRequest struct {
	common
	Prompt   prompts `json:"prompt"`
	Suffix   string  `json:"suffix"` // what follows the answer; "" means nothing
	Echo     bool    `json:"echo"`
	Logprobs *int    `json:"logprobs"`
	BestOf   *int    `json:"best_of"`

	AddSpecialTokens *bool `json:"add_special_tokens"`
}

// prompts is the value of the field prompt: a text, a list of tokens, a list of texts or a list of lists of tokens.
type prompts struct {
	texts  []string
	tokens [][]int32
}

func (p *prompts) UnmarshalJSON(data []byte) error { return p.read("prompt", data) }

// count returns the number of prompts.
func (p *prompts) count() int { return len(p.texts) + len(p.tokens) }

// read decodes the value of a field.
func (p *prompts) read(field string, data []byte) error {
	var one string
	var err error
	elements := bytes.TrimLeft(bytes.TrimPrefix(data, []byte("[")), " \t\r\n")
	tooMany := invalid(field, "There are more than %d %ss.", maxPrompts, field)
	switch {
	case string(data) == "null":
		return nil
	case data[0] == '"':
		err = json.Unmarshal(data, &one)
		p.texts = []string{one}
	case data[0] == '[' && elements[0] == '"':
		p.texts, err = list[string](data, maxPrompts, tooMany)
	case data[0] == '[' && elements[0] == '[':
		p.tokens, err = list[[]int32](data, maxPrompts, tooMany)
	default:
		p.tokens = make([][]int32, 1)
		err = json.Unmarshal(data, &p.tokens[0])
	}
	if err != nil && !errors.Is(err, tooMany) {
		return invalid(field, "%s must be a string, a list of strings, a list of tokens, or a list of lists of tokens.", field)
	}
	return err
}

// maxPrompts is the largest number of prompts that read accepts. It limits the memory for a long list.
// Config.MaxTexts, which is checked afterwards, can set a lower limit.
const maxPrompts = 1 << 12

func (s *Server) completions(w http.ResponseWriter, r *http.Request) error {
	body := completionRequest{}
	if err := s.parse(w, r, &body, &body.common); err != nil {
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
	if body.Suffix != "" {
		if err := s.fillIn(&body, &request); err != nil {
			return err
		}
	}
	limit, err := s.limit(body.Truncate, request.MaxTokens)
	if err != nil {
		return err
	}
	a := s.answer(false, &body.common, &request)
	a.echo = body.Echo
	j := &job{source: body.source(s, limit), n: wanted, answer: a, promptField: "prompt", promptOnly: a.echo && request.MaxTokens == 0}
	if j.shape.field, j.shape.content, err = body.form(); err != nil {
		return err
	}
	j.shape.compactJSON = body.compactJSON
	if !body.UseBeamSearch {
		if request.N > wanted && !a.logprobs {
			request.Logprobs = 0 // best needs the log probabilities
		}
		if a.echo && a.logprobs {
			request.PromptLogprobs = max(request.PromptLogprobs, request.Logprobs)
		}
		if j.promptOnly && request.MinTokens > 0 {
			return invalid("min_tokens", "min_tokens is %d; it must be 0 when max_tokens is.", request.MinTokens)
		}
	}
	return s.runJob(w, r, &body.common, request, j)
}

// parse decodes the body of a request and checks its model.
func (s *Server) parse(w http.ResponseWriter, r *http.Request, body any, c *common) error {
	if err := s.Decode(w, r, body, Fields{}); err != nil {
		return err
	}
	return s.checkModel(c.Model)
}

// Decode reads the body of a request and decodes it as Unmarshal does.
func (s *Server) Decode(w http.ResponseWriter, r *http.Request, body any, others Fields) error {
	data, err := s.read(w, r)
	if err != nil {
		return err
	}
	if err := s.countValues(data, tokenFields(reflect.TypeOf(body).Elem())); err != nil {
		return err
	}
	return Unmarshal(data, body, others)
}

// Unmarshal decodes data into body, a pointer to a struct. It accepts the fields of the struct and the fields that
// others allows. It also accepts a field that has no effect on an answer, for example because its value is null. For
// any other field it returns an error.
func Unmarshal(data []byte, body any, others Fields) error {
	var fields map[string]json.RawMessage
	if err := unmarshal(data, &fields); err != nil {
		return err
	}
	if !utf8.Valid(data) {
		return invalid("", "The body is not UTF-8, as JSON must be.")
	}
	t := reflect.TypeOf(body).Elem()
	if err := others.check(fields, t); err != nil {
		return err
	}
	if jsonNames(t)["messages"] == reflect.TypeFor[[]chatMessage]() {
		if err := checkMessages(fields["messages"]); err != nil {
			return err
		}
	}
	err := unmarshal(exactObject(data, fields, t), body)
	var wrong *apiError
	if errors.As(err, &wrong) && wrong.Param != nil && strings.HasPrefix(*wrong.Param, "messages") {
		return cmp.Or(checkTypes(fields["messages"]), err)
	}
	return err
}

func (b *completionRequest) source(s *Server, limit limit) source {
	given, echo, special := b.Prompt, b.Echo, b.AddSpecialTokens == nil || *b.AddSpecialTokens
	return source{len(given.tokens) + len(given.texts), func(ctx context.Context) (list []prompt, err error) {
		for _, tokens := range given.tokens {
			list = append(list, prompt{tokens: limit.cut(tokens)})
		}
		for _, text := range given.texts {
			p := prompt{}
			if b.Suffix != "" {
				infill := s.config.Engine.Config().Tokenizer.Infill()
				p.tokens, err = limit.kept(infill.Encode(ctx, text, b.Suffix, special, limit.tokens))
			} else {
				p.tokens, err = s.encode(ctx, text, special, limit)
			}
			if err != nil {
				return nil, err
			}
			if echo && limit.keep == 0 { // otherwise the text of the tokens to keep is echoed
				p.text = text
			}
			list = append(list, p)
		}
		return list, nil
	}}
}

// best returns the n answers with the highest log probabilities.
func best(parts []part, n int) []part {
	slices.SortStableFunc(parts, func(x, y part) int { return cmp.Compare(y.score(), x.score()) })
	return parts[:n]
}
