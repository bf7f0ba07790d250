//go:build long

package openai_test

import (
	"encoding/json"
	"testing"

	client "github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/responses"
	"github.com/stretchr/testify/require"
)

func officialResponse(text string) responses.ResponseNewParams {
	return responses.ResponseNewParams{Model: "demo", Input: responses.ResponseNewParamsInputUnion{OfString: client.String(text)},
		Temperature: client.Float(0)}
}

// respondBoth sends a request once as it is and once as a stream, requires equal outputs, and returns the response.
func (s *served) respondBoth(t *testing.T, p responses.ResponseNewParams) *responses.Response {
	t.Helper()
	c := s.official()
	whole, err := c.Responses.New(t.Context(), p)
	require.NoError(t, err)
	var last *responses.Response
	var text, reasoning, arguments string
	stream := c.Responses.NewStreaming(t.Context(), p)
	for n := int64(0); stream.Next(); n++ {
		e := stream.Current()
		require.Equal(t, n, e.SequenceNumber)
		switch e.Type {
		case "response.output_text.delta":
			text += e.Delta
		case "response.reasoning_text.delta":
			reasoning += e.Delta
		case "response.function_call_arguments.delta":
			arguments += e.Delta
		case "response.completed", "response.incomplete":
			last = &e.Response
		}
	}
	require.NoError(t, stream.Err())
	require.NotNil(t, last)
	require.Equal(t, whole.Status, last.Status)
	require.Equal(t, whole.Usage.OutputTokens, last.Usage.OutputTokens)
	require.Equal(t, whole.OutputText(), last.OutputText())
	require.Equal(t, whole.OutputText(), text)
	require.Len(t, last.Output, len(whole.Output))
	for i, o := range whole.Output {
		require.Equal(t, o.Type, last.Output[i].Type)
		require.Equal(t, o.Name, last.Output[i].Name)
		require.Equal(t, o.Arguments, last.Output[i].Arguments)
		switch o.Type {
		case "reasoning":
			require.Equal(t, o.AsReasoning().Content[0].Text, reasoning)
		case "function_call":
			require.Equal(t, o.Arguments.OfString, arguments)
		}
	}
	return whole
}

func TestOfficialClientGetsResponses(t *testing.T) {
	s := startAll(t, nil)
	got := s.respondBoth(t, officialResponse("Größe: 20 €"))
	require.Equal(t, "Größe: 20 €", got.OutputText())
	require.EqualValues(t, "completed", got.Status)
	require.EqualValues(t, len("Größe: 20 €")+1, got.Usage.OutputTokens)
	p := officialResponse("Größe: 20 €")
	p.MaxOutputTokens = client.Int(3)
	got = s.respondBoth(t, p)
	require.EqualValues(t, "incomplete", got.Status)
	require.Equal(t, "max_output_tokens", got.IncompleteDetails.Reason)
	require.EqualValues(t, "incomplete", got.Output[0].Status)

	p = officialResponse("Größe: 20 €")
	p.PreviousResponseID = client.String("resp_1")
	c := s.official()
	_, err := c.Responses.New(t.Context(), p)
	var failed *client.Error
	require.ErrorAs(t, err, &failed)
	require.Equal(t, []any{400, "previous_response_id"}, []any{failed.StatusCode, failed.Param})
}

func TestOfficialClientGetsResponsesWithReasoningAndCalls(t *testing.T) {
	s := startTools(t, "mistral", "deepseek_r1")
	const text = `Hm.</think>I look.[TOOL_CALLS]get_weather[ARGS]{"city":"Rom","days": 7}`
	p := officialResponse(text)
	p.Tools = []responses.ToolUnionParam{{OfFunction: &responses.FunctionToolParam{Name: "get_weather", Parameters: weatherTool.OfFunction.Function.Parameters}}}
	got := s.respondBoth(t, p)
	require.Len(t, got.Output, 3)
	require.Equal(t, "Hm.", got.Output[0].AsReasoning().Content[0].Text)
	require.Equal(t, "I look.", got.OutputText())
	call := got.Output[2].AsFunctionCall()
	require.Equal(t, []any{"get_weather", `{"city":"Rom","days": 7}`}, []any{call.Name, call.Arguments})
	require.EqualValues(t, len("Hm.</think>"), got.Usage.OutputTokensDetails.ReasoningTokens)

	// The items of the answer and the result of the call are the input of the next request. The model looks for an
	// earlier occurrence of the last three bytes of the prompt, and repeats the text after that occurrence.
	//
	// The template writes the same two bytes between any two messages. The message "I look." and the result of the call
	// both end with a full stop, so the last three bytes of the prompt also occur where "I look." ends. The text after
	// that occurrence is the result of the call. The answer is therefore the result of the call.
	var input []responses.ResponseInputItemUnionParam
	input = append(input, responses.ResponseInputItemParamOfMessage("Weather?", responses.EasyInputMessageRoleUser))
	for _, o := range got.Output {
		switch o.Type {
		case "message":
			m := o.AsMessage().ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfOutputMessage: &m})
		case "function_call":
			c := call.ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfFunctionCall: &c})
		case "reasoning":
			r := o.AsReasoning().ToParam()
			input = append(input, responses.ResponseInputItemUnionParam{OfReasoning: &r})
		}
	}
	input = append(input, responses.ResponseInputItemParamOfFunctionCallOutput(call.CallID, "x</think>sunny."))
	p.Input = responses.ResponseNewParamsInputUnion{OfInputItemList: input}
	require.Equal(t, "sunny.", s.respondBoth(t, p).OutputText())
}

func TestOfficialClientGetsResponsesOfAForm(t *testing.T) {
	s := startTools(t, "hermes", "")
	// The model repeats the text as far as the form allows. The form has no country.
	p := officialResponse(`{"city":"Rom"}, {"country":"Italia"}`)
	p.MaxOutputTokens = client.Int(300)
	p.Text = responses.ResponseTextConfigParam{Format: responses.ResponseFormatTextConfigUnionParam{
		OfJSONSchema: &responses.ResponseFormatTextJSONSchemaConfigParam{Name: "n", Schema: map[string]any{
			"type": "object", "properties": map[string]any{"city": map[string]any{"enum": []string{"Rom"}}}, "required": []string{"city"},
			"additionalProperties": false}}}}
	c := s.official()
	got, err := c.Responses.New(t.Context(), p)
	require.NoError(t, err)
	var fields map[string]string
	require.NoError(t, json.Unmarshal([]byte(got.OutputText()), &fields))
	require.Equal(t, map[string]string{"city": "Rom"}, fields)
}
