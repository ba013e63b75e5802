package logs

// Metrics receives measurements. Its methods are called one at a time, and nothing waits for them. Embed [NopMetrics]
// in an implementation, so that methods added later do not break it.
type Metrics interface {
	// Rotated is called when a log was rotated; with an error, if it could not be, for the first of attempts that fail
	// one after the other.
	Rotated(err error)
	// Compressed is called when a rotated file was compressed, or could not be.
	Compressed(err error)
}

// NopMetrics is a [Metrics] that does nothing.
type NopMetrics struct{}

// Rotated implements [Metrics].
func (NopMetrics) Rotated(error) {}

// Compressed implements [Metrics].
func (NopMetrics) Compressed(error) {}
