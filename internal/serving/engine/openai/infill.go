package openai

import (
	"context"
	"encoding/json"
	"math"
	"net/http"
	"slices"
	"strings"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/model/tokenizer"
)

// infillRequest is the body of /infill, which is llama.cpp's. Fields that are not given have llama.cpp's defaults.
type infillRequest struct {
	common
	Prefix         string   `json:"input_prefix"`
	InputSuffix    string   `json:"input_suffix"`
	Extra          []extra  `json:"input_extra"`
	Prompt         string   `json:"prompt"` // the part of the prefix that is on the line of the cursor
	NumPredict     *int     `json:"n_predict"`
	ResponseFields []string `json:"response_fields"`
}

// An extra is a part of a file that the model sees before the prefix.
type extra struct {
	Filename string `json:"filename"`
	Text     string `json:"text"`
}

// infillFields has the fields of llama.cpp's /infill that editors send and that are ignored here.
var infillFields = Fields{Harmless: []string{"t_max_prompt_ms", "t_max_predict_ms", "n_indent", "samplers"}}

// filled is the answer of /infill, or an event of its stream.
type filled struct {
	Index           int      `json:"index"`
	Content         string   `json:"content"`
	Stop            bool     `json:"stop"`
	Model           string   `json:"model,omitempty"`
	StopType        string   `json:"stop_type,omitempty"` // eos, limit or word
	StoppingWord    string   `json:"stopping_word"`
	TokensPredicted int      `json:"tokens_predicted"`
	TokensEvaluated int      `json:"tokens_evaluated"` // of the prompt
	TokensCached    int      `json:"tokens_cached"`    // of the prompt and the answer
	Truncated       bool     `json:"truncated"`
	Timings         *timings `json:"timings,omitempty"`
}

// infill answers /infill with the text between a prefix and a suffix.
func (s *Server) infill(w http.ResponseWriter, r *http.Request) error {
	temperature, topP, topK := 0.8, 0.95, 40
	body := infillRequest{common: common{Temperature: &temperature, TopP: &topP, TopK: &topK, MinP: 0.05}}
	if err := s.Decode(w, r, &body, infillFields); err != nil {
		return err
	}
	if err := s.checkModel(body.Model); err != nil {
		return err
	}
	request, err := body.request()
	if err != nil {
		return err
	}
	switch {
	case request.N != 1 || body.UseBeamSearch:
		return invalid("n", "/infill has one answer; leave n and use_beam_search out, or use suffix of /v1/completions.")
	case body.PromptLogprobs != nil:
		return invalid("prompt_logprobs", "prompt_logprobs is not supported by /infill; leave it out.")
	case body.Truncate != nil:
		return invalid("truncate_prompt_tokens", "truncate_prompt_tokens is not supported by /infill; give shorter texts.")
	}
	marks, err := s.infillOf("input_prefix")
	if err != nil {
		return err
	}
	switch {
	case body.NumPredict != nil:
		request.MaxTokens = tokenLimit(*body.NumPredict)
	case body.MaxTokens == nil:
		request.MaxTokens = math.MaxInt
	}
	if request.MaxTokens < 0 {
		return invalid("n_predict", "n_predict is %d; it must be at least 0, or -1 for as many as fit.", request.MaxTokens)
	}
	if !request.IgnoreEOS {
		request.StopTokenIDs = slices.Concat(request.StopTokenIDs, marks.Ends())
	}
	request.Adapter = s.adapter(body.Model)
	// As in llama.cpp, editors compute a prompt in advance with an n_predict of 0.
	j := &job{source: body.source(s, marks, request.MaxTokens), n: 1, answer: s.answer(false, &body.common, &request),
		promptField: "input_prefix", promptOnly: request.MaxTokens == 0, timings: true}
	if j.shape.field, j.shape.content, err = body.form(); err != nil {
		return err
	}
	j.shape.compactJSON = body.compactJSON
	for _, path := range body.ResponseFields {
		j.keeps += len(path)
	}
	return s.fill(w, r, request, j, body.Stream, body.ResponseFields)
}

// source returns the source of the prompt. If not all files fit beside an answer of maxTokens tokens, the first ones are
// left out. If maxTokens is not less than the limit of a prompt, no space is kept for the answer.
func (b *infillRequest) source(s *Server, marks *tokenizer.Infill, maxTokens int) source {
	prefix, suffix, limit := b.Prefix+b.Prompt, b.InputSuffix, s.promptLimit()
	var files []tokenizer.InfillFile
	for _, e := range b.Extra {
		if e.Filename == "" {
			e.Filename = "tmp" // as in llama.cpp
		}
		files = append(files, tokenizer.InfillFile{Name: e.Filename, Text: e.Text})
	}
	spare := 0
	if maxTokens < limit.tokens {
		spare = maxTokens
	}
	return source{1, func(ctx context.Context) ([]prompt, error) {
		tokens, err := limit.kept(marks.EncodeFiles(ctx, files, prefix, suffix, true, limit.tokens, spare))
		return []prompt{{tokens: tokens}}, err
	}}
}

