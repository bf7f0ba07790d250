package openai

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"time"
)

// An eventWriter writes a stream's events as one interface has them.
type eventWriter interface {
	part(p *part)         // a new part of an answer
	failed(err *apiError) // the end after an error
	end(o *output)        // the end after all answers
	keepAlive()           // sends something while no answer continues
}

// stream answers with server-sent events. It sends status 200 first, so every later error is sent as an event.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, j *job, events func(*sender) eventWriter) error {
	out := begin(w)
	o, writer := j.output(), events(out)
	out.flush() // the client sees at once that the request was accepted
	defer func() { recordUsage(w, o.usage()) }()
	all := j.merge(r.Context())
	silence := time.NewTicker(s.config.KeepAlive)
	defer silence.Stop()
	for open := true; open; {
		var n promptEvents
		select {
		case n, open = <-all:
			for _, e := range n.events {
				p, err := o.next(n.prompt, e)
				if err != nil {
					failed := translate(err)
					recordError(w, failed)
					writer.failed(failed)
					out.flush()
					return nil
				}
				writer.part(p)
			}
			silence.Reset(s.config.KeepAlive)
		case <-silence.C:
			writer.keepAlive()
		}
		if !out.flush() {
			return nil
		}
	}
	if r.Context().Err() != nil {
		recordError(w, errGone)
		return nil
	}
	writer.end(o)
	out.flush()
	return nil
}

// chunks writes the events of OpenAI's completions and chats.
type chunks struct {
	out   *sender
	job   *job
	usage bool
	made  int
	calls map[int]*int // by index of the answer
}

func (c *chunks) part(p *part) {
	a := c.job.answer
	c.made += len(p.tokens)
	if p.first && a.chat {
		c.out.send(a.withPrompt(p).withChoices(nil, choice{Index: p.index, Delta: &delta{Role: "assistant", Content: new(string)}}))
	}
	if c.calls[p.index] == nil {
		c.calls[p.index] = new(int)
	}
	all := a.chunks(p, c.calls[p.index])
	for _, one := range all {
		body := a.withChoices(nil, one)
		body.Timings = c.job.timingsOf(c.made)
		c.out.send(body)
	}
}

// keepAlive is a comment, as llama.cpp's server and others send it.
const keepAlive = ": keep-alive\n\n"

func (c *chunks) keepAlive() { c.out.write(keepAlive) }

func (c *chunks) failed(err *apiError) { c.out.send(errorBody{err}) }

func (c *chunks) end(o *output) {
	if c.usage {
		c.out.send(c.job.answer.withChoices(o.usage()))
	}
	c.out.raw("[DONE]")
}

// A sender writes server-sent events. After a failed write it does nothing.
type sender struct {
	w       http.ResponseWriter
	control *http.ResponseController
	failed  bool
}

// begin begins a stream.
func begin(w http.ResponseWriter) *sender {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would collect events until a buffer is full
	w.WriteHeader(http.StatusOK)
	return &sender{w: w, control: http.NewResponseController(w)}
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

// named sends an event with a name.
func (s *sender) named(event string, body any) {
	s.write("event: " + event + "\n")
	s.send(body)
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
