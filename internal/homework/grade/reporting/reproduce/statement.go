package reproduce

import (
	"fmt"

	"llmmemory/internal/homework/course/oracle"
	"llmmemory/internal/homework/course/trace"
)

// statements has the C code for each kind of step. %[1]s is the engine; %[2]s to %[4]s are the step's numbers.
var statements = map[trace.Kind]string{
	trace.Create:   "create_sequence(%[1]s, %[2]s, %[3]s);",
	trace.Fork:     "fork_sequence(%[1]s, %[2]s, %[3]s);",
	trace.Append:   "append_kv(%[1]s, %[2]s, %[3]s);",
	trace.Free:     "free_sequence(%[1]s, %[2]s);",
	trace.Destroy:  "llm_destroy(%[1]s);",
	trace.Hole:     "unmap_block(%[1]s, %[2]s, %[3]s);",
	trace.Move:     "exchange_tables(%[1]s, %[2]s, %[3]s, %[4]s);",
	trace.Relocate: "relocate(%[1]s, %[2]s, %[3]s);",
	trace.Rename:   "rename_sequence(%[1]s, %[2]s, %[3]s);",
	trace.Unlink:   "take_out(%[1]s, %[2]s);",
	trace.Count:    "set_kv_count(%[1]s, %[2]s, %[3]s);",
	trace.Share:    "share_block(%[1]s, %[2]s, %[3]s, %[4]s);",
	trace.Table:    "given_table(%[1]s, %[2]s, %[3]s);",
	trace.Place:    "map_blocks(%[1]s, %[2]s, %[3]s, %[4]s, 1);",
	trace.Map:      "map_first_free(%[1]s, %[2]s, %[3]s);",
	// A step of several calls is a loop. If the calls are not counted, %[5]s and %[6]s are empty. Otherwise they make a
	// statement that counts the successful calls, such as
	//
	//	made += append_kv(e[0], 1, 7 + i) == 0;
	trace.Forks:   "for (int i = 0; i < %[4]s; i++) { %[5]sfork_sequence(%[1]s, %[2]s, %[3]s + i)%[6]s; }",
	trace.Creates: "for (int i = 0; i < %[4]s; i++) { %[5]screate_sequence(%[1]s, %[2]s + i, %[3]s)%[6]s; }",
	trace.Appends: "for (int i = 0; i < %[4]s; i++) { %[5]sappend_kv(%[1]s, %[2]s, %[3]s + i)%[6]s; }",
	trace.Frees:   "for (int i = 0; i < %[3]s; i++) { %[5]sfree_sequence(%[1]s, %[2]s + i)%[6]s; }",
}

// Statement returns one step in C.
func Statement(op trace.Op) string { return statement(op, "", "") }

func counted(op trace.Op) string {
	if op.Kind == trace.Appends || op.Kind == trace.Frees {
		return statement(op, "made += ", " == 0")
	}
	return statement(op, "made += ", " != NULL")
}

func statement(op trace.Op, count, succeeds string) string {
	engine := fmt.Sprintf("e[%d]", op.Engine)
	switch {
	case op.Engine == trace.None:
		engine = "NULL"
	case op.Kind == trace.Init && op.A < 0:
		return "llm_init(NULL, 640);"
	case op.Kind == trace.Init:
		return fmt.Sprintf("%s = llm_init(%s);", engine, poolOf(op))
	}
	return fmt.Sprintf(statements[op.Kind], engine, literal(op.A), literal(op.B), literal(op.C), count, succeeds)
}

var changes = map[oracle.ChangeKind]string{
	oracle.DropEngine:   "drop_engine(%[1]s);",
	oracle.NewSequence:  "given_sequence(%[1]s, %[2]s, %[3]s);",
	oracle.DropSequence: "drop_sequence(%[1]s, %[2]s);",
	oracle.Unlinked:     "take_out(%[1]s, %[2]s);",
	oracle.Renamed:      "rename_sequence(%[1]s, %[2]s, %[3]s);",
	oracle.Counted:      "set_kv_count(%[1]s, %[2]s, %[3]s);",
	oracle.NewTable:     "given_table(%[1]s, %[2]s, %[3]s);",
	oracle.Moved:        "exchange_tables(%[1]s, %[2]s, %[3]s, %[4]s);",
	oracle.Relocated:    "relocate(%[1]s, %[2]s, %[3]s);",
	oracle.Mapped:       "map_blocks(%[1]s, %[2]s, %[3]s, %[4]s, %[5]s);",
	oracle.Unmapped:     "unmap_block(%[1]s, %[2]s, %[3]s);",
	oracle.Recorded:     "set_record(%[1]s, %[2]s, %[3]s, %[4]s);",
}

func changed(c oracle.Change) string {
	engine := fmt.Sprintf("e[%d]", c.Engine)
	if c.Kind == oracle.NewEngine {
		op := trace.Op{Kind: trace.Init, Engine: c.Engine, A: c.A, B: c.B}
		return fmt.Sprintf("%s = given_engine(%s);", engine, poolOf(op))
	}
	return fmt.Sprintf(changes[c.Kind], engine, literal(c.A), literal(c.B), literal(c.C), literal(c.N))
}

// poolOf returns the arguments of llm_init in C: the pool and its size. A large pool is allocated with malloc and not
// filled.
func poolOf(op trace.Op) string {
	if op.Large() {
		return fmt.Sprintf("malloc((size_t)%d), (size_t)%d", op.Pool(), op.Pool())
	}
	return fmt.Sprintf("pool%d, %s", op.Engine, literal(op.A))
}

// literal returns a number as an expression in C. This is not always a literal, because C has no literal for INT_MIN.
func literal(n int32) string {
	if n == -1<<31 {
		return "-2147483647 - 1"
	}
	return fmt.Sprint(n)
}
