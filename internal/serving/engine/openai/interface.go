package openai

import (
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	mathrand "math/rand/v2"
	"net/http"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model/chat"
	"llmmemory/internal/serving/structured"
	"llmmemory/internal/serving/toolparser"
)

// An Interface is another interface to chats, such as Anthropic's. Its handlers read a body with Server.Decode,
// translate it to a Chat, and answer it with Server.Chat. So the limits and checks of /v1/chat/completions also apply
// to it.
type Interface struct {
	Paths []Path

	Error ErrorForm // nil means OpenAI's
}

// An ErrorForm returns the JSON body of an error in the format of one Interface, such as Anthropic's. It may set
// headers.
type ErrorForm func(h http.Header, status int, message string) any

// A Path is a path that answers POST.
type Path struct {
	Name   string
	Answer func(*Server, http.ResponseWriter, *http.Request) error
}

// A Chat is a request for the next message of an assistant. Each HTTP interface, such as OpenAI's or Anthropic's,
// converts the JSON of its requests to a Chat.
type Chat struct {
	Model         string // "" means the server's
	Messages      []chat.Message
	MessagesField string // the field of the request that has the messages
	Continue      bool   // the answer continues the last message
	Image         string // the first part of the messages that is an image, for errors; its text is ImageLeftOut. "" means none

	Tools      []Tool
	ToolChoice string   // none, auto or required; "" means auto if there are tools
	Allowed    []string // the tools that may be called; nil means all. Otherwise ToolChoice is auto or required.
	OneCall    bool     // the answer has at most one call

	Form      *structured.Form // of the content of the answer; nil means any text
	FormField string           // the field of the request that has Form

	// Think and Effort become variables of the chat template if the template uses them. Think becomes
	// enable_thinking or thinking, and Effort becomes reasoning_effort. An Effort of none is a Think of false.
	Think         *bool
	Effort        string
	EffortField   string // the field of the request that has Effort
	OmitReasoning bool   // the answer is sent without the reasoning

	Request engine.Request // without a prompt
	Stream  bool

	Warnings   []string // what of the request the answer leaves out, for the log
	ReplyBytes int      // of the request that the Reply keeps until the answer has ended, because it repeats them

	// TooLong returns the interface's sentence about a prompt of so many tokens when at most limit are possible. If it is
	// nil, the sentence is that of OpenAI's chats. If TooLongEvent is set, a stream has this error as an event, because
	// the interface's clients look for it there.
	TooLong      func(tokens, limit int) string
	TooLongEvent bool

	template    *chat.Template // nil means the server's
	tools       []tool         // at most maxTools
	choice      toolChoice
	variables   map[string]any // of the chat template
	noPrompt    bool           // the prompt ends before the beginning of an answer (add_generation_prompt is false)
	special     bool           // the tokenizer adds its special tokens
	compactJSON bool           // JSON of a form, or of arguments that must fit a schema, has no more white space than json.dumps writes
}

// A Tool is a function that the model may call.
type Tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Parameters  json.RawMessage `json:"parameters,omitempty"` // a JSON Schema
	Strict      bool            `json:"strict,omitempty"`
}

// ToolCall returns a call for Message.ToolCalls. The arguments are JSON.
func ToolCall(id, name, arguments string) (any, error) {
	text, err := json.Marshal(toolCall{ID: id, Type: "function", Function: functionCall{name, arguments}})
	if err != nil {
		return nil, err
	}
	return chat.ToolCall(text)
}

// Send sends an event of a stream.
type Send func(event string, body any)

// A Reply translates the events of an answer to the format of an Interface. If the client wants a stream, the Reply
// sends events in this format. Otherwise the result of End is the body of the reply.
type Reply interface {
	Begin(Usage)                           // before the first event of the answer
	Add(toolparser.Event)                  // an event of the answer
	End(Ending) (body any)                 // the end of the answer. If there is no stream, the body is sent.
	Fail(status int, code, message string) // the end of a stream after an error
	KeepAlive()                            // sends an event in a stream while the answer does not continue
}

// Usage has numbers of tokens.
type Usage struct {
	Prompt     int
	Cached     int // those of the prompt that were in the prefix cache
	Completion int
	Reasoning  int // those of the completion that are reasoning
}

// An Ending says how an answer ended.
type Ending struct {
	Finish      engine.Finish
	Calls       bool // the answer has calls
	ContextFull bool // with FinishLength: the model's context ended the answer, not Request.MaxTokens
	StopReason  any  // see engine.Event
	Usage       Usage
}

// Client returns a number for the client of a request: that of its key, or the same for all clients without one.
func (s *Server) Client(r *http.Request) int { return s.key(r) }

// MaxBody returns the largest size of a body in bytes.
func (s *Server) MaxBody() int64 { return s.config.MaxBody }

// Name returns the name of the model in the answer to a request for a model: that of the adapter if the request names
// one.
func (s *Server) Name(model string) string {
	if s.adapter(model) > 0 {
		return model
	}
	return s.config.Name
}

// Invalid returns the error of status 400 for a request that the client must change. field names the field of the body
// that is wrong. Strings and errors in args are shortened if they are long.
func Invalid(field, format string, args ...any) error { return invalid(field, format, args...) }

