package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
)

// stream answers with server-sent events. It sends status 200 at once, so every later error is an event.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, j *job, options *streamOptions) error {
	out := &sender{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would collect events until a buffer is full
	w.WriteHeader(http.StatusOK)
	out.flush() // the client sees at once that the request was accepted
	d := delivery{j: j, out: out, parts: make([]part, len(j.streams)*j.bestOf), prefixes: make([][]engine.Token, len(j.streams))}
	defer func() { recordUsage(w, j.usage(d.made)) }()
	events := j.merge(r.Context())
	silence := time.NewTicker(s.config.KeepAlive)
	defer silence.Stop()
	for open := true; open; {
		var n news
		select {
		case n, open = <-events:
			if !d.deliver(n) {
				return nil
			}
			silence.Reset(s.config.KeepAlive)
		case <-silence.C:
			out.write(": keep-alive\n\n") // a comment, as llama.cpp's server and others send it
		}
		if !out.flush() {
			return nil
		}
	}
	if r.Context().Err() != nil {
		recordError(w, errGone)
		return nil
	}
	if options != nil && options.IncludeUsage {
		out.send(j.answer.with(j.usage(d.made)))
	}
	out.raw("[DONE]")
	out.flush()
	return nil
}

// A delivery is the state of a stream.
type delivery struct {
	j        *job
	out      *sender
	parts    []part           // the last part of each answer
	prefixes [][]engine.Token // Event.Prompt of each prompt
	made     int              // tokens of all answers
}

// deliver sends events. After an error of the engine it sends the error and returns false.
func (d *delivery) deliver(n news) bool {
	a := d.j.answer
	for _, e := range n.events {
		if e.Err != nil {
			failed := translate(e.Err)
			recordError(d.out.w, failed)
			d.out.send(errorBody{failed})
			d.out.flush()
			return false
		}
		e = d.j.trim(e)
		p := &d.parts[n.prompt*d.j.bestOf+e.Index]
		if e.Prompt != nil {
			d.prefixes[n.prompt] = e.Prompt
		}
		d.j.next(p, n.prompt, e)
		if p.first {
			p.prefix, p.place = d.prefixes[n.prompt], new(place)
		}
		d.made += len(e.Tokens)
		if p.first && a.chat {
			d.out.send(a.withPrompt(p).with(nil, a.opening(p.index)))
		}
		body := a.with(nil, a.chunk(p))
		body.Timings = d.j.timingsOf(d.made)
		d.out.send(body)
	}
	return true
}

// next sets p to the part that an event adds.
func (j *job) next(p *part, prompt int, e engine.Event) {
	*p = part{
		index: prompt*j.n + e.Index, prompt: j.prompts[prompt], first: p.consumed == 0, place: p.place,
		text: e.Text, tokens: e.Tokens, finish: e.Finish, stopReason: e.StopReason, consumed: p.consumed + len(e.Tokens),
	}
}

// A sender writes server-sent events. After the first failure it does nothing.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	failed  bool
}

func (s *sender) send(body any) {
	data, err := json.Marshal(body)
	if err != nil {
		s.send(errorBody{errNoNumber})
		s.flush()
		s.failed = true
		return
	}
	s.raw(strings.ReplaceAll(string(data), "\u0085", `\u0085`)) // some clients take this character for a line break
}

func (s *sender) raw(data string) { s.write("data: " + data + "\n\n") }

func (s *sender) write(text string) {
	if s.failed {
		return
	}
	if _, err := io.WriteString(s.w, text); err != nil {
		s.failed = true
	}
}

func (s *sender) flush() bool {
	if !s.failed && s.control.Flush() != nil {
		s.failed = true
	}
	return !s.failed
}
