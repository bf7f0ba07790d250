package openai

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/sampling"
	"llmmemory/internal/serving/model/chat"
)

// An apiError is an error in OpenAI's form.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

type errorBody struct {
	Error *apiError `json:"error"`
}

// shown is a text of the client's as errors show it: its beginning.
func shown(text string) string {
	const most = 1000 // bytes
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// invalid is a request that cannot be served as it is. Each argument is shown.
func invalid(param, format string, args ...any) *apiError {
	for i, a := range args {
		switch a := a.(type) {
		case string:
			args[i] = shown(a)
		case error:
			args[i] = shown(a.Error())
		}
	}
	e := &apiError{status: http.StatusBadRequest, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...)}
	if param = shown(param); param != "" {
		e.Param = &param
	}
	return e
}

// refused is an invalid request with another status, and a code or "".
func refused(status int, code, format string, args ...any) *apiError {
	e := invalid("", format, args...)
	e.status = status
	if code != "" {
		e.Code = &code
	}
	return e
}

func failure(status int, kind, code, message string) *apiError {
	e := &apiError{status: status, Type: kind, Message: message}
	if code != "" {
		e.Code = &code
	}
	return e
}

// errGone answers a client that has closed its side of the connection. Most such clients do not read the answer.
// The status is nginx's.
var errGone = refused(499, "client_closed_request",
	"The client closed the connection before the answer was complete.")

// errUnread is logged when a client did not read a piece of the answer within WriteTimeout. It is never sent.
var errUnread = refused(499, "", "The client did not read the answer in time.")

// translate gives an error its form.
func translate(err error) *apiError {
	var known *apiError
	var value *sampling.Invalid
	var long *engine.TooLong
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &long):
		e, code := invalid(long.Field, "%v", long), "context_length_exceeded"
		e.Code = &code
		return e
	case errors.As(err, &value):
		return invalid(value.Param, "%s", value.Message)
	case errors.Is(err, chat.ErrKwargs):
		return invalid("chat_template_kwargs", "%v.", err)
	case errors.Is(err, chat.ErrTemplate):
		return invalid("messages", "The model's %v.", err)
	case errors.Is(err, engine.ErrBusy):
		return failure(http.StatusTooManyRequests, "rate_limit_error", "queue_full",
			"The server's queue is full; try again later.")
	case errors.Is(err, engine.ErrClosed), errors.Is(err, engine.ErrCanceled): // only Drain cancels while a client waits
		return failure(http.StatusServiceUnavailable, "server_error", "shutting_down", "The server is shutting down.")
	case errors.Is(err, engine.ErrNotFinite):
		return errNoNumber
	}
	return failure(http.StatusInternalServerError, "server_error", "", err.Error())
}

func writeError(w http.ResponseWriter, err error) {
	e := translate(err)
	recordError(w, e)
	if w.Header().Get("Retry-After") == "" && (e.status == http.StatusTooManyRequests ||
		e.status == http.StatusServiceUnavailable) {
		w.Header().Set("Retry-After", "1")
	}
	writeJSON(w, e.status, errorBody{e})
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		writeError(w, errNoNumber)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1)) // an answer ends there, also if the connection does not
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err == nil { // else the client is gone, which is recorded
		_ = http.NewResponseController(w).Flush() // before the record is made
	}
}

// errNoNumber means that logits are NaN or infinite, or that a log probability is, which JSON cannot represent.
var errNoNumber = failure(http.StatusInternalServerError, "server_error", "",
	"The model's logits are not finite numbers; its weights may be damaged, or too large for the types of activations, "+
		"keys and values.")

// isJSON refuses a body whose headers say that it is compressed, or something else than JSON. Without a
// Content-Type it is taken for JSON.
func isJSON(r *http.Request) error {
	unsupported := func(format, value string) error {
		return refused(http.StatusUnsupportedMediaType, "", format, value)
	}
	if coding := r.Header.Get("Content-Encoding"); coding != "" && !strings.EqualFold(coding, "identity") {
		return unsupported("The body's Content-Encoding is %q; send it as it is, without the header.", coding)
	}
	kind := r.Header.Get("Content-Type")
	media, _, _ := strings.Cut(kind, ";")
	if kind != "" && !strings.EqualFold(strings.TrimSpace(media), "application/json") {
		return unsupported("The body's Content-Type is %q; send JSON, with the header Content-Type: application/json.", kind)
	}
	return nil
}

// lists are the fields with more than one value.
var lists = []string{"messages", "stop_token_ids", "logit_bias"}

// unmarshal reads JSON. Its errors name the field.
func unmarshal(data []byte, into any) error {
	err := json.Unmarshal(data, into)
	var wrongType *json.UnmarshalTypeError
	var known *apiError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &known):
		return known
	case errors.As(err, &wrongType):
		if wrongType.Field == "" {
			return invalid("", "The body is a JSON %s; an object is expected.", wrongType.Value)
		}
		field := strings.TrimPrefix(wrongType.Field, "common.") // which is no field of the body
		verb := "is"
		if kind := wrongType.Type.Kind(); kind != reflect.Slice && kind != reflect.Map && slices.Contains(lists, field) {
			verb = "contains"
		}
		return invalid(field, "%s %s a JSON %s; %s is expected.", field, verb, wrongType.Value, kindName(wrongType))
	case len(bytes.TrimSpace(data)) == 0:
		return invalid("", "The body is empty; a JSON object is expected.")
	case strings.HasSuffix(err.Error(), "after top-level value"):
		return invalid("", "There is more after the JSON object in the body.")
	}
	return invalid("", "The body is not valid JSON: %v.", err)
}

func bodyTooLarge(limit int64) error {
	return refused(http.StatusRequestEntityTooLarge, "", "The body is larger than %d bytes, the server's limit (--max-body).", limit)
}

// How long the rest of a body that is too large is read after the answer, in all and without a byte: nginx's
// lingering_time and lingering_timeout.
const (
	lingerTime    = 30 * time.Second
	lingerTimeout = 5 * time.Second
)

// refuseBody answers a request whose body was not read, and then discards the body: a connection that is closed
// while the client still sends is reset, and most clients then report that in place of the answer.
func refuseBody(w http.ResponseWriter, r *http.Request, err error) {
	control := http.NewResponseController(w)
	_ = control.EnableFullDuplex() // the answer does not wait for the body
	w.Header().Set("Connection", "close")
	writeError(w, err)
	if control.Flush() != nil {
		return
	}
	end := time.Now().Add(lingerTime)
	for now := time.Now(); now.Before(end); now = time.Now() {
		if control.SetReadDeadline(now.Add(lingerTimeout)) != nil {
			return
		}
		if _, err := io.CopyN(io.Discard, r.Body, 1<<20); err != nil {
			return
		}
	}
}

// kindName is the kind of a field's value, in words.
func kindName(e *json.UnmarshalTypeError) string {
	switch e.Type.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Int, reflect.Int32, reflect.Int64:
		if number, ok := strings.CutPrefix(e.Value, "number "); ok && strings.Trim(number, "-0123456789") == "" {
			return fmt.Sprintf("a whole number of at most %d bits", e.Type.Bits()-1)
		}
		return "a whole number"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}