// fill submits the job of a request and writes its answer. If fields are given, the answer, or the last event of a
// stream, has only these.
func (s *Server) fill(w http.ResponseWriter, r *http.Request, request engine.Request, j *job, stream bool, fields []string) error {
	if err := s.submit(w, r, request, j); err != nil {
		return err
	}
	defer j.cancel()
	if stream {
		return s.stream(w, r, j, func(out *sender) eventWriter { return &fillWriter{out: out, job: j, fields: fields} })
	}
	answers, _, err := s.answers(w, r, j)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, selected(j.filled(&answers[0], answers[0].text), fields))
	return nil
}

// filled returns the end of an answer. The parameter p is its last part.
func (j *job) filled(p *part, content string) filled {
	prompt := len(p.prompt.tokens)
	f := filled{Content: content, Stop: true, Model: j.answer.body.Model, StopType: "eos", TokensPredicted: p.consumed,
		TokensEvaluated: prompt, TokensCached: prompt + p.consumed, Timings: j.timingsOf(p.consumed)}
	if p.finish == engine.FinishLength {
		f.StopType = "limit"
	}
	if word, ok := p.stopReason.(string); ok {
		f.StopType, f.StoppingWord = "word", word
	}
	return f
}

// selected returns the fields of an answer that are given by paths such as timings/prompt_n, which become their names as
// in llama.cpp. Without paths it returns the whole answer.
func selected(f filled, paths []string) any {
	if len(paths) == 0 {
		return f
	}
	text, err := json.Marshal(f)
	var whole map[string]any
	if err != nil || json.Unmarshal(text, &whole) != nil {
		return f // it has a number that is not finite, as writeJSON reports
	}
	result := map[string]any{}
	for _, path := range paths {
		var value any = whole
		found := true
		for name := range strings.SplitSeq(path, "/") {
			object, ok := value.(map[string]any)
			if value, found = object[name]; !ok || !found {
				break
			}
		}
		if found {
			result[path] = value
		}
	}
	return result
}

// A fillWriter writes the events of a stream as llama.cpp's server does.
type fillWriter struct {
	out    *sender
	job    *job
	fields []string // of the last event
	last   part
}

func (w *fillWriter) part(p *part) {
	w.last = *p
	if p.text != "" {
		w.out.send(filled{Content: p.text, TokensPredicted: p.consumed, TokensEvaluated: len(p.prompt.tokens)})
	}
}

func (w *fillWriter) failed(err *apiError) { w.out.send(errorBody{err}) }

func (w *fillWriter) end(*output) { w.out.send(selected(w.job.filled(&w.last, ""), w.fields)) }

func (w *fillWriter) keepAlive() { w.out.write(keepAlive) }

// fillIn changes a request with a suffix, so that the answer is the text between the prompt and the suffix. It
// returns an error if the model or another field does not allow this.
func (s *Server) fillIn(body *completionRequest, r *engine.Request) error {
	infill, err := s.infillOf("suffix")
	switch {
	case err != nil:
		return err
	case len(body.Prompt.tokens) > 0:
		return invalid("prompt", "With suffix, prompt must be a string or a list of strings.")
	case body.Echo:
		return invalid("echo", "echo is not supported with suffix; leave it out.")
	case body.Truncate != nil:
		return invalid("truncate_prompt_tokens", "truncate_prompt_tokens is not supported with suffix; give shorter texts.")
	}
	if !r.IgnoreEOS {
		r.StopTokenIDs = slices.Concat(r.StopTokenIDs, infill.Ends())
	}
	return nil
}

// infillOf returns the tokens of the model for filling in the middle of a text. The parameter field is the field of the
// request that needs them.
func (s *Server) infillOf(field string) (*tokenizer.Infill, error) {
	infill := s.config.Engine.Config().Tokenizer.Infill()
	if infill == nil {
		return nil, invalid(field, "%s is not supported by the model %q: its vocabulary has no tokens around a prefix and a "+
			"suffix, such as <|fim_prefix|>; leave it out.", field, s.config.Name)
	}
	return infill, nil
}
