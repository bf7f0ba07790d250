package toolparser

import "crypto/rand"

// callID returns an id in the form of OpenAI's.
func callID() string { return "call_" + random(24) }

// nineID returns an id in the form that Mistral's chat templates require.
func nineID() string { return random(nineBytes) }

const nineBytes = 9

// random returns n letters and digits.
func random(n int) string {
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
	text := make([]byte, 0, n)
	for len(text) < n {
		var one [1]byte
		rand.Read(one[:])
		if i := int(one[0]) & 63; i < len(letters) {
			text = append(text, letters[i])
		}
	}
	return string(text)
}

// isNineID reports whether id has the form of nineID.
func isNineID(id string) bool {
	if len(id) != nineBytes {
		return false
	}
	for _, c := range []byte(id) {
		if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z') {
			return false
		}
	}
	return true
}
