package terminal

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestControlCharactersBecomeVisible(t *testing.T) {
	for _, c := range []struct{ name, text, want, onOneLine string }{
		{"plain", "Zoë 日本 a\nb\tc", "Zoë 日本 a\nb\tc", `Zoë 日本 a\x0ab\x09c`},
		{"escape", "\x1b[31mred\x07", `\x1b[31mred\x07`, `\x1b[31mred\x07`},
		{"return", "a\rb\x7f", `a\x0db\x7f`, `a\x0db\x7f`},
		{"eight-bit control", "\u009b31m", `\x9b31m`, `\x9b31m`},
		{"right to left", "a\u202ec.exe", `a\u202ec.exe`, `a\u202ec.exe`},
		{"not UTF-8", "caf\xe9 \xff", `caf\xe9 \xff`, `caf\xe9 \xff`},
		{"replacement character", "\ufffd", "\ufffd", "\ufffd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.want, Visible(c.text))
			require.Equal(t, c.onOneLine, VisibleName(c.text))
		})
	}
}
