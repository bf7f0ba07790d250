// Package toolparser splits the text of an answer into reasoning, content and tool calls. The text comes piece by piece,
// and the result does not depend on how it is cut.
//
// Families of models write reasoning and calls in different ways. A [ToolParser] and a [ReasoningParser] describe such a
// way as data: markers and the shape of a call. gpt-oss's harmony format is code (harmony.go). The names are vLLM's.
//
// A server chooses a [Format] once for each model, with [Choose] or by name. Each answer has a [Parser]:
//
//	p := format.Parser(toolparser.Options{Known: isTool, Prompt: prompt})
//	events := p.Feed(piece) // for each piece
//	events = p.Close()      // at the end of the answer, or Cut if max_tokens or a stop string ended it
//
// Text that may be a part of a marker or the beginning of a call is held until that is decided. If it turns out to be
// neither, also because the answer ends, it is content. If max_tokens or a stop string ends the answer, it is
// left out.
//
// A call is shown as soon as its name is known. Its arguments follow as the model writes them; they are JSON if the model
// writes JSON. Texts between tags ([Tagged]) become JSON.
package toolparser
