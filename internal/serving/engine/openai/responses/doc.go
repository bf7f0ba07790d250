// Package responses serves OpenAI's interface POST /v1/responses. It translates a request to a chat of package openai.
// It translates the answer to the items of the output or, if the client wants a stream, to the events of a response. It
// keeps the last responses in memory.
//
// It refuses requests that a chat cannot express. Examples are requests with conversations or files. Tools may
// only be functions, custom tools and namespaces of them; it leaves out tools of OpenAI's servers. Items may only be
// messages, reasoning, calls, their results, and references to earlier items. The error names the reason.
package responses
