package anthropic

import (
	"cmp"
	"fmt"
	"net/http"

	"llmmemory/internal/serving/engine/openai"
)

// Interface returns the interface for [openai.Config].
func Interface() openai.Interface {
	return openai.Interface{
		Paths: []openai.Path{{Name: "/v1/messages", Answer: create}, {Name: "/v1/messages/count_tokens", Answer: count}},
		Error: failure,
	}
}

// create answers POST /v1/messages.
func create(s *openai.Server, w http.ResponseWriter, r *http.Request) error {
	b, c, err := read(s, w, r)
	if err != nil {
		return err
	}
	if b.MaxTokens == nil {
		return openai.Invalid("max_tokens", "max_tokens is missing.")
	}
	c.Request.MaxTokens = *b.MaxTokens
	c.TooLong = tooLong
	name := s.Name(c.Model)
	return s.Chat(w, r, c, func(send openai.Send) openai.Reply { return newReply(name, send) })
}

// tooLong is Anthropic's sentence about a prompt that is too long. Claude Code looks for it to shorten the conversation,
// and reads both numbers.
func tooLong(tokens, limit int) string {
	return fmt.Sprintf("prompt is too long: %d tokens > %d maximum", tokens, limit)
}

// count answers POST /v1/messages/count_tokens.
func count(s *openai.Server, w http.ResponseWriter, r *http.Request) error {
	_, c, err := read(s, w, r)
	if err != nil {
		return err
	}
	return s.Count(w, r, c, func(tokens int) any {
		return struct {
			InputTokens int `json:"input_tokens"`
		}{tokens}
	})
}

// read reads the body of a request, and sets the id of the answer.
func read(s *openai.Server, w http.ResponseWriter, r *http.Request) (b body, c *openai.Chat, err error) {
	setID(w.Header())
	if err = s.Decode(w, r, &b, otherFields); err == nil {
		c, err = b.chat()
	}
	return b, c, err
}

// An errorBody is Anthropic's form of an error.
type errorBody struct {
	Type      string      `json:"type"`
	Error     errorObject `json:"error"`
	RequestID string      `json:"request_id,omitempty"`
}

type errorObject struct {
	Type    string `json:"type"`
	Message string `json:"message"`
}

// failure returns the body of an error in Anthropic's form, and sets the header request-id.
func failure(h http.Header, status int, message string) any {
	return errorBody{"error", errorObject{errorType(status), message}, setID(h)}
}

// errorTypes are Anthropic's types of errors by status.
var errorTypes = map[int]string{
	http.StatusUnauthorized:          "authentication_error",
	http.StatusForbidden:             "permission_error",
	http.StatusNotFound:              "not_found_error",
	http.StatusRequestTimeout:        "timeout_error",
	http.StatusRequestEntityTooLarge: "request_too_large",
	http.StatusTooManyRequests:       "rate_limit_error",
	http.StatusServiceUnavailable:    "overloaded_error",
}

// errorType returns Anthropic's type of an error with the given status.
func errorType(status int) string {
	if status >= http.StatusInternalServerError {
		return cmp.Or(errorTypes[status], "api_error")
	}
	return cmp.Or(errorTypes[status], "invalid_request_error")
}

// setID returns the header request-id of an answer. If it is missing, setID sets it to a new id.
func setID(h http.Header) string {
	if h.Get("Request-Id") == "" {
		h.Set("Request-Id", openai.NewID("req_"))
	}
	return h.Get("Request-Id")
}
