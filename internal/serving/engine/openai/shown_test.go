package openai_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"llmmemory/internal/serving/engine"
	"llmmemory/internal/serving/engine/openai"
)

// Ensure that an error quotes only the beginning of a long text from the client. This includes errors raised by a
// template.
func TestAnErrorShowsTheBeginningOfWhatAClientSends(t *testing.T) {
	s := start(t, func(c *openai.Config, _ *engine.Config) {
		c.Template, c.Local = newTemplate(t, "{{ raise_exception('The role ' + messages[0]['content'] + ' is not known') }}"), true
	})
	long := strings.Repeat("x", 20_000)
	message := func(content string) string {
		return demo + `"messages": [{"role": "user", "content": ` + content + `}]}`
	}
	for _, test := range []struct{ name, method, path, body, header, value, says string }{
		{"a type of a part", "POST", chats, message(`[{"type": "` + long + `"}]`), "", "", `x..."; text is possible.`},
		{"what a template refuses", "POST", chats, message(`"` + long + `"`), "", "", "The role xxx"},
		{"a path", "GET", "/" + long, "", "", "", "x... here. This server has"},
		{"a method", strings.ToUpper(long), "/x", "", "", "", "X... /x here. This server has"},
		{"a host", "GET", "/health", "", "Host", long, `x...": call it localhost`},
		{"a type of a body", "POST", texts, "{}", "Content-Type", long, `x..."; send JSON`},
		{"a coding", "POST", texts, "{}", "Content-Encoding", long, `x..."; send it as it is`},
		{"a number", "POST", texts, text + `"n": ` + strings.Repeat("1", 20_000) + "}", "", "", "11...; a whole number"},
		{"a key of logit_bias", "POST", texts, text + `"logit_bias": {"` + long + `": 1}}`, "", "", `x..."; keys must`},
		{"the name of a field", "POST", texts, text + `"` + long + `": 1}`, "", "", `x..." is not a field`},
		{"the name of a variable", "POST", chats, talk + `"chat_template_kwargs": {"` + long + `": {"a": 1e999}}}`, "", "", ""},
		{"a model", "GET", "/v1/models/" + long, "", "", "", `x..." does not exist`},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, a := s.roundTrip(t, test.method, test.path, test.body, test.header, test.value)
			require.GreaterOrEqual(t, r.StatusCode, 400)
			require.Contains(t, a.Error.Message, test.says)
			require.NotEmpty(t, a.Error.Message)
			require.Less(t, len(a.Text), 2500)
		})
	}
}
