package openai

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// late is the end of a body that does not arrive before the server's deadline.
type late struct{}

func (late) Read([]byte) (int, error) {
	return 0, fmt.Errorf("read tcp 127.0.0.1:8000->127.0.0.1:40000: %w", os.ErrDeadlineExceeded)
}

func TestABodyThatComesTooSlowlyIsNotCalledBadJSON(t *testing.T) {
	r, err := http.NewRequest("POST", "/v1/completions", io.MultiReader(strings.NewReader(`{"model": `), late{}))
	require.NoError(t, err)
	var e *apiError
	_, err = (&Server{config: Config{MaxBody: 100}}).read(nil, r)
	require.ErrorAs(t, err, &e)
	require.Equal(t, http.StatusRequestTimeout, e.status)
	require.Equal(t, "The body did not arrive in time.", e.Message)
}

// unread fails the test if anybody reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body was read")
	return 0, io.EOF
}

func TestABodyThatSaysItIsTooLargeIsRefusedBeforeItIsRead(t *testing.T) {
	r, err := http.NewRequest("POST", "/v1/completions", unread{t})
	require.NoError(t, err)
	r.ContentLength = 101
	var e *apiError
	_, err = (&Server{config: Config{MaxBody: 100}}).read(nil, r)
	require.ErrorAs(t, err, &e)
	require.Equal(t, http.StatusRequestEntityTooLarge, e.status)
	require.Equal(t, "The body is larger than 100 bytes, the server's limit (--max-body).", e.Message)
}