// NewRequest returns a request for one answer with a random seed and without a prompt. Parameters that are nil have
// their defaults.
func NewRequest(temperature, topP *float64) engine.Request {
	r := engine.Request{Params: sampling.Default(), N: 1}
	r.Seed = mathrand.Uint64()
	setIfGiven(&r.Temperature, temperature)
	setIfGiven(&r.TopP, topP)
	return r
}

// NewID returns a random identifier with a prefix.
func NewID(prefix string) string {
	var b [12]byte
	rand.Read(b[:])
	return prefix + hex.EncodeToString(b[:])
}

// Chat answers a chat. When the request is accepted, it calls the function reply to make the Reply. The
// argument of reply is nil if the answer is not streamed.
func (s *Server) Chat(w http.ResponseWriter, r *http.Request, c *Chat, reply func(Send) Reply) error {
	recordWarnings(w, c.Warnings)
	j, err := s.translated(c, s.countedLimit())
	if err != nil {
		return err
	}
	c.Request.Adapter = s.adapter(c.Model)
	request, stream := c.Request, c.Stream // c has the messages, which are not needed while the request waits
	if err := s.submit(w, r, request, j); err != nil {
		return s.tooLong(w, c, err, reply)
	}
	defer j.cancel()
	if stream {
		return s.stream(w, r, j, func(out *sender) eventWriter {
			return &replyWriter{reply: reply(out.named), job: j, maxTokens: request.MaxTokens}
		})
	}
	answers, _, err := s.answers(w, r, j)
	if err != nil {
		return err
	}
	rw := &replyWriter{reply: reply(nil), job: j, maxTokens: request.MaxTokens}
	rw.part(&answers[0])
	writeJSON(w, http.StatusOK, rw.ending())
	return nil
}

// tooLong returns the error of a chat that cannot be submitted because of err. If err is about the length of the prompt,
// the error has the interface's sentence; or tooLong answers with a stream that has the error as an event.
func (s *Server) tooLong(w http.ResponseWriter, c *Chat, err error, reply func(Send) Reply) error {
	var long *engine.TooLong
	if !errors.As(err, &long) || c.TooLong == nil {
		return err
	}
	e, code := invalid(c.MessagesField, "%s", c.TooLong(long.Tokens, long.MaxModelLen-1)), contextExceeded
	e.Code = &code
	if !c.Stream || !c.TooLongEvent {
		return e
	}
	out := begin(w)
	recordError(w, e)
	(&replyWriter{reply: reply(out.named)}).failed(e)
	out.flush()
	return nil
}

// Count counts the tokens of a chat's prompt. It calls body with this number, and answers with the result of the call.
// It refuses the tools that Chat refuses.
func (s *Server) Count(w http.ResponseWriter, r *http.Request, c *Chat, body func(tokens int) any) error {
	j, err := s.translated(c, s.countable())
	if err != nil {
		return err
	}
	prompts, err := s.prompts(r, j.source)
	if err != nil {
		return err
	}
	free(r)
	writeJSON(w, http.StatusOK, body(len(prompts[0].tokens)))
	return nil
}

// translated returns the job of a chat that another interface has made from its own request. The argument
// limit applies to the prompt.
func (s *Server) translated(c *Chat, limit limit) (*job, error) {
	if err := s.checkModel(c.Model); err != nil {
		return nil, err
	}
	var tools []json.RawMessage
	for _, t := range c.Tools {
		text, err := json.Marshal(map[string]any{"type": "function", "function": t})
		if err != nil {
			return nil, invalid("tools", "The tool %q is not JSON: %v.", t.Name, err)
		}
		tools = append(tools, text)
	}
	var err error
	if c.tools, err = readTools(tools); err != nil {
		return nil, err
	}
	if err := c.checkCalls(); err != nil {
		return nil, err
	}
	if err := c.choose(c.ToolChoice, c.Allowed); err != nil {
		return nil, err
	}
	return s.chatJob(c, limit)
}

// A replyWriter passes the parts of an answer to a Reply.
type replyWriter struct {
	reply     Reply
	job       *job
	maxTokens int // of the answer
	begun     bool
	last      part
	made      int
}

func (w *replyWriter) part(p *part) {
	w.made += len(p.tokens)
	if !w.begun {
		w.begun = true
		w.reply.Begin(w.usage())
	}
	for _, e := range p.events {
		w.reply.Add(e)
	}
	w.last = *p
}

func (w *replyWriter) failed(e *apiError) {
	code := ""
	if e.Code != nil {
		code = *e.Code
	}
	w.reply.Fail(e.status, code, e.Message)
}

func (w *replyWriter) end(*output) { w.ending() }

func (w *replyWriter) keepAlive() { w.reply.KeepAlive() }

func (w *replyWriter) ending() any {
	return w.reply.End(Ending{Finish: w.last.finish, Calls: w.last.finish == finishCalls, StopReason: w.last.stopReason,
		ContextFull: w.made < w.maxTokens, Usage: w.usage()})
}

func (w *replyWriter) usage() Usage {
	u := w.job.usage(w.made, w.last.reasoning)
	return Usage{u.PromptTokens, u.Details.CachedTokens, u.CompletionTokens, w.last.reasoning}
}
