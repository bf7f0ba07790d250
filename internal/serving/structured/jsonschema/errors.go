package jsonschema

import (
	"errors"
	"fmt"

	"llmmemory/internal/serving/meter"
)

// Unsupported is the error of a keyword that cannot be obeyed.
type Unsupported struct {
	Path    string // of the schema, as a JSON pointer
	Keyword string
	Reason  string
}

func (e *Unsupported) Error() string { return message(e.Path, e.Keyword, e.Reason) }

// TooLarge is the error of a part of a schema that reaches a limit of the meter.
type TooLarge struct {
	Path    string // of the schema, as a JSON pointer
	Keyword string
	Size    string // of what is large, such as "4096 entries"
	Limit   *meter.LimitError
}

func (e *TooLarge) Error() string { return message(e.Path, e.Keyword, e.Size+": "+e.Limit.Error()) }

// Unwrap returns the limit, which is a meter.ErrTooLarge.
func (e *TooLarge) Unwrap() error { return e.Limit }

func message(path, keyword, reason string) string {
	if path == "" {
		path = "/"
	}
	return fmt.Sprintf("JSON Schema, at %s: %s: %s", path, keyword, reason)
}

// refuse returns the error of a keyword of a schema.
func refuse(schema *value, keyword, format string, args ...any) error {
	return &Unsupported{schema.path(), keyword, fmt.Sprintf(format, args...)}
}

// refuse returns the error of a limit that cannot be obeyed. If the limit is that of a negation, the error says it.
func (o origin) refuse(limit int, reason string) error {
	if o.negated {
		reason = fmt.Sprintf("its negation demands %d, and %s", limit, reason)
	}
	return refuse(o.schema, o.keyword, "%s", reason)
}

// blame adds the place to an error that says that a limit was reached. It does not if the limit is that of all work, and
// most of the work was spent on other keywords than that at the place. The parameter before is the work before the keyword.
func (c *compiler) blame(err error, before int, schema *value, keyword, size string) error {
	spent := c.budget.Spent()
	limit := (*meter.LimitError)(nil)
	if errors.As(err, &limit) && limit.Limit == meter.Work && 2*spent > limit.Allowed && 2*(spent-before) < spent {
		return err
	}
	return locate(err, schema, keyword, size)
}

// enter charges the meter for a level of nesting. If the levels are too many, the error names the schema.
func (c *compiler) enter(schema *value, size string) error {
	err := c.budget.Enter()
	if limit := (*meter.LimitError)(nil); errors.As(err, &limit) && limit.Limit == meter.Depth {
		return locate(err, schema, "schema", size)
	}
	return err
}

// locate adds the place to an error that says that a limit was reached, unless it has one already. The place is a
// keyword of a schema, and size says how large its value is.
func locate(err error, schema *value, keyword, size string) error {
	var located *TooLarge
	var limit *meter.LimitError
	if errors.As(err, &located) || !errors.As(err, &limit) {
		return err
	}
	return &TooLarge{schema.path(), keyword, size, limit}
}

// size says how large a value is.
func (v *value) size() string {
	switch v.kind {
	case object:
		return fmt.Sprintf("%d members", len(v.items))
	case array:
		return fmt.Sprintf("%d elements", len(v.items))
	case text, number:
		return fmt.Sprintf("%d characters", len(v.text))
	}
	return v.short()
}
