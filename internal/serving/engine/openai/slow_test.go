package openai_test

import (
	"bufio"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that other clients are served while some clients have sent a part of a large body, and then nothing.
func TestBodiesThatStopArrivingDoNotHoldUpOthers(t *testing.T) {
	s := start(t, nil)
	for range 40 {
		c := s.dial(t, fmt.Sprintf("Content-Length: %d\r\nExpect: 100-continue\r\n\r\n", 8<<20))
		line, err := bufio.NewReader(c).ReadString('\n')
		require.NoError(t, err)
		require.Contains(t, line, "100 Continue", "the body is being read")
		_, err = io.WriteString(c, strings.Repeat(" ", 40<<10))
		require.NoError(t, err)
	}
	for range 40 {
		a := s.ask(t, texts, text+strings.Repeat(" ", 40<<10)+`"n": 1}`)
		require.Equal(t, 200, a.Status, a.Text)
	}
}
