package openai

import (
	"encoding/json"
	"net/http"
	"time"

	"llmmemory/internal/engine"
)

// writeTimeout is how long a client may take to accept a piece of the answer. A client that reads
// nothing for that long is disconnected.
const writeTimeout = time.Minute

// stream answers by server-sent events. Once it has begun, errors are events.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, j *job, options *streamOptions) error {
	out := &sender{w: w, control: http.NewResponseController(w)}
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("X-Accel-Buffering", "no") // nginx would keep events back until it has a buffer full
	w.WriteHeader(http.StatusOK)
	out.flush() // the client learns at once that it was accepted
	parts := make([]part, len(j.streams)*j.of)
	prefixes := make([][]engine.Token, len(j.streams)) // come with the first answer to a prompt
	made := 0
	for n := range j.merge(r.Context()) {
		for _, e := range n.events {
			if e.Err != nil {
				out.send(errorBody{translate(e.Err)})
				return nil
			}
			e = j.trim(e)
			p := &parts[n.prompt*j.of+e.Index]
			if e.Prompt != nil {
				prefixes[n.prompt] = e.Prompt
			}
			j.next(p, n.prompt, e)
			if p.first {
				p.prefix, p.place = prefixes[n.prompt], new(place)
			}
			made += len(e.Tokens)
			if p.first && j.answer.chat {
				out.send(j.answer.with(nil, j.answer.opening(p.index)))
			}
			out.send(j.answer.with(nil, j.answer.chunk(p)))
		}
		if !out.flush() {
			return nil
		}
	}
	if r.Context().Err() != nil {
		return nil
	}
	if options != nil && options.IncludeUsage {
		out.send(j.answer.with(j.usage(made)))
	}
	out.raw("[DONE]")
	out.flush()
	return nil
}

// next sets p to what an event adds.
func (j *job) next(p *part, prompt int, e engine.Event) {
	*p = part{
		index: prompt*j.n + e.Index, prompt: j.prompts[prompt], first: p.consumed == 0, place: p.place,
		text: e.Text, tokens: e.Tokens, finish: e.Finish, stopReason: e.StopReason, consumed: p.consumed + len(e.Tokens),
	}
}

// A sender writes events. After the first failure it does nothing.
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
	s.raw(string(data))
}

func (s *sender) raw(data string) {
	if s.failed {
		return
	}
	// Where a connection has no deadlines, the server's apply.
	_ = s.control.SetWriteDeadline(time.Now().Add(writeTimeout))
	if _, err := s.w.Write([]byte("data: " + data + "\n\n")); err != nil {
		s.failed = true
	}
}

func (s *sender) flush() bool {
	if !s.failed && s.control.Flush() != nil {
		s.failed = true
	}
	return !s.failed
}
