package openai_test

import (
	"encoding/json"
	"testing"

	"github.com/openai/openai-go/v3/packages/param"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"

	client "github.com/openai/openai-go/v3"
)

// Ensure that the official client gets a conversation by the id of the last response, and by references to items as
// Vercel's AI SDK sends them by default, and that both give the prompt that the items themselves give.
func TestEarlierItemsAreFoundByTheirIDs(t *testing.T) {
	s := startAll(t, nil)
	c := s.official()
	ask := func(p responses.ResponseNewParams) *responses.Response {
		p.Model, p.Temperature = "demo", client.Float(0)
		r, err := c.Responses.New(t.Context(), p)
		require.NoError(t, err)
		return r
	}
	text := func(text string) responses.ResponseNewParamsInputUnion {
		return responses.ResponseNewParamsInputUnion{OfString: param.NewOpt(text)}
	}
	first := ask(responses.ResponseNewParams{Input: text("My name is Zoe.")})
	require.True(t, first.Store)
	require.Equal(t, "My name is Zoe.", first.OutputText())
	second := ask(responses.ResponseNewParams{Input: text("Hello."), PreviousResponseID: client.String(first.ID)})
	require.Equal(t, first.ID, second.PreviousResponseID)
	third := ask(responses.ResponseNewParams{Input: text("Bye."), PreviousResponseID: client.String(second.ID)})

	tokens := func(input string) int64 {
		a := s.ask(t, respond, demo+`"store": false, "input": `+input+"}")
		require.Equal(t, 200, a.Status, a.Text)
		var r struct {
			Store bool
			Usage struct {
				Input int64 `json:"input_tokens"`
			}
		}
		require.NoError(t, json.Unmarshal([]byte(a.Text), &r))
		require.False(t, r.Store)
		return r.Usage.Input
	}
	const user = `{"role": "user", "content": [{"type": "input_text", "text": `
	whole := tokens(`[` + user + `"My name is Zoe."}]}, {"role": "assistant", "content": "My name is Zoe."}, ` + user + `"Hello."}]},
		{"role": "assistant", "content": "Hello."}, ` + user + `"Bye."}]}]`)
	require.Equal(t, whole, third.Usage.InputTokens)
	require.Equal(t, whole, tokens(`[`+user+`"My name is Zoe."}]}, {"type": "item_reference", "id": "`+first.Output[0].ID+`"}, `+
		user+`"Hello."}]}, {"id": "`+second.Output[0].ID+`"}, `+user+`"Bye."}]}]`))

	a := s.ask(t, respond, demo+`"store": false, "input": "Hi", "stream": true}`)
	require.Equal(t, 200, a.Status)
	a = s.ask(t, respond, demo+`"input": "Hi", "previous_response_id": "resp_0"}`)
	require.Equal(t, 400, a.Status)
	require.Equal(t, "previous_response_id", a.Error.Param)
	require.Contains(t, a.Error.Message, "loses them when it restarts. Send the earlier items themselves, as clients do with store false.")
}
