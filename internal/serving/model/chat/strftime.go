package chat

import (
	"fmt"
	"strings"
	"time"
)

// layouts maps directives of Python's strftime to layouts of package time.
var layouts = map[byte]string{
	'Y': "2006", 'y': "06", 'm': "01", 'd': "02", 'j': "002", 'B': "January", 'b': "Jan", 'A': "Monday", 'a': "Mon",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM",
}

// strftime formats a time as Python formats datetime.now(), which has no time zone. It refuses directives other than
// %%, %Z, %z and those of layouts.
func strftime(t time.Time, format string) (string, error) {
	var out strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			out.WriteByte(format[i])
			continue
		}
		i++
		switch {
		case i < len(format) && format[i] == '%':
			out.WriteByte('%')
		case i < len(format) && (format[i] == 'Z' || format[i] == 'z'):
		case i < len(format) && layouts[format[i]] != "":
			out.WriteString(t.Format(layouts[format[i]]))
		default:
			return "", fmt.Errorf("%w: strftime_now has the format %q; it supports only %%Y, %%m, %%d and other common directives",
				ErrTemplate, format)
		}
	}
	return out.String(), nil
}
