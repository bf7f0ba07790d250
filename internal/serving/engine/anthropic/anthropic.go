package anthropic

import (
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
	setID(w.Header())
	var b body
	if err := s.Decode(w, r, &b, otherFields); err != nil {
		return err
	}
	c, err := b.chat()
	if err != nil {
		return err
	}
	if b.MaxTokens == nil {
		return openai.Invalid("max_tokens", "max_tokens is missing.")
	}
	c.Request.MaxTokens = *b.MaxTokens
	return s.Chat(w, r, c, func(send openai.Send) openai.Reply { return newReply(s.Name(), send) })
}

// count answers POST /v1/messages/count_tokens.
func count(s *openai.Server, w http.ResponseWriter, r *http.Request) error {
	setID(w.Header())
	var b body
	if err := s.Decode(w, r, &b, otherFields); err != nil {
		return err
	}
	c, err := b.chat()
	if err != nil {
		return err
	}
	return s.Count(w, r, c, func(tokens int) any {
		return struct {
			InputTokens int `json:"input_tokens"`
		}{tokens}
	})
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

// failure returns the body of an error, and sets the header request-id.
func failure(h http.Header, status int, message string) any {
	return errorBody{"error", errorObject{errorType(status), message}, setID(h)}
}

// errorType returns Anthropic's type of error for a status.
func errorType(status int) string {
	switch status {
	case http.StatusUnauthorized:
		return "authentication_error"
	case http.StatusForbidden:
		return "permission_error"
	case http.StatusNotFound:
		return "not_found_error"
	case http.StatusRequestTimeout:
		return "timeout_error"
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return "rate_limit_error"
	case http.StatusServiceUnavailable:
		return "overloaded_error"
	}
	if status >= http.StatusInternalServerError {
		return "api_error"
	}
	return "invalid_request_error"
}

// setID returns the request-id of an answer. It sets a new one if there is none.
func setID(h http.Header) string {
	if h.Get("Request-Id") == "" {
		h.Set("Request-Id", openai.NewID("req_"))
	}
	return h.Get("Request-Id")
}
