package jsonschema

import "fmt"

// Unsupported is the error of a keyword that cannot be obeyed.
type Unsupported struct {
	Path    string // of the schema, as a JSON pointer
	Keyword string
	Reason  string
}

func (e *Unsupported) Error() string {
	path := e.Path
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("JSON Schema, at %s: %s: %s", path, e.Keyword, e.Reason)
}

// refuse returns the error of a keyword of a schema.
func refuse(schema *value, keyword, format string, args ...any) error {
	return &Unsupported{schema.path(), keyword, fmt.Sprintf(format, args...)}
}
