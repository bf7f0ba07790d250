package traces

import (
	"go/ast"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestASweepIsExpanded(t *testing.T) {
	s := sweep{
		sections: map[string][]string{"both": {"create e0 7 1", "try 7", "try 2*n+4"}},
		vars:     map[string]int{"n": 1}, parsed: map[string]ast.Expr{},
	}
	s.expand(strings.Split(`pool 3 # blocks
for a,i in 5 2..3 (n+1)*n-7%4
append e0 a 10*i+a/2
if a==3
free e0 -a
end
if a>3
pool 1<<i
end
end
use both
fork e0 id id+2147483647
end`, "\n"), nil)
	require.Equal(t, strings.Split(`init e0 192
append e0 5 2
destroy e0
init e0 64
append e0 2 11
append e0 3 21
free e0 -3
append e0 -1 30
create e0 7 1
fork e0 7 -2147483642
fork e0 6 -2147483643
`, "\n"), strings.Split(s.text.String(), "\n"))
}
