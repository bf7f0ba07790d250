package course

import "errors"

// The reasons for which a call is refused. A refused call has changed nothing.
var (
	ErrNilEngine = errors.New("engine is NULL")                                 // handout, Pointer Safety
	ErrPool      = errors.New("pool is NULL, below one block or above INT_MAX") // handout, task 1
	ErrLength    = errors.New("length is not positive")                         // handout, task 2, phase 1
	ErrExists    = errors.New("sequence id exists")                             // handout, tasks 2 and 3
	ErrNotFound  = errors.New("no such sequence id")                            // handout, tasks 2 to 4
	ErrCapacity  = errors.New("more than 256 logical blocks")                   // handout, tasks 2 and 4
	ErrNoBlocks  = errors.New("not enough free blocks")                         // handout, phase 3, OOM interception
	ErrNoMemory  = errors.New("malloc returned NULL")
	ErrCorrupt   = errors.New("visible state contradicts itself")
	ErrArgument  = errors.New("NULL array or n not positive") // llm_memory_ext.h
)
