package openai

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"reflect"
	"slices"
)

// The bodies of requests are limited in several ways. Large bodies share a bodyMemory while they arrive. The number of
// bodies that are decoded and tokenized at the same time is limited (slots). The values of a body are counted before it
// is decoded, because a decoded value can take many times the memory of its JSON.

const (
	maxValues  = 1 << 16 // values in a body, without tokens
	maxNesting = 1000    // levels of lists and objects in a body; some functions that read a body call themselves for each
)

// A reservation is what a request occupies: a slot until its prompts are tokenized, and memory for its body. When the
// constraint of its answers is known, only the memory for what its answers need remains (Server.shrink).
type reservation struct {
	memory *bodyMemory
	share  share
	end    func() // releases the slot, if the request has one
}

type reservationKey struct{}

// withReservation returns the request with a new reservation in its context.
func (s *Server) withReservation(r *http.Request) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), reservationKey{}, &reservation{memory: s.bodies}))
}

func reservationOf(r *http.Request) *reservation {
	held, _ := r.Context().Value(reservationKey{}).(*reservation)
	return held
}

// free releases the reservation of a request. A handler that does not submit a job calls it before it writes a long
// answer, because a client may read slowly.
func free(r *http.Request) {
	held := reservationOf(r)
	held.memory.giveBack(&held.share)
	held.endSlot()
}

// endSlot releases the slot. It must be called before the answer is written, because a client may read slowly.
func (held *reservation) endSlot() {
	if held.end != nil {
		held.end()
	}
	held.end = nil
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
	held := reservationOf(r)
	held.share = newShare(w, r, limit)
	pieces, n, err := s.receive(w, r, &held.share)
	slow := s.bodies.complete(&held.share)
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
	if held.end, err = s.slots.take(r.Context(), n); err != nil {
		return nil, err
	}
	return bytes.Join(pieces, nil), nil
}

// receive reads a body. It returns the pieces of the body and the number of bytes in them. The first shortBody bytes do
// not count against s.bodies. For each later piece, receive takes memory from s.bodies before it reads the piece.
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
		filled := 0
		for filled < size && err == nil {
			var k int
			k, err = body.Read(piece[filled:])
			filled += k
		}
		pieces, n = append(pieces, piece[:filled]), n+filled
	}
	if err == io.EOF {
		err = nil
	}
	return pieces, n, err
}

// countValues returns an error for a body that has too many values or tokens, or nests too deep. The values of
// tokenFields are tokens.
func (s *Server) countValues(data []byte, tokenFields []string) error {
	tokens, others, deepest := values(data, tokenFields)
	if deepest > maxNesting {
		return invalid("", "The body has lists and objects that are nested %d deep; at most %d levels are possible.", deepest, maxNesting)
	}
	if others > maxValues {
		return invalid("", "The body has more than %d values; leave some out.", maxValues)
	}
	if tokens <= maxCounted {
		return nil
	}
	if limit := s.maxPromptTokens(); tokens > limit {
		return invalid("", "The body has more than %d tokens; leave some out.", limit)
	}
	return nil
}

// maxPromptTokens returns the largest number of tokens in a request's prompts.
func (s *Server) maxPromptTokens() int {
	return max(maxCounted, s.config.MaxTexts*s.config.Engine.Config().MaxModelLen)
}

// tokenFields returns the names of fields whose values can be lists of tokens. The body is a struct of the type t.
func tokenFields(t reflect.Type) []string {
	if jsonNames(t)["input"] == reflect.TypeFor[inputs]() {
		return []string{"input"}
	}
	return []string{"prompt", "tokens"}
}

// values estimates the number of values in a JSON object by its commas. The result tokens is the number of commas in
// the values of tokenFields, which take little memory when they are decoded. The result others is the number of all
// other commas. Commas in strings do not count. The result deepest is the number of levels of lists and objects.
func values(data []byte, tokenFields []string) (tokens, others, deepest int) {
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
			deepest = max(deepest, depth)
		case ']', '}':
			depth--
		case ',':
			key = key || depth == 1
			if depth > 1 && slices.Contains(tokenFields, string(field)) {
				tokens++
			} else {
				others++
			}
		}
	}
	return tokens, others, deepest
}

// list decodes a list of at most maxLen elements. For a longer list it returns tooMany.
func list[T any](data []byte, maxLen int, tooMany error) (all []T, err error) {
	d := json.NewDecoder(bytes.NewReader(data))
	if _, err := d.Token(); err != nil {
		return nil, err
	}
	for d.More() {
		if len(all) == maxLen {
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
