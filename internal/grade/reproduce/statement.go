package reproduce

import (
	"fmt"

	"llmmemory/internal/course/trace"
)

// Statement returns one step in C. INT_MIN has no literal in C.
func Statement(op trace.Op) string {
	engine := fmt.Sprintf("e[%d]", op.Engine)
	if op.Engine == trace.None {
		engine = "NULL"
	}
	a, b, c := literal(op.A), literal(op.B), literal(op.C)
	switch op.Kind {
	case trace.Init:
		if op.A < 0 {
			return "llm_init(NULL, 640);"
		}
		return fmt.Sprintf("%s = llm_init(%s);", engine, poolOf(op))
	case trace.Create:
		return fmt.Sprintf("create_sequence(%s, %s, %s);", engine, a, b)
	case trace.Fork:
		return fmt.Sprintf("fork_sequence(%s, %s, %s);", engine, a, b)
	case trace.Append:
		return fmt.Sprintf("append_kv(%s, %s, %s);", engine, a, b)
	case trace.Free:
		return fmt.Sprintf("free_sequence(%s, %s);", engine, a)
	case trace.Destroy:
		return fmt.Sprintf("llm_destroy(%s);", engine)
	case trace.Forks, trace.Creates, trace.Appends, trace.Frees:
		return many(op, false)
	case trace.Hole:
		return fmt.Sprintf("unmap_block(%s, %s, %s);", engine, a, b)
	case trace.Move:
		return fmt.Sprintf("exchange_tables(%s, %s, %s, %s);", engine, a, b, c)
	case trace.Relocate:
		return fmt.Sprintf("relocate(%s, %s, %s);", engine, a, b)
	case trace.Rename:
		return fmt.Sprintf("rename_sequence(%s, %s, %s);", engine, a, b)
	case trace.Unlink:
		return fmt.Sprintf("take_out(%s, %s);", engine, a)
	case trace.Count:
		return fmt.Sprintf("set_kv_count(%s, %s, %s);", engine, a, b)
	case trace.Share:
		return fmt.Sprintf("share_block(%s, %s, %s, %s);", engine, a, b, c)
	case trace.Table:
		return fmt.Sprintf("given_table(%s, %s, %s);", engine, a, b)
	case trace.Place:
		return fmt.Sprintf("map_blocks(%s, %s, %s, %s, 1);", engine, a, b, c)
	default:
		return fmt.Sprintf("map_first_free(%s, %s, %s);", engine, a, b)
	}
}

// poolOf returns the pool of an Init and its size. A large one is allocated, not filled.
func poolOf(op trace.Op) string {
	if op.Large() {
		return fmt.Sprintf("malloc((size_t)%d), (size_t)%d", op.Pool(), op.Pool())
	}
	return fmt.Sprintf("pool%d, %s", op.Engine, literal(op.A))
}

// many returns a step of several calls as a loop, which may count those that succeed.
func many(op trace.Op, counted bool) string {
	engine := fmt.Sprintf("e[%d]", op.Engine)
	if op.Engine == trace.None {
		engine = "NULL"
	}
	a, b, c := literal(op.A), literal(op.B), literal(op.C)
	n, call, good := c, "", " != NULL"
	switch op.Kind {
	case trace.Forks:
		call = fmt.Sprintf("fork_sequence(%s, %s, %s + i)", engine, a, b)
	case trace.Creates:
		call = fmt.Sprintf("create_sequence(%s, %s + i, %s)", engine, a, b)
	case trace.Appends:
		call, good = fmt.Sprintf("append_kv(%s, %s, %s + i)", engine, a, b), " == 0"
	default:
		n, call, good = b, fmt.Sprintf("free_sequence(%s, %s + i)", engine, a), " == 0"
	}
	if counted {
		call = "made += " + call + good
	}
	return fmt.Sprintf("for (int i = 0; i < %s; i++) { %s; }", n, call)
}

func literal(n int32) string {
	if n == -1<<31 {
		return "-2147483647 - 1"
	}
	return fmt.Sprint(n)
}
