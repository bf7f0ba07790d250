package toolparser

import (
	"crypto/rand"
	"strings"
)

// callID returns an id in the form of OpenAI's.
func callID() string { return "call_" + rand.Text()[:24] }

// nineID returns an id in the form that Mistral's chat templates require.
func nineID() string { return rand.Text()[:9] }

// isNineID reports whether id has the form that Mistral's chat templates require.
func isNineID(id string) bool { return len(id) == 9 && IsName(id) && !strings.ContainsAny(id, "_-.:/") }
