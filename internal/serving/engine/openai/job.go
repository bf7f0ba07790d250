package openai

import (
	"errors"
	"net/http"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/toolparser"
)

// A job is the work of the engine for one HTTP request. It has a stream for each prompt.
type job struct {
	streams     []*engine.Stream
	source      source
	prompts     []prompt // made by source
	answer      *answer  // of OpenAI's interface, or nil
	promptField string   // the field of the request that contains the prompt
	n           int      // answers to a prompt that the client gets
	bestOf      int      // answers to a prompt that the engine generates
	timings     bool
	keeps       int // bytes of the request, besides its prompts, that are needed until the last answer has ended

	shape shape // with only the format once the constraint is known

	// parser returns the parser of an answer to a prompt. If it is nil, as in completions, the text of an answer is not
	// parsed.
	parser        func(p *prompt) *toolparser.Parser
	oneCall       bool // only the first call of an answer is kept (parallel_tool_calls is false)
	omitReasoning bool // the reasoning is left out
	special       func(token int32) bool

	// promptOnly means that the client gets no answers (max_tokens 0 with echo, n_predict 0 of /infill). As in vLLM, the
	// engine still generates one token of each answer.
	promptOnly bool
}

type prompt struct {
	tokens []int32
	text   string // as the client gave it; "" if it gave tokens or messages
	end    string // the last bytes of the text that the chat template made
}

// A part is an answer, or a new part of it.
type part struct {
	index  int
	prompt prompt
	first  bool               // nothing of the answer was sent before
	text   string             // without a parser
	events []toolparser.Event // with a parser
	tokens []engine.Token
	prefix []engine.Token // the prompt with its log probabilities, if they were requested
	finish engine.Finish

	consumed  int           // tokens of the answer so far
	reasoning int           // those of them that are reasoning
	thinking  bool          // the last of them is
	position  *textPosition // where the next token begins

	// Fields of vLLM.
	stopReason     any
	promptLogprobs promptLogprobs
}

// score returns the log probability of the answer.
func (p *part) score() float64 {
	sum := 0.0
	for _, t := range p.tokens {
		sum += float64(t.Logprob.Value)
	}
	return sum
}

// runJob submits the prompts of a job and writes the answers.
func (s *Server) runJob(w http.ResponseWriter, r *http.Request, c *common, request engine.Request, j *job) error {
	request.Adapter = s.adapter(c.Model)
	if c.UseBeamSearch {
		return s.beams(w, r, c, request, j)
	}
	// c is a part of the body, which is not needed while the request waits.
	stream, usage := c.Stream, c.StreamOptions != nil && c.StreamOptions.IncludeUsage
	j.timings = c.TimingsPerToken
	if err := s.submit(w, r, request, j); err != nil {
		return err
	}
	defer j.cancel()
	if stream {
		return s.stream(w, r, j, func(out *sender) eventWriter {
			return &chunks{out: out, job: j, usage: usage, calls: map[int]*int{}}
		})
	}
	answers, u, err := s.answers(w, r, j)
	if err != nil {
		return err
	}
	var choices []choice
	for i := range answers {
		choices = append(choices, j.answer.whole(&answers[i]))
	}
	body := j.answer.withPrompt(&answers[0]).withChoices(u, choices...)
	body.Timings = j.timingsOf(u.CompletionTokens)
	writeJSON(w, http.StatusOK, body)
	return nil
}

// submit submits all prompts of a job to the engine, or returns an error and submits none. The caller must cancel the
// job when it needs no more answers.
func (s *Server) submit(w http.ResponseWriter, req *http.Request, r engine.Request, j *job) error {
	j.bestOf = r.N
	if j.promptOnly {
		r.MaxTokens = 1
	}
	giveBack, err := s.admit(w, req, j, r)
	if err != nil {
		return err
	}
	if r.Constraint, err = s.constraint(req, j); err != nil {
		giveBack()
		return err
	}
	s.shrink(req, j)
	for _, p := range j.prompts {
		r.Prompt = p.tokens
		stream, err := s.config.Engine.Submit(r)
		if err != nil {
			j.cancel()
			giveBack()
			return err
		}
		j.streams = append(j.streams, stream)
	}
	return nil
}

