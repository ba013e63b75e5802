package logs

// Rotated is the measurement of a log that was rotated.
type Rotated struct {
	// Err is the error if it could not be, for the first of attempts that fail one after the other.
	Err error
}

// Compressed is the measurement of a rotated file that was compressed, or could not be.
type Compressed struct{ Err error }

// IsMeasurement implements [runtime.Measurement].
func (Rotated) IsMeasurement() {}

// IsMeasurement implements [runtime.Measurement].
func (Compressed) IsMeasurement() {}
