// Package toolparser splits the text of an answer into reasoning, content and tool calls. The text arrives in pieces.
// The result does not depend on where one piece ends and the next begins.
//
// Families of models write reasoning and calls in different ways. A [ToolParser] and a [ReasoningParser] describe one
// way as data: the markers and the form of a call. The code in harmony.go parses gpt-oss's harmony format. Parsers have
// the names that vLLM gives them, except the one named json.
//
// A server chooses a [Format] once for each model, with [Choose] or by name. Each answer has a [Parser]:
//
//	p := format.Parser(toolparser.Options{Known: isTool, Prompt: prompt})
//	events := p.Feed(piece) // for each piece
//	events = p.Close()      // at the end of the answer, or Cut if max_tokens or a stop string ended it
//
// A parser holds back text if it may be a part of a marker or the beginning of a call. Later text decides this. If
// the answer ends first, the text is content. But if max_tokens or a stop string ended the answer, the text is
// dropped.
//
// A parser reports a call as soon as it has read the call's name, and then its arguments as the model writes them. The
// arguments are JSON if the model writes JSON. Parsers that are [Tagged] or Pythonic make JSON from what it writes.
package toolparser
