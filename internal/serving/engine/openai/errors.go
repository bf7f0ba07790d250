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
	"llmmemory/internal/serving/structured"
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

// shown shortens a text of the client for an error.
func shown(text string) string {
	const maxShown = 1000 // bytes
	if len(text) <= maxShown {
		return text
	}
	return strings.ToValidUTF8(text[:maxShown], "") + "..."
}

// invalid returns the error of status 400 for a request that the client must change. param names the field
// that is wrong, or is "". Strings and errors in args are shortened if they are long.
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

// refused returns an error with the given status and code. The error has no code if code is "". Its message is made
// from format and args as by fmt.Sprintf, but long strings and errors in args are shortened.
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

// errGone is the error of a request whose client has closed its side of the connection. The status is nginx's.
var errGone = refused(499, "client_closed_request",
	"The client closed the connection before the answer was complete.")

// errUnread is recorded if a client did not read a piece of the answer within WriteTimeout. It is never sent.
var errUnread = refused(499, "", "The client did not read the answer in time.")

// translate returns an error in OpenAI's form.
func translate(err error) *apiError {
	var known *apiError
	var value *sampling.Invalid
	var long *engine.TooLong
	var device *engine.DeviceFailure
	var load *engine.LoadError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &long):
		e, code := invalid(long.Field, "%v", long), contextExceeded
		e.Code = &code
		return e
	case errors.As(err, &device):
		code := "device_failed"
		if device.Stalled {
			code = stalled
		}
		return failure(http.StatusServiceUnavailable, "server_error", code, "The server ends: "+device.Error())
	case errors.As(err, &load):
		return failure(http.StatusServiceUnavailable, "server_error", "model_not_loaded",
			fmt.Sprintf("The model sleeps, and %v. The next request tries again.", load))
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
	case errors.Is(err, engine.ErrNoToken):
		return invalid("", "The form of the answer cannot be obeyed: %v; change the form so that it does not need a character "+
			"that the model cannot write, such as a control character.", err)
	case errors.Is(err, structured.ErrTooLarge): // found while the answer is made
		return refused(http.StatusBadRequest, "", "%v.", err)
	}
	return failure(http.StatusInternalServerError, "server_error", "", err.Error())
}

// contextExceeded is the error code for a prompt that is too long.
const contextExceeded = "context_length_exceeded"

// stalled is the error code for requests that fail because a step of the engine takes too long.
const stalled = "engine_stalled"

func writeError(w http.ResponseWriter, err error) {
	e := translate(err)
	recordError(w, e)
	if w.Header().Get("Retry-After") == "" && (e.status == http.StatusTooManyRequests ||
		e.status == http.StatusServiceUnavailable) {
		w.Header().Set("Retry-After", "1")
	}
	var body any = errorBody{e}
	if res, ok := w.(*response); ok && res.errors != nil {
		body = res.errors(w.Header(), e.status, e.Message)
	}
	writeJSON(w, e.status, body)
}

func writeJSON(w http.ResponseWriter, status int, body any) {
	data, err := json.Marshal(body)
	if err != nil {
		writeError(w, errNoNumber)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(data)+1))
	w.WriteHeader(status)
	if _, err := w.Write(append(data, '\n')); err == nil { // the response records errors
		_ = http.NewResponseController(w).Flush()
	}
}

// errNoNumber is the error for NaN or infinite logits and log probabilities. JSON cannot represent these.
var errNoNumber = failure(http.StatusInternalServerError, "server_error", "",
	"The model's logits are not finite numbers; its weights may be damaged, or too large for the types of activations, "+
		"keys and values.")

// isJSON returns an error if the headers say that the body is compressed or not JSON. A body without a Content-Type
// counts as JSON.
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

// fieldsWithElements are some fields whose values are lists or objects. If an element of such a value has the wrong
// type, the error says that the field "contains" a value of this type. For other fields, the error says that the field
// "is" a value of this type.
var fieldsWithElements = []string{"messages", "stop_token_ids", "logit_bias"}

// unmarshal decodes JSON. Its errors name the field.
func unmarshal(data []byte, dst any) error {
	err := json.Unmarshal(data, dst)
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
		field := wrongType.Field
		for _, embedded := range []string{"common.", "chatFields."} {
			field = strings.TrimPrefix(field, embedded)
		}
		verb := "is"
		if kind := wrongType.Type.Kind(); kind != reflect.Slice && kind != reflect.Map && slices.Contains(fieldsWithElements, field) {
			verb = "contains"
		}
		return invalid(field, "%s %s a JSON %s; %s is expected.", field, verb, wrongType.Value, kindName(wrongType))
	case len(bytes.TrimSpace(data)) == 0:
		return invalid("", "The body is empty; a JSON object is expected.")
	case bytes.HasPrefix(data, []byte("\xef\xbb\xbf")):
		return invalid("", "The body begins with a byte order mark (BOM); send JSON in UTF-8 without one.")
	case bytes.HasPrefix(data, []byte("\xff\xfe")), bytes.HasPrefix(data, []byte("\xfe\xff")):
		return invalid("", "The body begins with a byte order mark of UTF-16; send JSON in UTF-8 without one.")
	case strings.HasSuffix(err.Error(), "after top-level value"):
		return invalid("", "There is more after the JSON object in the body.")
	}
	return invalid("", "The body is not valid JSON: %v.", err)
}

func bodyTooLarge(limit int64) error {
	return refused(http.StatusRequestEntityTooLarge, "", "The body is larger than %d bytes, the server's limit (--max-body).", limit)
}

// Limits for reading the rest of a body that is too large, after the answer (nginx's lingering_time
// and lingering_timeout).
const (
	lingerTime    = 30 * time.Second // in all
	lingerTimeout = 5 * time.Second  // without a byte
)

// refuseBody answers a request whose body was not read. Then it reads the rest of the body and discards it.
// If the server closed the connection while the client still sends, the connection would be reset, and most
// clients would report the reset instead of the answer.
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

// kindName describes the values that a field may have.
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
