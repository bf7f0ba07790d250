package engine

import (
	"maps"
	"slices"
)

// A DeviceFailure is the error of all requests when the Device cannot compute any more.
type DeviceFailure struct {
	Stalled bool // a step does not end; else the Device reported an error
	Cause   error
}

func (f *DeviceFailure) Error() string { return f.Cause.Error() }

func (f *DeviceFailure) Unwrap() error { return f.Cause }

// GiveUp ends all requests because a step of the Device does not end. The requests end with a DeviceFailure. Its Cause
// is the parameter cause, unless the Device has failed before.
func (e *Engine) GiveUp(cause error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deviceFailed(&DeviceFailure{Stalled: true, Cause: cause})
}

// deviceFailed ends all requests, and makes the engine refuse new ones. Their error is the first failure of the
// device, which may be an earlier one than f.
func (e *Engine) deviceFailed(f *DeviceFailure) {
	if e.failure == nil {
		e.failure = f
	}
	e.closed, e.canceling = true, true
	for _, q := range slices.Collect(maps.Values(e.live)) {
		e.failAnswers(q.stream, e.failure)
	}
	e.changed.Broadcast()
}

// Failure returns a *DeviceFailure if the Device cannot compute any more, else nil. All requests end with this error,
// and new ones are refused with it.
func (e *Engine) Failure() error {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.failure
}
