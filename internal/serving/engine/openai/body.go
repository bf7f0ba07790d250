package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"time"
)

// The body of a request is bounded before it is decoded. A large one waits until there is memory for it. A few at a time
// are decoded and become tokens. Their values are counted before: each takes many times the bytes that it is written
// with.

const (
	largeBodies = 8                // of the largest size, that are in memory at a time
	bodyParts   = 8                // of the largest size, which are counted
	bodyWait    = 30 * time.Second // for this memory
	bodyTime    = 10 * time.Second // in which a large body arrives, and
	bodyRate    = 256 << 10        // its bytes in a second beyond that, at least
	maxValues   = 1 << 16          // in a body, without those of prompt and tokens
)

// errBodies is for a body that waited too long for memory.
var errBodies = failure(http.StatusServiceUnavailable, "server_error", "overloaded",
	"The server has as many large requests in memory as it may; try again later.")

// A bodyMemory bounds the memory of bodies.
type bodyMemory struct {
	parts chan struct{} // in use
	turn  chan struct{} // of the request that takes parts, so that two do not wait for each other
}

func newBodyMemory() *bodyMemory {
	return &bodyMemory{make(chan struct{}, largeBodies*bodyParts), make(chan struct{}, 1)}
}

// take waits for n parts, and reports false if ctx ends before.
func (m *bodyMemory) take(ctx context.Context, n int) bool {
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return false
	}
	defer func() { <-m.turn }()
	for i := range n {
		select {
		case m.parts <- struct{}{}:
		case <-ctx.Done():
			m.giveBack(i)
			return false
		}
	}
	return true
}

func (m *bodyMemory) giveBack(n int) {
	for range n {
		<-m.parts
	}
}

// A hold is what the body of a request has until its prompts are made: memory, and a turn to become tokens.
type hold struct {
	memory *bodyMemory
	parts  int
	end    func() // of the turn; nil: there is none
}

type holdKey struct{}

// holding gives a request a hold.
func (s *Server) holding(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), holdKey{}, &hold{memory: s.bodies}))
}

func holdOf(r *http.Request) *hold {
	h, _ := r.Context().Value(holdKey{}).(*hold)
	return h
}

// free gives back what the body of a request has. It is called before anything is written: a client may read slowly.
func free(r *http.Request) {
	h := holdOf(r)
	h.memory.giveBack(h.parts)
	if h.end != nil {
		h.end()
	}
	h.parts, h.end = 0, nil
}

// read reads a body of at most MaxBody bytes.
func (s *Server) read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if err := isJSON(r); err != nil {
		return nil, err
	}
	limit := s.config.MaxBody
	if r.ContentLength > limit { // also before a client sends it that waits for "100 Continue"
		return nil, bodyTooLarge(limit)
	}
	body := http.MaxBytesReader(w, r.Body, limit)
	var data bytes.Buffer
	_, err := data.ReadFrom(io.LimitReader(body, shortBody))
	if err == nil && data.Len() == shortBody {
		if err := s.makeRoom(w, r); err != nil {
			return nil, err
		}
		data.Grow(int(max(r.ContentLength-shortBody, 0)) + bytes.MinRead)
		_, err = data.ReadFrom(body)
	}
	var tooLarge *http.MaxBytesError
	switch {
	case errors.As(err, &tooLarge):
		return nil, bodyTooLarge(limit)
	case errors.Is(err, os.ErrDeadlineExceeded):
		e := invalid("", "The body did not arrive in time.")
		e.status = http.StatusRequestTimeout
		return nil, e
	case err != nil:
		return nil, invalid("", "The body is not valid JSON: %v.", err)
	}
	if holdOf(r).end, err = s.turns.take(r.Context(), data.Len()); err != nil {
		return nil, err
	}
	return data.Bytes(), s.countValues(data.Bytes())
}

// countValues refuses a body with too many values.
func (s *Server) countValues(data []byte) error {
	tokens, others := values(data)
	if others > maxValues {
		return invalid("", "The body has more than %d values; leave some out.", maxValues)
	}
	if tokens <= maxCounted {
		return nil
	}
	if most := max(maxCounted, s.config.MaxTexts*s.config.Engine.Config().MaxModelLen); tokens > most {
		return invalid("", "The body has more than %d tokens; leave some out.", most)
	}
	return nil
}

// makeRoom waits for memory for a large body, which then has to arrive in time.
func (s *Server) makeRoom(w http.ResponseWriter, r *http.Request) error {
	size := r.ContentLength
	if size < 0 {
		size = s.config.MaxBody
	}
	ctx, cancel := context.WithTimeout(r.Context(), bodyWait)
	defer cancel()
	h := holdOf(r)
	n := int(1 + (size-1)*bodyParts/s.config.MaxBody)
	if !h.memory.take(ctx, n) {
		return errBodies
	}
	h.parts = n
	end := time.Now().Add(bodyTime + time.Duration(size)*time.Second/bodyRate)
	_ = http.NewResponseController(w).SetReadDeadline(end) // fails where connections have no deadlines, as in a test
	return nil
}

// values counts the values of a JSON object: those of prompt and tokens, which are decoded into little more than their
// bytes, and others.
func values(data []byte) (tokens, others int) {
	depth, key, begin := 0, true, 0 // key: the next text at depth 1 is the name of a field
	var field []byte
	for i := 0; i < len(data); i++ {
		switch c := data[i]; c {
		case '"':
			for begin = i + 1; i+1 < len(data) && data[i+1] != '"'; i++ {
				if data[i+1] == '\\' {
					i++
				}
			}
			i++
			if depth == 1 && key {
				field, key = data[begin:min(i, len(data))], false
			}
		case '[', '{':
			depth++
		case ']', '}':
			depth--
		case ',':
			key = key || depth == 1
			if depth > 1 && (string(field) == "prompt" || string(field) == "tokens") {
				tokens++
			} else {
				others++
			}
		}
	}
	return tokens, others
}

// list decodes a list of at most the given number of elements.
func list[T any](data []byte, most int, tooMany error) (all []T, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		if len(all) == most {
			return nil, tooMany
		}
		var one T
		if err := d.Decode(&one); err != nil {
			return nil, err
		}
		all = append(all, one)
	}
	return all, nil
}
