package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
)

// The body of a request is bounded before it is decoded. What has arrived of a large one is in memory, which bodies
// share. A few that are complete are decoded at a time and become tokens. Their values are counted before: each takes
// many times the bytes that it is written with.

// maxValues is how many values a body may have, without those of prompt and tokens.
const maxValues = 1 << 16

// A hold is what the body of a request has until its prompts are made: memory, and a turn to become tokens.
type hold struct {
	memory *bodyMemory
	share  share
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
	h.memory.giveBack(&h.share)
	if h.end != nil {
		h.end()
	}
	h.end = nil
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
	h := holdOf(r)
	h.share = newShare(w, r, limit)
	pieces, n, err := s.receive(w, r, &h.share)
	slow := s.bodies.complete(&h.share)
	var tooLarge *http.MaxBytesError
	var known *apiError
	switch {
	case errors.As(err, &known):
		return nil, err
	case errors.As(err, &tooLarge):
		return nil, bodyTooLarge(limit)
	case slow && (err == nil || errors.Is(err, os.ErrDeadlineExceeded)):
		return nil, errSlow
	case errors.Is(err, os.ErrDeadlineExceeded):
		return nil, errLate
	case err != nil:
		return nil, invalid("", "The body is not valid JSON: %v.", err)
	}
	if h.end, err = s.turns.take(r.Context(), n); err != nil {
		return nil, err
	}
	data := bytes.Join(pieces, nil)
	return data, s.countValues(data)
}

// receive reads a body of n bytes in pieces. Those after the first 32 KB are in the memory that bodies share.
func (s *Server) receive(w http.ResponseWriter, r *http.Request, h *share) (pieces [][]byte, n int, err error) {
	body := http.MaxBytesReader(w, r.Body, s.config.MaxBody)
	for n = 0; err == nil; {
		if n >= shortBody {
			if err := s.bodies.take(r.Context(), h); err != nil {
				return nil, 0, err
			}
		}
		size := min(max(n, firstPiece), shortBody)
		if left := int(r.ContentLength) - n; left > 0 {
			size = min(size, left+1) // the end is read as well
		}
		piece := make([]byte, size)
		at := 0
		for at < size && err == nil {
			var k int
			k, err = body.Read(piece[at:])
			at += k
		}
		pieces, n = append(pieces, piece[:at]), n+at
	}
	if err == io.EOF {
		err = nil
	}
	return pieces, n, err
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
