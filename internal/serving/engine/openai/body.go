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

// The bodies of requests are limited in several ways. Large bodies share a bodyMemory while they
// arrive. Only a few complete bodies, which hold a turn, are decoded and tokenized at a time. The
// values of a body are counted before it is decoded, because a decoded value can take many times the
// memory of its JSON.

// maxValues limits the values of a body, except those of prompt and tokens.
const maxValues = 1 << 16

// A hold is the memory and the turn that a request occupies until its prompts are made.
type hold struct {
	memory *bodyMemory
	share  share
	end    func() // ends the turn, if there is one
}

type holdKey struct{}

// holding returns the request with a hold in its context.
func (s *Server) holding(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), holdKey{}, &hold{memory: s.bodies}))
}

func holdOf(r *http.Request) *hold {
	h, _ := r.Context().Value(holdKey{}).(*hold)
	return h
}

// free ends the hold of a request. It must be called before the answer is written, because a client may read slowly.
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
	if r.ContentLength > limit { // also if the client waits for "100 Continue" before it sends the body
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

// receive reads a body in pieces and returns them with the number of their bytes. After the first shortBody bytes it
// takes the memory for each piece from s.bodies.
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
			size = min(size, left+1) // one byte more, to reach the end of the body
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

// countValues returns an error for a body with too many values.
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

// values counts the values of a JSON object: those of the fields prompt and tokens, which take little memory, and others.
func values(data []byte) (tokens, others int) {
	depth, key, begin := 0, true, 0 // key means that the next string at depth 1 is the name of a field
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

// list decodes a list of at most most elements. For a longer list it returns tooMany.
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
