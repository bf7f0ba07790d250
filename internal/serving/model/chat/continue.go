package chat

import (
	"fmt"
	"strings"
)

// endOfMessage is appended to the last message, to find its end in the prompt. It ends with a space, which is missing
// if the template strips messages.
const endOfMessage = "\uE03A\uE03B "

// Continue marks the end of the last message, which the model is to continue. The function cut removes everything after
// this end from a rendered prompt. messages must not be empty. The result is that of continue_final_message in Hugging
// Face's transformers.
func Continue(messages []Message) (marked []Message, cut func(prompt string) (string, error)) {
	marked = append(marked, messages...)
	marked[len(marked)-1].Content += endOfMessage
	return marked, func(prompt string) (string, error) {
		end := strings.TrimSpace(endOfMessage)
		at := strings.LastIndex(prompt, end)
		if at < 0 {
			return "", fmt.Errorf("%w leaves out the end of the last message, so it cannot be continued", ErrTemplate)
		}
		if !strings.HasPrefix(prompt[at:], endOfMessage) {
			return strings.TrimRight(prompt[:at], " \t\r\n"), nil
		}
		return prompt[:at], nil
	}
}
