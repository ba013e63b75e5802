package volume

import (
	"time"
)

// SetUpCall is the measurement of a call of [Plugin].SetUp, also of those that found the volume ready:
// storage_operation_duration_seconds with the operation_name volume_mount. Its status is success or fail-unknown.
type SetUpCall struct {
	Plugin string
	Took   time.Duration
	Err    error
}

// TearDownCall is the measurement of a call of [Plugin].TearDown: storage_operation_duration_seconds with the
// operation_name volume_unmount.
type TearDownCall struct {
	Plugin string
	Took   time.Duration
	Err    error
}

// IsMeasurement implements [runtime.Measurement].
func (SetUpCall) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (TearDownCall) IsMeasurement() {}
