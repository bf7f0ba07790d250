package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// Ensure that a client gets a conversation by the id of the last response, and by references to items as Vercel's AI SDK
// sends them by default, and that both give the prompt that the items themselves give.
func TestEarlierItemsAreFoundByTheirIDs(t *testing.T) {
	s := startAll(t, nil)
	type response struct {
		ID       string
		Store    bool
		Previous string `json:"previous_response_id"`
		Output   []struct {
			ID      string
			Content []struct{ Text string }
		}
		Usage struct {
			Input int `json:"input_tokens"`
		}
	}
	ask := func(fields string) (r response) {
		a := s.ask(t, respond, demo+`"temperature": 0, `+fields+"}")
		require.Equal(t, 200, a.Status, a.Text)
		require.NoError(t, json.Unmarshal([]byte(a.Text), &r))
		return r
	}
	const name, hello, bye = `{"role": "user", "content": [{"type": "input_text", "text": "My name is Zoe."}]}`, `{"role": "user", "content": "Hello."}`,
		`{"role": "user", "content": "Bye."}`
	first := ask(`"input": "My name is Zoe."`)
	require.True(t, first.Store)
	require.Equal(t, "My name is Zoe.", first.Output[0].Content[0].Text)
	second := ask(`"input": "Hello.", "store": true, "previous_response_id": "` + first.ID + `"`)
	require.Equal(t, first.ID, second.Previous)
	third := ask(`"input": "Bye.", "store": false, "previous_response_id": "` + second.ID + `"`)
	require.False(t, third.Store)

	whole := ask(`"input": [` + name + `, {"role": "assistant", "content": "My name is Zoe."}, ` + hello + `, {"role": "assistant", "content": "Hello."}, ` + bye + `]`)
	require.Equal(t, whole.Usage.Input, third.Usage.Input)
	referred := ask(`"input": [` + name + `, {"type": "item_reference", "id": "` + first.Output[0].ID + `"}, ` + hello + `, {"id": "` + second.Output[0].ID + `"}, ` + bye + `]`)
	require.Equal(t, whole.Usage.Input, referred.Usage.Input)

	for fields, param := range map[string]string{
		`"input": "Hi", "previous_response_id": "resp_0"`:                                           "previous_response_id",
		`"input": "Hi", "previous_response_id": "` + third.ID + `"`:                                 "previous_response_id", // it was not stored
		`"input": [{"type": "item_reference", "id": "` + third.Output[0].ID + `"}], "stream": true`: "input",
	} {
		a := s.ask(t, respond, demo+fields+"}")
		require.Equal(t, 400, a.Status, fields)
		require.Equal(t, param, a.Error.Param)
		require.Contains(t, a.Error.Message, "loses them when it restarts. Send the earlier items themselves, as clients do with store false.")
	}
}