// admit makes the prompts of job j and checks request r with each prompt. Then it counts the request against the limits
// of the client's API key. A request that admit refuses is not counted. If the request is refused later, the caller
// must call giveBack.
func (s *Server) admit(
	w http.ResponseWriter, req *http.Request, j *job, r engine.Request,
) (giveBack func(), err error) {
	c := s.config.Engine.Config()
	// All answers to the prompts must be able to run or wait at the same time. In beam search, bestOf is 0
	// here, and each prompt counts as one answer.
	limit := min(s.config.MaxTexts, 1+(c.MaxNumSeqs+c.MaxWaiting-1)/max(1, j.bestOf))
	switch {
	case r.Pooling != "":
		limit = maxInputs
		if j.promptField == "documents" {
			limit++ // the query can be a prompt of its own
		}
	case s.config.Pooling != nil && s.config.Pooling.Only:
		return nil, refused(http.StatusBadRequest, "not_supported", "The model %q makes no answers; use /v1/embeddings or /v1/rerank.",
			s.config.Name)
	}
	switch n := j.source.count; {
	case n == 0:
		return nil, invalid(j.promptField, "%s is missing.", j.promptField)
	case n > limit:
		return nil, invalid(j.promptField, "There are %d %ss; at most %d are possible.", n, strings.TrimSuffix(j.promptField, "s"), limit)
	}
	if err := r.CheckSettings(c.Model.VocabSize); err != nil {
		return nil, err
	}
	a := s.allowed[max(0, s.key(req))]
	if err := a.check(w.Header(), time.Now()); err != nil {
		return nil, err
	}
	if err := s.config.Engine.Refuses(); err != nil {
		return nil, err
	}
	tokens, err := s.count(req, j, r)
	if err != nil {
		return nil, err
	}
	if err := a.take(w.Header(), tokens, time.Now()); err != nil {
		return nil, err
	}
	return func() { a.giveBack(w.Header(), tokens, time.Now()) }, nil
}

// count makes the prompts of a job and checks them. It returns the number of tokens of all prompts and
// answers, where each answer counts with its greatest possible length.
func (s *Server) count(req *http.Request, j *job, r engine.Request) (tokens int, err error) {
	var long *engine.TooLong
	var bad *sampling.Invalid
	defer func() {
		if errors.As(err, &long) {
			long.Field, long.Pooling = j.promptField, r.Pooling != ""
		}
		if errors.As(err, &bad) && bad.Param == "prompt" {
			bad.Param = j.promptField
		}
	}()
	if j.prompts, err = s.prompts(req, j.source); err != nil {
		return 0, err
	}
	j.source.make = nil // it refers to the texts, which are no longer needed
	c := s.config.Engine.Config()
	for _, p := range j.prompts {
		r.Prompt = p.tokens
		if err := r.Check(c.MaxModelLen, c.Model.VocabSize); err != nil {
			return 0, err
		}
		tokens += len(p.tokens)
		if r.Pooling == "" {
			tokens += r.N * min(r.MaxTokens, c.MaxModelLen-len(p.tokens))
		}
	}
	return tokens, j.checkPromptLogprobs(&r)
}

// shrink drops what the prompts and the constraint of a job were made of, and frees the memory for it.
func (s *Server) shrink(r *http.Request, j *job) {
	j.shape = shape{format: j.shape.format}
	s.bodies.shrink(&reservationOf(r).share, j.kept())
}

// kept returns the number of bytes of the request that are needed until the last answer has ended, without the tokens of
// the prompts, which max_model_len limits.
func (j *job) kept() int {
	n := j.keeps
	for _, p := range j.prompts {
		n += len(p.text)
	}
	return n
}

func (j *job) cancel() {
	for _, s := range j.streams {
		s.Cancel()
	}
}

// usage returns the usage of a job. The parameter completion is the number of tokens in the job's answers,
// and reasoning is how many of these tokens belong to the reasoning.
func (j *job) usage(completion, reasoning int) *usage {
	u := &usage{CompletionTokens: completion, Details: &promptDetails{}}
	if j.shape.format.Reasoning != nil {
		u.CompletionDetails = &completionDetails{reasoning}
	}
	for i, s := range j.streams {
		u.PromptTokens += len(j.prompts[i].tokens)
		u.Details.CachedTokens += s.CachedTokens()
	}
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	return u
}
